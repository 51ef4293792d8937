"""Norms as ops: rules of torch.library, values, and launches on doubles of Neuron devices."""

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional

from repetition import few
from trnconv.errors import UnsupportedError
from trnconv.problem.policy import FAST, Policy
from trnconv.pytorch import patch_
from trnconv.pytorch.operators import norms
from trnconv.pytorch.operators.norm_call import (
    FRAME_GROUPS,
    GROUPS,
    LENGTH,
    MEAN_SQUARE,
    ModulationCall,
    NormCall,
    worded_modulation,
    worded_norm,
)
from trnconv.pytorch.operators.norms import group_factors, modulated, normed

pytestmark = [pytest.mark.torch, pytest.mark.block]

CHANNELS = 12
CALLS = {
    "length": NormCall(LENGTH, 1e-6, factor=CHANNELS**0.5, activation="silu"),
    "some frames": NormCall(LENGTH, 1e-6, first=1, frames=2),
    "mean": NormCall(MEAN_SQUARE, 1e-3, factor=-2.0),
    "groups": NormCall(GROUPS, 1e-5, groups=4, activation="relu"),
    "groups of frames": NormCall(FRAME_GROUPS, 1e-5, groups=3),
}


def noise(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def expected(call, x, gamma, beta):
    """By torch, in float64."""
    x, gamma, beta = x.double(), gamma.double(), beta.double()
    if call.frames:
        x = x[:, :, call.first : call.first + call.frames]
    each = (1, -1, 1, 1, 1)
    if call.kind in (GROUPS, FRAME_GROUPS):
        frames = x.transpose(1, 2).flatten(0, 1) if call.kind == FRAME_GROUPS else x
        y = functional.group_norm(frames, call.groups, gamma, beta, call.eps)
        if call.kind == FRAME_GROUPS:
            y = y.unflatten(0, (x.shape[0], x.shape[2])).transpose(1, 2)
    else:
        y = functional.normalize(x, dim=1, eps=call.eps)
        if call.kind == MEAN_SQUARE:
            y = x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + call.eps)
        y = call.factor * y * gamma.reshape(each) + beta.reshape(each)
    return {"silu": functional.silu, "relu": torch.relu, "identity": lambda z: z}[call.activation](
        y
    )


@pytest.mark.parametrize("name", CALLS)
def test_values_are_torchs(name):
    x, gamma, beta = noise(1, CHANNELS, 4, 5, 6), noise(CHANNELS, seed=1), noise(CHANNELS, seed=2)
    y = normed(x, gamma, beta, CALLS[name])
    want = expected(CALLS[name], x, gamma, beta)
    assert y.shape == want.shape
    assert (y - want).abs().max() <= 1e-5 * want.abs().max()


@pytest.mark.parametrize("name", CALLS)
def test_ops_keep_the_rules_of_torch_library(name):
    x, gamma, beta = noise(1, CHANNELS, 4, 2, 3), noise(CHANNELS, seed=1), noise(CHANNELS, seed=2)
    arguments = (x, gamma, beta, CALLS[name].words(), "nkisim")
    assert set(torch.library.opcheck(norms.norm_op, arguments).values()) == {"SUCCESS"}
    assert worded_norm(CALLS[name].words()) == CALLS[name]


def test_factors_and_modulation_keep_the_rules_too():
    x, low = noise(1, CHANNELS, 3, 4, 6), noise(2, 1, CHANNELS, 2, 2, 3, seed=1)
    gamma, beta = noise(CHANNELS, seed=1), noise(CHANNELS, seed=2)
    arguments = (x, gamma, beta, CALLS["groups"].words(), "nkisim")
    assert set(torch.library.opcheck(norms.factors_op, arguments).values()) == {"SUCCESS"}
    call = ModulationCall(2, (0, 1, 1), "silu")
    assert worded_modulation(call.words()) == call
    arguments = (x, low[0], low[1], noise(CHANNELS, 2, seed=3), call.words(), "nkisim")
    assert set(torch.library.opcheck(norms.modulation_op, arguments).values()) == {"SUCCESS"}


@few(8)
@pytest.mark.parametrize("name", CALLS)
def test_a_device_gives_what_nkisim_gives(name, on_device):
    x, gamma, beta = noise(1, CHANNELS, 4, 5, 6), noise(CHANNELS, seed=1), noise(CHANNELS, seed=2)
    y = normed(x, gamma, beta, CALLS[name])
    want = expected(CALLS[name], x, gamma, beta)
    assert (y - want).abs().max() <= 1e-5 * want.abs().max()
    gamma[3] = 100.0  # its constants are packed again
    again = normed(x, gamma, beta, CALLS[name])
    want = expected(CALLS[name], x, gamma, beta)
    assert (again - want).abs().max() <= 1e-5 * want.abs().max()


@few(2)
def test_a_device_modulates(on_device):
    x, low = noise(1, CHANNELS, 3, 4, 6), noise(2, 1, CHANNELS, 2, 2, 3, seed=1)
    gamma, beta = noise(CHANNELS, seed=1), noise(CHANNELS, seed=2)
    groups = NormCall(GROUPS, 1e-5, groups=4)
    factors = group_factors(x, gamma, beta, groups)
    y = modulated(x, (low[0], low[1]), factors, ModulationCall(2, (0, 1, 1)), "auto")
    scale, shift = (
        part[:, :, [0, 1, 1]].repeat_interleave(2, 3).repeat_interleave(2, 4).double()
        for part in (low[0], low[1])
    )
    want = expected(groups, x, gamma, beta) * scale + shift
    assert (y - want).abs().max() <= 1e-5 * want.abs().max()


def test_the_torch_backend_has_no_norms_of_ours():
    with pytest.raises(UnsupportedError, match="torch's own operators"):
        normed(noise(1, CHANNELS, 1, 2, 2), None, None, CALLS["length"], "torch")


class WideBlock(torch.nn.Module):
    """A norm over channels, SiLU and a convolution that is worth a fast algorithm."""

    def __init__(self):
        super().__init__()
        self.gamma = torch.nn.Parameter(torch.ones(96, 1, 1, 1))
        self.convolution = torch.nn.Conv3d(96, 96, 3, padding=1)

    def forward(self, x):
        normed = functional.normalize(x, dim=1) * 96**0.5 * self.gamma
        return self.convolution(functional.silu(normed))


@few(1)
def test_behind_a_norm_a_device_has_fast_algorithms_without_calibration(on_device):
    """Without a norm it would be direct: nobody looks at data on a device."""
    model, x = WideBlock().eval(), noise(1, 96, 2, 4, 6)
    model, x = model.bfloat16(), x.bfloat16()
    report = patch_(model, accuracy=Policy(FAST, least_macs=0))
    with torch.no_grad():
        model(x)
        model.convolution(x)
    behind, alone = list(report.stats.works)
    assert behind.policy.x_max == pytest.approx(1.01 * 96**0.5)
    assert alone.policy.x_max is None

"""StepLog: what small models do, on the meta device."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from trnconv.pytorch.lazy.tensors.context import ALL_REWRITES
from trnconv.pytorch.patching import patched
from trnconv.pytorch.step_log import StepLog
from trnconv.traces.groups import operations_of
from trnconv.traces.step import CONVOLUTION

pytestmark = pytest.mark.torch


class WanNorm(torch.nn.Module):
    """As Wan's decoder normalises: by the length of a position's channels."""

    def __init__(self, channels):
        super().__init__()
        self.scale = channels**0.5
        self.gamma = torch.nn.Parameter(torch.ones(channels, 1, 1, 1))

    def forward(self, x):
        return torch.nn.functional.normalize(x.float(), dim=1).to(x.dtype) * self.scale * self.gamma


class MeanSquareNorm(torch.nn.Module):
    """As LTX-Video's: channels last, and an epsilon that is added."""

    def forward(self, x):
        last = x.movedim(1, -1)
        wide = last.to(torch.float32)
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return normed.to(x.dtype).movedim(-1, 1)


class Block(torch.nn.Module):
    """Convolution, norm, SiLU, convolution."""

    def __init__(self, norm):
        super().__init__()
        self.first = torch.nn.Conv3d(32, 32, 3, padding=1)
        self.norm = norm
        self.second = torch.nn.Conv3d(32, 32, 3, padding=1)

    def forward(self, x):
        y = self.norm(self.first(x))
        return self.second(torch.nn.functional.silu(y)) + x


APART = replace(ALL_REWRITES, fuse_norms=False, fuse_attention=False)


def steps_of(model, x, rewrites=ALL_REWRITES):
    model = model.to("meta", torch.bfloat16)
    with (
        torch.no_grad(),
        patched(model, rewrites=rewrites) as report,
        StepLog(report.stats) as log,
    ):
        model(x)
    return log.steps


def video(*shape):
    return torch.empty(shape, device="meta", dtype=torch.bfloat16)


@pytest.mark.parametrize("norm", [WanNorm(32), MeanSquareNorm()], ids=["length", "mean_square"])
def test_a_norm_is_found_by_what_it_does(norm):
    steps = steps_of(Block(norm), video(1, 32, 3, 6, 6), APART)
    found = operations_of(steps)
    assert [operation.kind for operation in found] == ["rms norm", "silu"]
    (rms_norm, _) = found
    assert rms_norm.sizes == (1, 32, 3 * 6 * 6)
    assert rms_norm.written_bytes == 2 * 32 * 3 * 6 * 6
    elements = 32 * 3 * 6 * 6
    assert 2 * elements <= rms_norm.read_bytes <= 2 * elements + 2 * 32
    assert rms_norm.step_bytes > 3 * rms_norm.moved_bytes  # it is written in float32


def test_a_group_norm_has_its_groups():
    steps = steps_of(Block(torch.nn.GroupNorm(8, 32)), video(2, 32, 3, 6, 6), APART)
    (norm, silu) = operations_of(steps)
    assert (norm.kind, norm.sizes) == ("group norm", (2, 32, 8, 3 * 6 * 6))
    assert silu.kind == "silu"


@pytest.mark.parametrize("norm", [WanNorm(32), MeanSquareNorm()], ids=["length", "mean_square"])
def test_a_norm_of_ours_has_its_activation(norm):
    (found,) = operations_of(steps_of(Block(norm), video(1, 32, 3, 6, 6)))
    assert (found.kind, found.activation) == ("rms norm", "silu")
    assert found.sizes == (1, 32, 3 * 6 * 6)
    elements = 32 * 3 * 6 * 6
    assert found.written_bytes == 2 * elements
    assert 2 * elements <= found.read_bytes <= 2 * elements + 2 * 32


def test_a_group_norm_of_ours_has_its_groups():
    (norm,) = operations_of(steps_of(Block(torch.nn.GroupNorm(8, 32)), video(2, 32, 3, 6, 6)))
    assert (norm.kind, norm.sizes) == ("group norm", (2, 32, 8, 3 * 6 * 6))
    assert norm.activation == "silu"


@pytest.mark.parametrize(
    ("rewrites", "more"), [(APART, ()), (ALL_REWRITES, (0,))], ids=["torchs", "ours"]
)
def test_an_attention_is_found(rewrites, more):
    class Attention(torch.nn.Module):
        def forward(self, x):
            tokens = x.flatten(2).transpose(1, 2).unsqueeze(1)
            y = torch.nn.functional.scaled_dot_product_attention(tokens, tokens, tokens)
            return y.squeeze(1).transpose(1, 2).reshape(x.shape)

    steps = steps_of(Block(Attention()), video(1, 32, 3, 4, 4), rewrites)
    (attention,) = (found for found in operations_of(steps) if found.kind == "attention")
    assert attention.sizes == (1, 48, 48, 32, 0, *more)


def test_convolutions_of_ours_are_steps_and_views_are_none():
    steps = steps_of(Block(torch.nn.Identity()), video(1, 32, 3, 6, 6))
    assert [step.role for step in steps if step.role == CONVOLUTION] == [CONVOLUTION] * 2
    assert not {"view", "permute", "slice", "expand"} & {step.name for step in steps}


def test_nothing_that_runs_is_left_out():
    steps = steps_of(Block(WanNorm(32)), video(1, 32, 3, 6, 6), APART)
    found = operations_of(steps)
    ours = sum(step.role == CONVOLUTION for step in steps)
    listed = sum(len(operation.steps) * times for operation, times in found.items())
    assert listed + ours == len(steps)


class Overwriting(torch.nn.Module):
    """A copy into memory that was written."""

    def forward(self, x):
        y = x + 1
        y.copy_(x)
        return y


def test_a_copy_reads_what_is_copied_and_not_what_it_overwrites():
    x = torch.empty(1, 8, 2, 4, 4, dtype=torch.bfloat16, device="meta")
    (copy,) = [op for op in operations_of(steps_of(Overwriting(), x)) if op.kind == "copy_"]
    assert (copy.read_bytes, copy.written_bytes) == (x.nbytes, x.nbytes)

"""Lines of samples in patched models: their residuals and activations, leaky ReLU and ELU too."""

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: N812 (the name everybody uses)
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from integer_networks import integers, with_integers
from nkisim.machine import find_machine
from trnconv.pytorch import Rewrites, patch_, patched, unpatch_
from trnconv.pytorch.lazy.fusion import epilogue_choice, epilogues

pytestmark = pytest.mark.torch

CHANNELS, SAMPLES = 6, 40
HALF = 0.5  # integers times this are exact
FLOAT32 = 2.0**-24


class Two(nn.Module):
    """A convolution, something behind it, and another one."""

    def __init__(self, between, rank=1, channels=CHANNELS):
        super().__init__()
        kind = {1: nn.Conv1d, 2: nn.Conv2d}[rank]
        self.first = kind(channels, channels, 3, padding=1)
        self.last = kind(channels, channels, 1)
        self.between = between

    def forward(self, x):
        y = self.first(x)
        y = self.between(y)
        return self.last(y)


class Block(nn.Module):
    """What is activated is added, too: as vocoders and codecs do it."""

    def __init__(self):
        super().__init__()
        self.pre = nn.Conv1d(CHANNELS, CHANNELS, 1)
        self.wide = nn.Conv1d(CHANNELS, CHANNELS, 3, padding=3, dilation=3)
        self.close = nn.Conv1d(CHANNELS, CHANNELS, 1)

    def forward(self, x):
        x = self.pre(x)
        inner = F.leaky_relu(x, HALF)
        inner = self.wide(inner)
        inner = F.leaky_relu(inner, HALF)
        inner = self.close(inner)
        return inner + x


def line(*sizes):
    return integers(*(sizes or (1, CHANNELS, SAMPLES)))


def run(model, x, backend="nkisim", **options):
    """Patched values and ends by module; exactly torch's values."""
    model = with_integers(model).eval().requires_grad_(requires_grad=False)
    with torch.no_grad():
        expected = model(x)
        with patched(model, backend=backend, **options) as report:
            assert torch.equal(model(x), expected)
    assert not report.stats.repeated
    return {
        work.module: (work.epilogue.activation, work.epilogue.residual)
        for work in report.stats.works
    }


@pytest.mark.parametrize("backend", ["nkisim", "torch"])
def test_a_leaky_relu_is_the_end_of_a_one_dimensional_convolution(backend):
    ends = run(Two(nn.LeakyReLU(HALF)), line(), backend)
    assert ends == {"first": ("leaky_relu:0.5", "none"), "last": ("identity", "none")}


@pytest.mark.parametrize(
    ("between", "end"),
    [
        (nn.LeakyReLU(), "leaky_relu:0.01"),
        (nn.LeakyReLU(1.0), "leaky_relu:1.0"),
        (nn.LeakyReLU(0.0), "identity"),
        (nn.LeakyReLU(2.0), "identity"),
        (nn.LeakyReLU(-0.5), "identity"),
        (nn.LeakyReLU(HALF, inplace=True), "identity"),
        (nn.ELU(), "elu"),
        (nn.ELU(2.0), "identity"),
        (nn.SELU(), "identity"),
        (nn.CELU(2.0), "identity"),
        (nn.ReLU(), "relu"),
    ],
    ids=str,
)
def test_which_options_are_fused(between, end):
    model = with_integers(Two(between)).eval().requires_grad_(requires_grad=False)
    x = line()
    with torch.no_grad():
        expected = model(x)
        with patched(model, backend="nkisim") as report:
            y = model(x)
    ends = {work.module: work.epilogue.activation for work in report.stats.works}
    assert ends == {"first": end, "last": "identity"}
    assert (y - expected).abs().max() <= bound_of(model, x)


def bound_of(model, x):
    """The first sums are integers, and exact. An activation of a sum z, of steepness below 2, is
    off by less than 4 roundings of 2 A on either side, A the sum of absolute values, or by 2**-22.
    The second convolution adds that up, and rounds each of its CHANNELS + 1 terms as often, twice.
    """
    first, last = (
        [tensor.abs() for tensor in conv.parameters()]
        for conv in model.children()
        if isinstance(conv, nn.Conv1d)
    )
    activated = 2 * F.conv1d(x.abs(), *first, padding=1).clamp(min=1)
    roundings = 2 * (4 + CHANNELS + 1)
    return roundings * FLOAT32 * F.conv1d(activated, *last).max()


def test_what_is_activated_and_added_is_computed_once():
    ends = run(Block(), line())
    assert ends == {
        "pre": ("identity", "none"),
        "wide": ("leaky_relu:0.5", "none"),
        "close": ("identity", "before"),
    }
    unfused = run(Block(), line(), rewrites=Rewrites(fuse_epilogues=False))
    assert set(unfused.values()) == {("identity", "none")}


def test_weights_that_are_made_for_every_call():
    class Normed(Two):
        def __init__(self):
            super().__init__(nn.LeakyReLU(HALF))
            weight_norm(self.first)

    model = Normed().eval().requires_grad_(requires_grad=False)
    x = torch.randn(1, CHANNELS, SAMPLES)
    with torch.no_grad():
        expected = model(x)
        with patched(model, backend="nkisim") as report:
            assert torch.allclose(model(x), expected, rtol=1e-5, atol=1e-5)
    ends = {work.epilogue.activation for work in report.stats.works}
    assert ends == {"leaky_relu:0.5", "identity"}


LOOKS = {
    "some samples": lambda y: y[:, :, 3:],
    "turned": lambda y: y.transpose(1, 2).contiguous().transpose(1, 2),
    "an axis more": lambda y: y.unsqueeze(2).squeeze(2),
    "as a matrix": lambda y: y.reshape(1, -1).reshape(y.shape),
    "padded": lambda y: F.pad(y, (2, 0)),
    "mirrored": lambda y: F.pad(y, (2, 3), mode="reflect"),
    "upsampled": lambda y: F.interpolate(y, scale_factor=2),
    "cut": lambda y: torch.cat([y, y[:, :, :2]], 2),
    "written": lambda y: y.mul_(2),
    "looked at": lambda y: y * (1 if y.sum().item() else 2),
    "two ends": lambda y: F.relu(y) + F.leaky_relu(y, HALF) + y,
    "copied": lambda y: y.clone(),
    "wider": lambda y: y.double().float(),
}


@pytest.mark.parametrize("name", LOOKS)
def test_whatever_a_model_does_with_lines(name):
    run(Two(LOOKS[name]), line())
    run(Two(LOOKS[name]), line(3, CHANNELS, 9))


def test_a_line_without_a_batch():
    run(Two(nn.LeakyReLU(HALF)), line(CHANNELS, SAMPLES))


def test_an_input_that_changes_before_the_convolution_runs():
    class Late(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv1d(CHANNELS, CHANNELS, 3, padding=1)

        def forward(self, x):
            kept = x.clone()
            y = F.leaky_relu(self.conv(kept), HALF)
            kept.zero_()
            return y

    run(Late(), line())


def _emptied(y):
    y[:, :, 1] = 0
    return y


@pytest.mark.parametrize("change", [lambda y: y.mul_(3), _emptied], ids=["all", "some"])
@pytest.mark.parametrize("looks", [False, True])
def test_a_result_that_changes_after_it_was_activated(change, looks):
    class Changed(Two):
        def forward(self, x):
            y = self.first(x)
            z = F.leaky_relu(y, HALF)
            if looks:
                assert y.sum().item() is not None
            y = change(y)
            return self.last(z) + y

    run(Changed(None), line())


def test_another_slope_is_noticed(monkeypatch):
    monkeypatch.setattr(epilogues, "leaky_relu", lambda slope: f"leaky_relu:{slope / 2}")
    with pytest.raises(AssertionError):
        run(Two(nn.LeakyReLU(HALF)), line())


@pytest.mark.parametrize("between", [nn.LeakyReLU(HALF), nn.ELU()], ids=str)
def test_images_take_one_where_it_is_faster(between):
    model = Two(between, rank=2)
    x = line(1, CHANNELS, 8, 9)
    model = with_integers(model).eval().requires_grad_(requires_grad=False)
    with torch.no_grad():
        expected = model(x)
        report = patch_(model, backend="nkisim")
        assert torch.allclose(model(x), expected, rtol=1e-5, atol=1e-4)
        unpatch_(model)
        exact = patch_(model, backend="nkisim", reproducible=True)
        assert torch.allclose(model(x), expected, rtol=1e-5, atol=1e-4)
    assert any(work.epilogue.activation != "identity" for work in report.stats.works)
    assert all(work.epilogue.activation == "identity" for work in exact.stats.works)


def test_elu_stays_torchs_where_sums_are_not_replaced(monkeypatch):
    careful = find_machine("trn2+no-psum-in-place")
    monkeypatch.setattr(epilogue_choice, "place_of", lambda _x, _backend: (careful, 1))
    model = Two(nn.ELU()).eval().requires_grad_(requires_grad=False)
    with torch.no_grad(), patched(model, backend="nkisim") as report:
        model(line())
    assert {work.epilogue.activation for work in report.stats.works} == {"identity"}

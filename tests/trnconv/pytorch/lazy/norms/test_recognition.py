"""Norms that a patched model makes of several operators: found, one kernel, and right.

References are torch's own operators on the unpatched model, in float64.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.nn import functional

from trnconv.fused_ops.group_norm import problem as group_norm
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.policy import FAST, Policy
from trnconv.problem.prologue import prologue_of
from trnconv.pytorch import backend, patch_
from trnconv.pytorch.lazy.convolutions import deferred_conv
from trnconv.pytorch.lazy.fusion import convolution
from trnconv.pytorch.lazy.norms import deferred_norm, prologues
from trnconv.pytorch.lazy.norms.pending_norm import PendingNorm
from trnconv.pytorch.lazy.tensors.context import ALL_REWRITES
from trnconv.pytorch.patching import patched

pytestmark = [pytest.mark.torch, pytest.mark.block]

CHANNELS = 8


class LengthNorm(nn.Module):
    """As Wan's: by the length of a position's channels, in float32 for narrow types."""

    def __init__(self, images=False, widened=True):
        super().__init__()
        self.gamma = nn.Parameter(
            torch.ones(CHANNELS, 1, 1) if images else torch.ones(CHANNELS, 1, 1, 1)
        )
        self.widened = widened

    def forward(self, x):
        wide = x.float() if self.widened and x.dtype == torch.bfloat16 else x
        normed = functional.normalize(wide, dim=1).to(x.dtype)
        return normed * CHANNELS**0.5 * self.gamma + 0.0


class ShiftedNorm(LengthNorm):
    """With a shift."""

    def __init__(self):
        super().__init__()
        self.beta = nn.Parameter(torch.ones(CHANNELS, 1, 1, 1))

    def forward(self, x):
        return super().forward(x) + self.beta


class MeanNorm(nn.Module):
    """As LTX-Video's: channels last."""

    def __init__(self, affine):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(CHANNELS)) if affine else None

    def forward(self, x):
        last = x.movedim(1, -1)
        wide = last if x.dtype == torch.float64 else last.to(torch.float32)
        normed = last * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        normed = normed.to(x.dtype)
        return (normed if self.gamma is None else normed * self.gamma).movedim(-1, 1)


class ConditionedNorm(MeanNorm):
    """As LTX-Video's with a time step: scaled and shifted where channels are first again."""

    def __init__(self):
        super().__init__(affine=False)
        self.scale, self.shift = (nn.Parameter(torch.ones(CHANNELS)) for _ in range(2))

    def forward(self, x):
        scale, shift = (each[None, :, None, None, None] for each in (self.scale, self.shift))
        return super().forward(x) * (1 + scale) + shift


class OfPlain(nn.Module):
    """A norm of something that torch has computed."""

    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x):
        return self.norm(torch.atan(x))


class RootNorm(nn.Module):
    """As LTX-2's: divided by a root."""

    def forward(self, x):
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + 1e-8)


class ByHand(nn.Module):
    """gamma first, then x."""

    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(1, CHANNELS, 1, 1, 1))

    def forward(self, x):
        return self.gamma * (torch.rsqrt(torch.mean(x.pow(2), dim=-4, keepdim=True) + 1e-6) * x)


class Block(nn.Module):
    """Convolution, norm, activation, convolution, residual."""

    def __init__(self, norm, rank=3, activation=functional.silu, channels=CHANNELS):
        super().__init__()
        convolution = {2: nn.Conv2d, 3: nn.Conv3d}[rank]
        self.first = convolution(channels, channels, 3, padding=1)
        self.norm = norm
        self.second = convolution(channels, channels, 3, padding=1)
        self.activation = activation

    def forward(self, x):
        return self.second(self.activation(self.norm(self.first(x)))) + x


NORMS = {
    "length": (LengthNorm, 3),
    "length, narrow": (lambda: LengthNorm(widened=False), 3),
    "length of images": (lambda: LengthNorm(images=True), 2),
    "shifted": (ShiftedNorm, 3),
    "mean": (lambda: MeanNorm(affine=False), 3),
    "mean, scaled": (lambda: MeanNorm(affine=True), 3),
    "root": (RootNorm, 3),
    "conditioned": (ConditionedNorm, 3),
    "length of plain": (lambda: OfPlain(LengthNorm()), 3),
    "mean of plain": (lambda: OfPlain(MeanNorm(affine=True)), 3),
    "groups of plain": (lambda: OfPlain(nn.GroupNorm(2, CHANNELS)), 3),
    "by hand": (ByHand, 3),
    "groups": (lambda: nn.GroupNorm(2, CHANNELS), 3),
    "groups of images": (lambda: nn.GroupNorm(2, CHANNELS, eps=1e-3), 2),
    "groups, plain": (lambda: nn.GroupNorm(4, CHANNELS, affine=False), 3),
}


def seeded(model, seed=0):
    """Weights that are not ones and zeros."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model.eval()


def clip(rank, images=2, frames=3, seed=1, channels=CHANNELS):
    generator = torch.Generator().manual_seed(seed)
    shape = (images, channels, frames, 5, 6) if rank == 3 else (images, channels, 5, 6)
    return torch.randn(shape, generator=generator)


def calls_of(monkeypatch, name):
    """The calls, one before the last argument, that a deferred norm makes of a function."""
    calls, function = [], getattr(deferred_norm, name)

    def seen(*args):
        calls.append(args[-2])
        return function(*args)

    monkeypatch.setattr(deferred_norm, name, seen)
    return calls


@pytest.fixture
def kernels(monkeypatch):
    """Calls of norm kernels."""
    return calls_of(monkeypatch, "normed")


def rms(x):
    return float(x.double().pow(2).mean().sqrt())


@pytest.mark.parametrize("modes", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", NORMS)
def test_a_norm_and_its_activation_are_one_kernel_and_better_than_torch(name, modes, kernels):
    make, rank = NORMS[name]
    model, x = seeded(Block(make(), rank)), clip(rank)
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(x.double())
    narrow, x = model.bfloat16(), x.bfloat16()
    with torch.no_grad():
        exact = copy.deepcopy(narrow).double()(x.double())
        theirs = narrow(x)
    patch_(narrow)
    with modes():
        ours = narrow(x)
    assert [call.activation for call in kernels] == ["silu"]
    assert rms(ours - exact) <= 1.02 * rms(theirs - exact)


@pytest.mark.parametrize("name", NORMS)
def test_in_float32_a_norm_is_torchs_up_to_its_rounding(name, kernels):
    make, rank = NORMS[name]
    model, x = seeded(Block(make(), rank)), clip(rank)
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(x.double())
        patch_(model)
        assert rms(model(x) - exact) <= 2e-6 * rms(exact)
    assert len(kernels) == 1


@pytest.mark.parametrize("name", NORMS)
def test_on_the_torch_backend_a_model_has_torchs_bits(name, kernels):
    make, rank = NORMS[name]
    model, x = seeded(Block(make(), rank)).bfloat16(), clip(rank).bfloat16()
    with torch.no_grad(), backend("torch"):
        theirs = model(x)
        patch_(model)
        assert torch.equal(model(x), theirs)
    assert not kernels


def test_reproducible_mode_has_torchs_norms(kernels):
    model, x = seeded(Block(LengthNorm())), clip(3)
    patch_(model, reproducible=True)
    with torch.no_grad():
        model(x)
    assert not kernels


def used_twice(h, _):
    """With and without an activation."""
    normed = functional.normalize(h, dim=1)
    return functional.silu(normed) + normed


# What looks like a norm and is none: y is another tensor, h the convolution's result.
ODD = {
    "lengths alone": lambda h, _: h.norm(dim=1, keepdim=True),
    "squares alone": lambda h, _: h.pow(2),
    "fourth powers": lambda h, _: h / (h.pow(4).mean(1, keepdim=True) + 5).sqrt(),
    "another tensor's lengths": lambda h, y: h / (y.norm(dim=1, keepdim=True).clamp_min(1e-6)),
    "another tensor's mean": lambda h, y: y * torch.rsqrt(h.pow(2).mean(1, keepdim=True) + 1e-6),
    "sums of magnitudes": lambda h, _: functional.normalize(h, p=1, dim=1),
    "along frames": lambda h, _: functional.normalize(h, dim=2),
    "along channels and frames": lambda h, _: functional.normalize(h, dim=(1, 2)),
    "without the axis": lambda h, _: h / h.norm(dim=1).unsqueeze(1).clamp_min(1e-6),
    "no eps": lambda h, _: h / h.norm(dim=1, keepdim=True),
    "eps twice": lambda h, _: h / h.norm(dim=1, keepdim=True).clamp_min(1e-6).clamp_min(2.0),
    "eps below": lambda h, _: h * torch.rsqrt(h.pow(2).mean(1, keepdim=True) + 1.0 - 0.5),
    "a frame's lengths": lambda h, _: h / h.norm(dim=1, keepdim=True).clamp_min(1e-6)[:, :, :1],
    "upside down": lambda h, _: h.norm(dim=1, keepdim=True).clamp_min(1e-6) / h.abs().clamp_min(1),
    "times a video": lambda h, y: functional.normalize(h, dim=1) * y,
    "plus a video": lambda h, y: functional.normalize(h, dim=1) + y,
    "times a row": lambda h, y: functional.normalize(h, dim=1) * y[0, 0, 0, 0],
    "scaled behind the shift": lambda h, y: (
        (functional.normalize(h, dim=1) + y[0, :, :1, :1, :1]) * 3
    ),
    "plus one": lambda h, _: functional.normalize(h, dim=1) + 1.0,
    "in place": lambda h, _: functional.normalize(h, dim=1).mul_(3.0).add_(1.0),
    "used twice": used_twice,
    "of frames": lambda h, _: functional.normalize(h, dim=1)[:, :, 1:],
    "of a part": lambda h, _: functional.normalize(h[:, :, 1:], dim=1),
    "of a padded video": lambda h, _: functional.normalize(
        functional.pad(h, (1, 1)), dim=1, eps=1.0
    ),
    "of a repeated video": lambda h, _: functional.normalize(h.repeat_interleave(2, dim=2), dim=1),
    "of half the channels": lambda h, _: functional.normalize(h[:, :4], dim=1),
    "of groups of a frame": lambda h, _: functional.group_norm(h[:, :, :1], 2),
    "two scales": lambda h, y: (
        functional.normalize(h, dim=1) * y[0, :, :1, :1, :1] * y[1, :, :1, :1, :1]
    ),
}


class Odd(nn.Module):
    """A convolution, and something that may or may not be a norm."""

    def __init__(self, then):
        super().__init__()
        self.first = nn.Conv3d(CHANNELS, CHANNELS, 3, padding=1)
        self.then = then

    def forward(self, x, y):
        return self.then(self.first(x), y)


@pytest.mark.parametrize("name", ODD)
def test_what_only_looks_like_a_norm_is_right_too(name):
    model, x, y = seeded(Odd(ODD[name])), clip(3), clip(3, seed=2)
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(x.double(), y.double())
        patch_(model)
        result = model(x, y)
    assert result.shape == exact.shape
    assert rms(result - exact) <= 5e-6 * rms(exact)


def test_a_tensor_changed_in_place_is_read_before():
    class Changed(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = LengthNorm()
            self.last = nn.Conv3d(CHANNELS, CHANNELS, 1)

        def forward(self, x):
            kept = x * 1.0
            normed = self.norm(kept)
            kept.zero_()
            return self.last(normed) + kept

    model, x = seeded(Changed()), clip(3)
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(x.double())
        patch_(model)
        assert rms(model(x) - exact) <= 2e-6 * rms(exact)


class CachedConv(nn.Module):
    """As Wan's: the last two frames that it saw go before the new ones."""

    def __init__(self):
        super().__init__()
        self.norm = LengthNorm()
        self.first = nn.Conv3d(CHANNELS, CHANNELS, 1)
        self.last = nn.Conv3d(CHANNELS, CHANNELS, (3, 1, 1))
        self.kept = None

    def forward(self, x):
        y = functional.silu(self.norm(self.first(x)))
        kept = y[:, :, -2:].clone()
        before = torch.zeros_like(kept[:, :, :2]) if self.kept is None else self.kept
        self.kept = kept
        return self.last(torch.cat([before, y], dim=2))


def test_frames_of_a_cache_are_a_norm_of_their_own_and_are_not_copied(kernels):
    model = seeded(CachedConv())
    chunks = [clip(3, images=1, frames=4, seed=seed) for seed in range(3)]
    with torch.no_grad():
        exact_model = copy.deepcopy(model).double()
        exact = torch.cat([exact_model(chunk.double()) for chunk in chunks], dim=2)
        report = patch_(model)
        result = torch.cat([model(chunk) for chunk in chunks], dim=2)
    assert rms(result - exact) <= 2e-6 * rms(exact)
    assert Counter((call.first, call.frames) for call in kernels) == {(0, 2): 3, (2, 2): 3}
    assert "cache" not in report.copied()
    assert "contiguous" not in report.copied()


STEPS = {
    "pow": lambda x: x.pow(2),
    "mean": lambda x: x.mean(1, keepdim=True),
    "norm": lambda x: x.norm(dim=1, keepdim=True),
    "clamp": lambda x: x.clamp_min(0.125),
    "eps": lambda x: x + 0.25,
    "zero": lambda x: x + 0.0,
    "twice": lambda x: x * 2.0,
    "root": lambda x: x.abs().sqrt(),
    "silu": functional.silu,
    "wide": lambda x: x.double(),
    "back": lambda x: x.float(),
    "last": lambda x: x.movedim(1, -1).movedim(-1, 1),
    "frame": lambda x: x[:, :, :1],
}


@pytest.mark.parametrize("seed", range(40))
def test_random_steps_have_torchs_values(seed):
    generator = torch.Generator().manual_seed(seed)

    def draw(count):
        return int(torch.randint(count, (1,), generator=generator))

    names = [list(STEPS)[draw(len(STEPS))] for _ in range(6)]
    joins = [draw(4) for _ in names]

    def then(h, y):
        seen = [h]
        for name, join in zip(names, joins, strict=True):
            made = STEPS[name](seen[-1])
            if join == 1:
                made = seen[0] / made.abs().clamp_min(0.5)
            if join == 2:
                made = made * seen[0]
            seen.append(made)
        return seen[-1] + seen[draw(1)] * 0.0 + y[:, :, : seen[-1].shape[2]] * 0.0

    model, x, y = seeded(Odd(then), seed), clip(3), clip(3, seed=2)
    apart = replace(ALL_REWRITES, fuse_norms=False)
    with torch.no_grad(), patched(model, rewrites=apart):
        exact = model(x, y)
    with torch.no_grad(), patched(model):
        result = model(x, y)
    assert rms(result - exact) <= 2e-6 * rms(exact), names


ALWAYS_FAST = Policy(FAST, least_macs=0)
MANY = 96  # channels: fast algorithms take no fewer


def wide_block(norm, activation=functional.silu):
    return Block(norm, activation=activation, channels=MANY).bfloat16()


def clip_of_many(images=1):
    return clip(3, images, frames=2, channels=MANY).bfloat16()


@pytest.fixture
def always_scaled(monkeypatch):
    """Convolutions take norms wherever a kernel can: on small videos that is not faster."""

    def takes(shape, policy, norm, machine, cores):
        prologue = prologue_of(norm.activation)
        problem = ConvProblem(shape, machine, norm.dtype, policy=policy, prologue=prologue)
        return math.isfinite(prologues.priced(problem, cores))

    monkeypatch.setattr(prologues, "prologue_wins", takes)


@pytest.fixture
def scaled(monkeypatch):
    """Convolutions that take factors, by their activation."""
    calls = []

    def seen(pieces, w, bias, spec, residual, asked, factors):
        if factors is not None:
            calls.append(spec.prologue_activation)
        return convolution(pieces, w, bias, spec, residual, asked, factors)

    convolution = deferred_conv.fused_convolution
    monkeypatch.setattr(deferred_conv, "fused_convolution", seen)
    return calls


GROUPED = {
    "silu": (lambda: nn.GroupNorm(2, MANY), functional.silu),
    "plain": (lambda: nn.GroupNorm(4, MANY, affine=False), nn.Identity()),
    "relu": (lambda: nn.GroupNorm(1, MANY, eps=1e-3), functional.relu),
}


@pytest.mark.usefixtures("always_scaled")
@pytest.mark.parametrize("name", GROUPED)
def test_a_group_norm_goes_into_the_convolution_behind_it(name, kernels, scaled):
    make, activation = GROUPED[name]
    model, x = seeded(wide_block(make(), activation)), clip_of_many()
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(x.double())
        theirs = model(x)
        patch_(model, accuracy=ALWAYS_FAST)
        ours = model(x)
    assert scaled == ["identity" if name == "plain" else name]
    assert not kernels
    assert rms(ours - exact) <= 1.2 * rms(theirs - exact)  # what "fast" allows


@pytest.mark.usefixtures("always_scaled")
def test_statistics_of_a_video_that_is_too_long_are_made_group_by_group(monkeypatch, scaled):
    model, x = seeded(wide_block(nn.GroupNorm(4, MANY))), clip_of_many()
    with torch.no_grad():
        patch_(model, accuracy=ALWAYS_FAST)
        whole = model(x)
        monkeypatch.setattr(group_norm, "MAX_OFFSET", x[0].numel() // 3)
        assert torch.equal(model(x), whole)
    assert scaled == ["silu", "silu"]


@pytest.mark.usefixtures("always_scaled")
@pytest.mark.parametrize("images", [2, 3])
def test_norms_of_several_videos_are_done_before(images, kernels, scaled):
    model = seeded(wide_block(nn.GroupNorm(2, MANY)))
    patch_(model, accuracy=ALWAYS_FAST)
    with torch.no_grad():
        model(clip_of_many(images))
    assert (len(kernels), scaled) == (1, [])


def test_a_small_convolution_does_not_take_its_norm(kernels, scaled):
    model = seeded(wide_block(nn.GroupNorm(2, MANY)))
    patch_(model)
    with torch.no_grad():
        model(clip_of_many())
    assert (len(kernels), scaled) == (1, [])


@pytest.mark.usefixtures("always_scaled")
def test_a_norm_that_somebody_else_reads_is_computed_for_them(scaled):
    class Read(Block):
        def forward(self, x):
            normed = functional.silu(self.norm(self.first(x)))
            return self.second(normed) + normed

    model, x = seeded(Read(nn.GroupNorm(2, MANY), channels=MANY)).bfloat16(), clip_of_many()
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(x.double())
        theirs = model(x)
        patch_(model, accuracy=ALWAYS_FAST)
        ours = model(x)
    assert scaled == ["silu"]
    assert rms(ours - exact) <= 1.2 * rms(theirs - exact)


@pytest.mark.parametrize("name", NORMS)
def test_the_proven_range_holds(name):
    """For inputs that are made to reach it: one channel, or one position, alone."""
    make, rank = NORMS[name]
    norm = seeded(make())
    for seed in range(3):
        x = clip(rank, seed=seed) * 1e-3
        x.view(-1)[seed :: x[0].numel()] = 1e4 * (-1) ** seed
        with torch.no_grad():
            largest = float(functional.silu(norm.double()(x.double())).abs().max())
            model = seeded(Block(norm.float(), rank))
            bounds = largest_seen(model, x)
        assert bounds
        assert largest <= bounds[0] <= 1000 * max(largest, 1.0)


def largest_seen(model, x):
    """What convolutions behind norms are told."""
    bounds = []
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(
            convolution,
            "with_proven_range",
            lambda policy, runs, _: (
                bounds.extend(run.base.largest for run in runs if isinstance(run.base, PendingNorm))
                or policy
            ),
        )
        with patched(model):
            model(x)
    return bounds


def test_a_changed_gamma_changes_the_range():
    norm = LengthNorm()
    model, x = Block(norm), clip(3)
    with torch.no_grad():
        norm.gamma.fill_(2.0)
        (before,) = largest_seen(model, x)
        norm.gamma[3] = -8.0
        (after,) = largest_seen(model, x)
    assert after == pytest.approx(4 * before)


class SpatialNorm(nn.Module):
    """As CogVideoX's: a group norm, modulated by a latent that is upsampled; odd frames apart."""

    def __init__(self, groups=2):
        super().__init__()
        self.norm = nn.GroupNorm(groups, CHANNELS)
        self.scale, self.shift = (nn.Conv3d(4, CHANNELS, 1) for _ in range(2))
        self.first = nn.Conv3d(CHANNELS, CHANNELS, 3, padding=1)
        self.last = nn.Conv3d(CHANNELS, CHANNELS, 3, padding=1)
        self.order = lambda norm, scale, shift: norm * scale + shift
        self.passed = lambda z: (z, None)  # what the convolutions get, and what a cache does

    def upsampled(self, z, x):
        if x.shape[2] == 1 or x.shape[2] % 2 == 0:
            return functional.interpolate(z, size=x.shape[2:])
        first = functional.interpolate(z[:, :, :1], size=(1, *x.shape[3:]))
        rest = functional.interpolate(z[:, :, 1:], size=(x.shape[2] - 1, *x.shape[3:]))
        return torch.cat([first, rest], dim=2)

    def forward(self, x, z):
        y = self.first(x)
        z, cached = self.passed(self.upsampled(z, y))
        modulated = self.order(self.norm(y), self.scale(z), self.shift(z))
        del cached
        return self.last(functional.silu(modulated)) + x


@pytest.fixture
def modulations(monkeypatch):
    """Calls of the modulation kernel."""
    return calls_of(monkeypatch, "modulated")


ORDERS = {
    "as it is": lambda norm, scale, shift: norm * scale + shift,
    "turned around": lambda norm, scale, shift: shift + scale * norm,
}


@pytest.mark.parametrize("frames", [(3, 5, (0, 1, 1, 2, 2)), (2, 4, (0, 0, 1, 1)), (1, 1, (0,))])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_modulated_group_norm_is_a_kernel_that_upsamples_nothing(
    frames, order, dtype, modulations, kernels
):
    low, high, frame_map = frames
    model = seeded(SpatialNorm()).to(dtype)
    model.order = ORDERS[order]
    x = torch.randn(1, CHANNELS, high, 8, 12, generator=torch.Generator().manual_seed(3)).to(dtype)
    z = torch.randn(1, 4, low, 2, 3, generator=torch.Generator().manual_seed(4)).to(dtype)
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(x.double(), z.double())
        theirs = model(x, z)
        report = patch_(model)
        ours = model(x, z)
    assert [(call.factor, call.frame_map) for call in modulations] == [(4, frame_map)]
    assert modulations[0].activation == "silu"
    assert not kernels
    assert not report.copied()
    if dtype == torch.float32:
        assert rms(ours - exact) <= 2e-5 * rms(exact)
    else:
        assert rms(ours - exact) <= 1.02 * rms(theirs - exact)


PASSED = {
    "as CogVideoX does, whose pointwise convolutions cache all they get": lambda z: (z, z.clone()),
    "as KVAE does, in groups of 32 channels": lambda z: (
        torch.cat(torch.split(z, 32, dim=1), dim=1),
        None,
    ),
    "cached twice": lambda z: (z.clone(), z[:, :, -2:].clone()),
}


@pytest.mark.parametrize("name", PASSED)
@pytest.mark.parametrize("frames", [(3, 5, (0, 1, 1, 2, 2)), (2, 4, (0, 0, 1, 1))])
def test_upsampled_frames_that_are_cached_stay_notes(name, frames, modulations):
    low, high, frame_map = frames
    model = seeded(SpatialNorm())
    model.passed = PASSED[name]
    x = torch.randn(1, CHANNELS, high, 8, 12, generator=torch.Generator().manual_seed(3))
    latents = torch.randn(1, 4, low + 4, 2, 3, generator=torch.Generator().manual_seed(4))
    z = latents[:, :, 2 : 2 + low]  # a chunk of them, as streams have
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(x.double(), z.double())
        report = patch_(model)
        ours = model(x, z)
    assert [(call.factor, call.frame_map) for call in modulations] == [(4, frame_map)]
    # Both convolutions want the chunk in order: read and written, at its own size.
    assert sum(report.copied().values()) <= 2 * 2 * z.nbytes
    assert rms(ours - exact) <= 2e-5 * rms(exact)


def test_a_few_frames_in_a_cache_are_copied_and_do_not_keep_the_others():
    model = seeded(SpatialNorm())
    kept = {}

    def keep(z):
        kept["few"] = z[:, :, :1].clone()
        return z, None

    x = torch.randn(1, CHANNELS, 4, 8, 12, generator=torch.Generator().manual_seed(3))
    z = torch.randn(1, 4, 4, 8, 12, generator=torch.Generator().manual_seed(4))
    model.passed = keep
    with torch.no_grad():
        patch_(model)
        model(x, z)
    assert kept["few"].untyped_storage().nbytes() == kept["few"].nbytes


class TimeUpsampler(SpatialNorm):
    """As CogVideoX's: frames are repeated, and convolved one by one; a norm is what comes next."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv3d(CHANNELS, CHANNELS, (1, 3, 3), padding=(0, 1, 1))

    def forward(self, x, z):
        first, rest = x[:, :, :1], x[:, :, 1:]
        repeated = torch.cat([first, rest.repeat_interleave(2, dim=2)], dim=2)
        return super().forward(repeated, z)


def test_frames_that_are_repeated_on_paper_have_group_norms_by_kernels(modulations):
    model = seeded(TimeUpsampler())
    x = torch.randn(1, CHANNELS, 3, 8, 12, generator=torch.Generator().manual_seed(3))
    z = torch.randn(1, 4, 3, 2, 3, generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(x.double(), z.double())
        patch_(model)
        ours = model(x, z)
    assert [(call.factor, call.frame_map) for call in modulations] == [(4, (0, 1, 1, 2, 2))]
    assert rms(ours - exact) <= 2e-5 * rms(exact)


NOT_MODULATED = {
    "another video": lambda norm, scale, _: norm * scale + norm,
    "no shift": lambda norm, scale, _: norm * scale,
    "scaled twice": lambda norm, scale, shift: norm * scale * scale + shift,
    "shifted twice": lambda norm, scale, shift: norm * scale + shift + shift,
    "other frames": lambda norm, scale, shift: norm * scale + shift.flip(2),
    "some frames": lambda norm, scale, shift: torch.cat(
        [(norm * scale)[:, :, :2] + shift[:, :, :2], (norm * scale)[:, :, 2:]], dim=2
    ),
    "a number between": lambda norm, scale, shift: norm * 2.0 * scale + shift,
}


@pytest.mark.parametrize("name", NOT_MODULATED)
def test_what_only_looks_modulated_is_right_too(name):
    model = seeded(SpatialNorm())
    model.order = NOT_MODULATED[name]
    x = torch.randn(1, CHANNELS, 4, 8, 12, generator=torch.Generator().manual_seed(3))
    z = torch.randn(1, 4, 2, 2, 3, generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(x.double(), z.double())
        patch_(model)
        result = model(x, z)
    assert rms(result - exact) <= 2e-5 * rms(exact)


@pytest.mark.parametrize("name", ["length", "mean, scaled", "groups"])
def test_under_autocast_types_are_torchs(name):
    make, rank = NORMS[name]
    model, x = seeded(Block(make(), rank)), clip(rank)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        theirs = model(x)
        patch_(model)
        ours = model(x)
    assert ours.dtype == theirs.dtype
    assert rms(ours - theirs) <= 0.05 * rms(theirs)


class Replacing(nn.Module):
    """A norm whose gamma gets other memory before the norm has run."""

    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(CHANNELS, 1, 1, 1))

    def forward(self, x):
        y = functional.normalize(x, dim=1) * self.gamma
        self.gamma.data = self.gamma.data * 3
        return y


def test_a_norm_reads_the_gamma_that_it_was_called_with():
    model, x = Replacing(), torch.randn(1, CHANNELS, 2, 3, 4)
    other = copy.deepcopy(model)
    patch_(other, backend="nkisim")
    with torch.no_grad():
        assert torch.allclose(other(x), model(x), atol=1e-5)


class LongEps(nn.Module):
    """The length of a vector is at least eps, which is not a term under the root."""

    def forward(self, x):
        return functional.normalize(x, dim=1, eps=0.5)


def test_a_large_eps_is_a_least_length():
    model, x = LongEps(), torch.randn(1, CHANNELS, 2, 3, 4) / 4
    expected = model(x)
    patch_(model, backend="nkisim")
    with torch.no_grad():
        assert torch.allclose(model(x), expected, atol=1e-6)

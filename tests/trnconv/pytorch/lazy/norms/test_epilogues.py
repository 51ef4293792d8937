"""Norms over channels at the end of the convolution before them, in patched models.

References are the unpatched model in float64, and torch's own bf16.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.nn import functional

from trnconv.problem.policy import Policy
from trnconv.pytorch import backend, patch_
from trnconv.pytorch.lazy.convolutions import deferred_conv
from trnconv.pytorch.lazy.norms import epilogues
from trnconv.pytorch.lazy.tensors.context import ALL_REWRITES

pytestmark = [pytest.mark.torch, pytest.mark.block]

CHANNELS = 96
APART = replace(ALL_REWRITES, norm_epilogues=False)
SMALL = Policy("bf16", least_macs=0)


class LengthNorm(nn.Module):
    """As Wan's."""

    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(torch.randn(CHANNELS, 1, 1, 1))

    def forward(self, x):
        wide = x if x.dtype == torch.float64 else x.float()
        return functional.normalize(wide, dim=1).to(x.dtype) * CHANNELS**0.5 * self.gamma


class CausalConv(nn.Conv3d):
    """With the last two frames of the chunk before, or zeros."""

    def __init__(self):
        super().__init__(CHANNELS, CHANNELS, 3)

    def forward(self, x, cache):
        x = functional.pad(x, (0, 0, 0, 0, 2, 0)) if cache is None else torch.cat([cache, x], 2)
        return super().forward(functional.pad(x, (1, 1, 1, 1)))


class ResidualBlock(nn.Module):
    """As Wan's: each convolution keeps two frames of its input."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([LengthNorm(), LengthNorm()])
        self.convolutions = nn.ModuleList([CausalConv(), CausalConv()])
        self.caches = [None, None]

    def forward(self, x):
        before = x
        for number, (norm, convolution) in enumerate(
            zip(self.norms, self.convolutions, strict=True)
        ):
            x = functional.silu(norm(x))
            kept = x[:, :, -2:].clone()
            x = convolution(x, self.caches[number])
            self.caches[number] = kept
        return x + before


class Decoder(nn.Module):
    """A convolution, a block, a norm, a convolution."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv3d(CHANNELS, CHANNELS, 3, padding=1)
        self.block = ResidualBlock()
        self.norm = LengthNorm()
        self.last = nn.Conv3d(CHANNELS, 3, 3, padding=1)

    def forward(self, x):
        x = self.block(self.first(x))
        x = functional.silu(self.norm(x))
        return self.last(x)


@pytest.fixture
def runs(monkeypatch):
    """Whether each normed convolution kept its own result, and where its norm was cut."""
    seen = []
    original = deferred_conv.PendingConv.run_normed

    def recorded(self, norming, *, keeps, first):
        seen.append((keeps, first))
        return original(self, norming, keeps=keeps, first=first)

    monkeypatch.setattr(deferred_conv.PendingConv, "run_normed", recorded)
    return seen


def model_and_chunks(kind=Decoder, chunks=2):
    torch.manual_seed(0)
    model = kind().bfloat16().eval()
    return model, [torch.randn(1, CHANNELS, 4, 6, 16).bfloat16() for _ in range(chunks)]


def run_of(model, chunks):
    with torch.no_grad():
        return [model(chunk) for chunk in chunks]


def patched(model, rewrites=ALL_REWRITES):
    made = copy.deepcopy(model)
    patch_(made, rewrites=rewrites, accuracy=SMALL)
    return made


def rms(tensor):
    return tensor.double().pow(2).mean().sqrt().item()


def test_every_norm_of_a_block_goes_into_a_convolution(runs):
    model, chunks = model_and_chunks()
    exact = run_of(copy.deepcopy(model).double(), [chunk.double() for chunk in chunks])
    plain = run_of(copy.deepcopy(model), chunks)
    with backend("nkisim"):
        got = run_of(patched(model), chunks)
    # The first convolution's result is the residual; nobody else reads those of the block.
    assert runs == 2 * [(True, 2), (False, 2), (False, 0)]
    for ours, torchs, want in zip(got, plain, exact, strict=True):
        assert rms(ours.double() - want) <= 1.02 * rms(torchs.double() - want)


def test_norms_are_apart_where_that_is_asked_for_or_is_faster(runs, monkeypatch):
    model, chunks = model_and_chunks(chunks=1)
    with backend("nkisim"):
        run_of(patched(model, APART), chunks)
        monkeypatch.setattr(epilogues, "is_normed_faster", lambda *_: False)
        run_of(patched(model), chunks)
    assert runs == []


def test_on_the_meta_device_nothing_is_priced(runs, monkeypatch):
    def refuse(*_):
        raise AssertionError

    monkeypatch.setattr(epilogues, "is_normed_faster", refuse)
    model, chunks = model_and_chunks(chunks=1)
    run_of(patched(model).to("meta"), [chunk.to("meta") for chunk in chunks])
    assert runs == [(True, 2), (False, 2), (False, 0)]


class Watched(Decoder):
    """Somebody looks at what was normed, afterwards."""

    def forward(self, x):
        x = self.first(x)
        normed = functional.silu(self.norm(x))
        y = self.last(normed)
        return y + torch.atan(x).mean()


def test_what_somebody_reads_later_is_kept(runs):
    model, chunks = model_and_chunks(Watched, chunks=1)
    made = patched(model)
    with backend("nkisim"):
        (got,) = run_of(made, chunks)
    assert runs == [(True, 0)]
    exact = run_of(copy.deepcopy(model).double(), [chunks[0].double()])[0]
    plain = run_of(copy.deepcopy(model), chunks)[0]
    assert rms(got.double() - exact) <= 1.1 * rms(plain.double() - exact)


def test_gradients_and_reproducible_models_stay_as_they_are(runs):
    model, chunks = model_and_chunks(chunks=1)
    exactly = copy.deepcopy(model)
    patch_(exactly, accuracy=SMALL, reproducible=True)
    with backend("nkisim"):
        run_of(exactly, chunks)
    assert runs == []


class CutInTwo(nn.Module):
    """A convolution of parts that run as one, and a norm; a part is kept perhaps."""

    def __init__(self, *, keeps):
        super().__init__()
        self.conv = nn.Conv3d(CHANNELS, CHANNELS, (3, 3, 3), padding=(0, 1, 1))
        self.norm, self.keeps = LengthNorm(), keeps

    def forward(self, x):
        parts = [self.conv(x[:, :, :3]), self.conv(x[:, :, 1:])]
        normed = functional.silu(self.norm(torch.cat(parts, dim=2)))
        if not self.keeps:
            return normed
        return torch.cat([normed, parts[0]], dim=2)


@pytest.mark.parametrize("keeps", [False, True])
def test_parts_that_run_as_one_are_normed_and_kept_if_somebody_wants_them(keeps, runs):
    model, chunks = model_and_chunks(lambda: CutInTwo(keeps=keeps), chunks=1)
    [exact] = run_of(copy.deepcopy(model).double(), [chunk.double() for chunk in chunks])
    [plain] = run_of(copy.deepcopy(model), chunks)
    made = copy.deepcopy(model)
    report = patch_(made, accuracy=SMALL)
    with backend("nkisim"):
        [got] = run_of(made, chunks)
    assert runs == [(keeps, 0)]
    assert sum(report.stats.works.values()) == 1
    assert not report.stats.repeated
    assert rms(got.double() - exact) <= 1.02 * rms(plain.double() - exact)

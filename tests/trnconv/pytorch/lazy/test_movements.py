"""Whatever a model does before a convolution, the convolution gets what torch would give it."""

import itertools
import random
import threading
from functools import reduce

import pytest

from repetition import few

torch = pytest.importorskip("torch")

from torch import nn
from torch.nn import functional

from integer_networks import integers, small_decoder, with_integers
from lazy_moves import MOVES
from trnconv.errors import UnsupportedError
from trnconv.pytorch import Rewrites, patch_, patched
from trnconv.pytorch.lazy.tensors.context import ALL_REWRITES, NO_REWRITES

pytestmark = pytest.mark.torch

CHANNELS = 4
FOLDING = "trnconv.pytorch.lazy.fusion.convolution.folding_wins"
KINDS = {
    "3x3x3": {"kernel_size": 3, "padding": 1},
    "wide in time": {"kernel_size": 3, "padding": (2, 1, 1)},
    "images": {"kernel_size": (1, 3, 3), "padding": (0, 1, 1)},
    "frames": {"kernel_size": (2, 1, 1), "padding": (1, 0, 0)},
    "pointwise": {"kernel_size": 1},
    "pointwise, padded": {"kernel_size": 1, "padding": 1},
    "strided": {"kernel_size": (1, 2, 2), "stride": (1, 2, 2)},
    "strided in time": {"kernel_size": 2, "stride": (2, 1, 1), "padding": (1, 0, 0)},
    "dilated": {"kernel_size": (1, 3, 1), "dilation": (1, 2, 1), "padding": "same"},
    "grouped": {"kernel_size": (1, 3, 3), "groups": 2, "bias": False},
    "own replicate": {"kernel_size": 3, "padding": 1, "padding_mode": "replicate"},
    "own reflect": {"kernel_size": (1, 3, 3), "padding": (0, 1, 1), "padding_mode": "reflect"},
    "own circular": {"kernel_size": (1, 3, 3), "padding": (0, 1, 1), "padding_mode": "circular"},
}
UNPADDED = {"2 frames": {"kernel_size": (2, 1, 1)}, "causal": {"kernel_size": (3, 3, 3)}}


class Steps(nn.Module):
    """Moves and convolutions one after the other."""

    def __init__(self, *steps):
        super().__init__()
        self.steps = steps
        self.convolutions = nn.ModuleList(step for step in steps if isinstance(step, nn.Module))

    def forward(self, x):
        return reduce(lambda value, step: step(value), self.steps, x)


def network(*steps, seed=0):
    kinds = {**KINDS, **UNPADDED}
    made = [
        nn.Conv3d(CHANNELS, CHANNELS, **kinds[step]) if step in kinds else MOVES[step]
        for step in steps
    ]
    return with_integers(Steps(*made), seed).requires_grad_(requires_grad=False)


def clip(batch=1, frames=3, height=5, width=6, seed=3):
    return integers(batch, CHANNELS, frames, height, width, most=3, seed=seed)


def assert_the_same(model, x, **options):
    """Patched and unpatched: bits, sizes, type; and the input is not touched."""
    kept = x.clone()
    expected = model(x)
    with patched(model, **options) as report:
        ours = model(x)
    assert type(ours) is torch.Tensor
    assert ours.dtype == expected.dtype
    assert ours.shape == expected.shape
    assert torch.equal(ours, expected)
    assert torch.equal(x, kept)
    assert not report.stats.left_to_torch
    return report


@pytest.mark.parametrize("move", MOVES)
def test_a_movement_alone(move):
    x = torch.randn(2, CHANNELS, 3, 5, 6, generator=torch.Generator().manual_seed(1))
    assert_the_same(network(move), x)


@pytest.mark.parametrize("move", MOVES)
def test_a_movement_and_any_convolution(move):
    for kind in KINDS:
        assert_the_same(network(move, kind), clip(), backend="torch")


@few(16)
@pytest.mark.parametrize("move", MOVES)
def test_a_movement_and_a_convolution_in_the_simulator(move):
    assert_the_same(network(move, "3x3x3"), clip(), backend="nkisim")


@pytest.mark.parametrize("move", MOVES)
def test_several_videos(move):
    for kind in ("3x3x3", "images", "pointwise"):
        assert_the_same(network(move, kind), clip(batch=2), backend="torch")


@pytest.mark.parametrize("move", MOVES)
def test_a_movement_of_a_result(move):
    assert_the_same(network("wide in time", move, "pointwise"), clip(), backend="torch")


RUNS_OF_CHAINS = 150


def chain(seed):
    """Moves in any order, a convolution or two among them, and flags."""
    choose = random.Random(seed)  # noqa: S311 (reproducible, not secret)
    steps = choose.choices(list(MOVES), k=choose.randint(2, 4))
    steps.insert(choose.randint(1, len(steps)), choose.choice(list(KINDS)))
    steps.append(choose.choice(list(KINDS)))
    x = clip(*(choose.randint(1, 2), choose.randint(1, 5), choose.randint(4, 7), 5), seed=seed)
    flags = Rewrites(*(choose.random() < 0.8 for _ in range(4)))
    return network(*steps, seed=seed), x, flags


@pytest.mark.parametrize("seeds", [range(at, at + 10) for at in range(0, RUNS_OF_CHAINS, 10)])
def test_chains_of_movements(seeds):
    ran = 0
    for seed in seeds:
        model, x, flags = chain(seed)
        try:
            model(x)
        except RuntimeError:
            continue  # torch refuses: a kernel larger than the clip, a reflection of one row
        assert_the_same(model, x, rewrites=flags, backend="torch")
        ran += 1
    assert ran >= len(seeds) / 2


EVERY_REWRITES = [Rewrites(*flags) for flags in itertools.product([False, True], repeat=4)]


@pytest.mark.parametrize("rewrites", EVERY_REWRITES)
def test_every_rewrite_is_exact(rewrites):
    model, x = small_decoder()
    assert_the_same(model.requires_grad_(requires_grad=False), x, rewrites=rewrites)


# What a convolution takes over is not done besides


def only_work(*steps, **options):
    report = assert_the_same(network(*steps), clip(), **options)
    ((work, calls),) = report.stats.works.items()
    assert calls == 1
    return work, sum(copy.moved_bytes for copy in report.stats.copies)


@pytest.mark.parametrize(
    ("move", "before", "after", "modes"),
    [
        ("zeros around", (1, 2, 1), (1, 1, 0), ("zeros",) * 3),
        ("zeros twice", (2, 0, 1), (0, 1, 1), ("zeros",) * 3),
        ("replicate", (2, 1, 1), (0, 0, 1), ("replicate",) * 3),
        ("first frame again", (2, 0, 0), (0, 0, 0), ("replicate", "zeros", "zeros")),
        ("both ends again", (1, 0, 0), (1, 0, 0), ("replicate", "zeros", "zeros")),
        ("reflect", (0, 1, 1), (0, 1, 0), ("zeros", "reflect", "reflect")),
    ],
)
def test_padding_is_the_convolutions(move, before, after, modes):
    work, copied = only_work(move, "2 frames")
    assert (work.shape.pad_before, work.shape.pad_after, work.shape.modes) == (before, after, modes)
    assert copied == 0


def test_padding_adds_to_the_convolutions_own():
    work, copied = only_work("zeros of columns", "3x3x3")
    assert work.shape.pad_before == (1, 1, 2)
    assert work.shape.pad_after == (1, 1, 3)
    assert copied == 0


def test_images_of_a_video_are_not_permuted():
    report = assert_the_same(network("as images", "images"), clip(batch=2))
    assert not report.stats.copies


class Cached(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(CHANNELS, CHANNELS, 3, padding=(0, 1, 1))

    def forward(self, x, cache):
        return self.conv(torch.cat([cache, x], dim=2))


def test_a_cache_and_a_chunk_are_read_where_they_lie():
    model = with_integers(Cached()).requires_grad_(requires_grad=False)
    cache, x = clip(frames=2, seed=8), clip()
    expected = model(x, cache)
    with patched(model) as report:
        assert torch.equal(model(x, cache), expected)
    assert [work.pieces for work in report.stats.works] == [(2, 3)]
    assert not report.stats.copies


def test_a_pointwise_convolution_runs_before_upsampling():
    work, _ = only_work("all doubled", "pointwise")
    assert work.shape.size == (3, 5, 6)
    work, _ = only_work("all doubled", "pointwise", rewrites=Rewrites(before_upsample=False))
    assert work.shape.macs() == 8 * 3 * 5 * 6 * CHANNELS**2


def test_upsampling_is_folded_where_it_is_modelled_to_win(monkeypatch):
    monkeypatch.setattr(FOLDING, lambda _: True)
    work, copied = only_work("pixels doubled", "3x3x3")
    assert work.shape.upsample == (1, 2, 2)
    assert work.instead_of.size == (3, 10, 12)
    assert copied == 0
    monkeypatch.setattr(FOLDING, lambda _: False)
    work, copied = only_work("pixels doubled", "3x3x3")
    assert work.shape.upsample == (1, 1, 1)
    assert work.instead_of is None
    assert copied == 5 * clip().nbytes


def test_the_first_frame_once_is_a_skip(monkeypatch):
    monkeypatch.setattr(FOLDING, lambda _: True)
    report = assert_the_same(network("first frame apart", "first frame again", "causal"), clip())
    ((work, _),) = report.stats.works.items()
    assert (work.shape.upsample, work.shape.skip) == ((2, 2, 2), (1, 0, 0))
    assert work.shape.pad_before[0] == 2
    assert not report.stats.copies


class Ends(nn.Module):
    def __init__(self):
        super().__init__()
        self.small = nn.Conv3d(CHANNELS, CHANNELS, 1)
        self.large = nn.Conv3d(CHANNELS, CHANNELS, 3, padding=1)

    def forward(self, x):
        return nn.functional.relu(self.small(x) + self.large(x))


def test_a_residual_and_an_activation_are_the_end_of_the_larger_convolution():
    model = with_integers(Ends()).requires_grad_(requires_grad=False)
    ends = {work.module: work.epilogue for work in assert_the_same(model, clip()).stats.works}
    assert (ends["large"].activation, ends["large"].residual) == ("relu", "before")
    assert (ends["small"].activation, ends["small"].residual) == ("identity", "none")
    plain = assert_the_same(model, clip(), rewrites=Rewrites(fuse_epilogues=False)).stats.works
    assert {work.epilogue.activation for work in plain} == {"identity"}


class UsedTwice(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(CHANNELS, CHANNELS, 3, padding=1)

    def forward(self, x):
        y = self.conv(x)
        return nn.functional.relu(y) + y


def test_a_convolution_that_runs_twice_is_noted():
    model = with_integers(UsedTwice()).requires_grad_(requires_grad=False)
    assert dict(assert_the_same(model, clip()).stats.repeated) == {"conv": 1}
    assert not assert_the_same(model, clip(), rewrites=NO_REWRITES).stats.repeated


class NormedImages(nn.Module):
    """Frames of one video as images, through a layer that wants them in order."""

    def __init__(self, asks, channels):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, 4, 3, padding=1), nn.GroupNorm(2, 4)
        self.asks = asks

    def forward(self, video):
        images = self.conv(video.movedim(2, 1).flatten(0, 1))
        return self.norm(images.contiguous() if self.asks else images)


@pytest.mark.parametrize("asks", [True, False])
def test_what_layers_of_torch_put_in_order_is_not_the_models_movement(asks):
    """A kernel leaves such images as a video lies; to the model they are in order already."""
    model, video = NormedImages(asks, channels=4), torch.randn(1, 4, 5, 4, 6)
    _, report = copies_of(model, video)
    assert not report.copied()


def copies_of(model, *given):
    with torch.no_grad():
        expected = model(*given)
        report = patch_(model, backend="torch")
        assert torch.allclose(model(*given), expected, atol=1e-5)
    return expected, report


@pytest.mark.parametrize("asks", [True, False])
def test_images_wanted_in_order_are_made_of_images_in_order_where_that_is_less(asks):
    video = torch.randn(1, 2, 5, 4, 6)
    _, report = copies_of(NormedImages(asks, channels=2), video)
    assert report.copied() == {"contiguous": 2 * video.nbytes}


class ResidualOfImages(nn.Module):
    """A block of images, and what it is added to: a convolution of the frames it was made of."""

    def __init__(self, *, is_also_a_video):
        super().__init__()
        self.conv, self.shortcut = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(2, 4, 1)
        self.norm, self.is_also_a_video = nn.GroupNorm(1, 2), is_also_a_video

    def forward(self, video):
        images = video.movedim(2, 1).flatten(0, 1)
        added = self.shortcut(images)
        frames = added.unflatten(0, (1, -1)) if self.is_also_a_video else 0
        return self.conv(self.norm(images)) + added, frames


@pytest.mark.parametrize("is_also_a_video", [True, False])
def test_what_is_added_to_images_is_made_of_images_where_that_is_less(is_also_a_video):
    """Unless somebody has a view of the frames, which are put in order when they leave."""
    model, video = ResidualOfImages(is_also_a_video=is_also_a_video), torch.randn(1, 2, 5, 4, 6)
    with torch.no_grad():
        expected = model(video)[0]
        report = patch_(model, backend="torch")
        assert torch.allclose(model(video)[0], expected, atol=1e-5)
    twice = {"contiguous": 2 * expected.nbytes, "permute": 2 * expected.nbytes}
    once = {"contiguous": 2 * video.nbytes}
    assert report.copied() == (twice if is_also_a_video else once)
    assert not report.stats.repeated


class StackedImages(nn.Module):
    """Images whose channels and those of other images are one axis, and what is added there."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)

    def forward(self, x):
        n, c, t, h, w = x.shape
        images = x.transpose(1, 2).reshape(n * t, c, h, w)
        stacked = self.conv(images).reshape(n, t * c, h, w)
        summed = functional.relu(stacked) + images.reshape(n, t * c, h, w)
        once_more = self.conv(images).reshape(n, t * c, h, w) + summed
        return torch.cat([summed, once_more, functional.interpolate(stacked, scale_factor=1)])


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("frames", [1, 3])
def test_channels_of_several_images_are_one_axis(batch, frames):
    model = with_integers(StackedImages(), 1).requires_grad_(requires_grad=False)
    assert_the_same(model, clip(batch=batch, frames=frames), backend="torch")


class AddedToItself(nn.Module):
    """Images as a video, convolved along the frames and added to."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(4, 4, (3, 1, 1), padding=(1, 0, 0))

    def forward(self, images):
        video = images.unflatten(0, (1, -1)).transpose(1, 2)
        return self.conv(video) + video


def test_what_is_convolved_and_added_is_put_in_order_once():
    images = torch.randn(5, 4, 4, 6)
    _, report = copies_of(AddedToItself(), images)
    assert report.copied() == {"contiguous": 2 * images.nbytes}


def test_without_rewrites_every_copy_is_the_models_own():
    clips = clip()
    report = assert_the_same(network("zeros around", "3x3x3"), clips, rewrites=NO_REWRITES)
    padded = nn.functional.pad(clips, (1, 0, 2, 1, 1, 1))
    ((copy, times),) = report.stats.copies.items()
    assert (copy.kind, times) == ("pad", 1)
    assert copy.moved_bytes == clips.nbytes + padded.nbytes
    assert ALL_REWRITES != NO_REWRITES


def test_channels_that_do_not_fit_are_refused():
    model = network("3x3x3")
    with patched(model), pytest.raises(RuntimeError, match="channels"):
        model(integers(1, CHANNELS + 1, 3, 5, 6))


def test_a_kernel_larger_than_the_clip_is_refused():
    model = network("2 frames")
    with patched(model), pytest.raises((RuntimeError, ValueError), match="kernel"):
        model(clip(frames=1))


def test_a_frame_that_is_not_there_is_refused():
    class Beyond(nn.Module):
        def forward(self, x):
            return x[:, :, 3]

    model = Beyond()
    with patched(model), pytest.raises(IndexError):
        model(clip())


class Behind(nn.Module):
    """Changes what it has joined, by code that gets no tensor of the model's."""

    def __init__(self, change):
        super().__init__()
        self.register_buffer("frames", clip(seed=5))
        self.change = change

    def forward(self, x):
        joined = torch.cat([self.frames, x], dim=2)
        self.change(self.frames)
        return joined


def test_changes_by_code_without_lazy_tensors_are_seen():
    model, fresh = Behind(torch.Tensor.zero_), clip(seed=5)
    with patched(model):
        assert torch.equal(model(clip()), torch.cat([fresh, clip()], dim=2))
    assert not model.frames.any()


def test_changes_in_another_thread_are_refused_in_words():
    def in_a_thread(frames):
        worker = threading.Thread(target=frames.zero_)
        worker.start()
        worker.join()

    model = Behind(in_a_thread)
    with patched(model), pytest.raises(UnsupportedError, match=r"changed in place.*clone"):
        model(clip())

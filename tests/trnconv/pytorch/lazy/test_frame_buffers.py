"""Frames that a model writes into memory of its own are recorded; all else it does is torch's.

`tests/support/lazy_moves.py` has buffers before every convolution; `lazy_programs.py` random ones.
"""

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from integer_networks import integers, with_integers
from trnconv.pytorch import patched
from trnconv.pytorch.lazy import LazyTensor

pytestmark = pytest.mark.torch

CHANNELS = 4
SHAPE = (1, CHANNELS, 6, 5, 7)
ALLOCATED = {
    "empty": lambda x: torch.empty(x.shape),
    "zeros": lambda x: torch.zeros(*x.shape),
    "empty_like": torch.empty_like,
    "zeros_like": torch.zeros_like,
    "new_empty": lambda x: x.new_empty(x.shape),
    "new_zeros": lambda x: x.new_zeros(x.shape),
}
TORCHS = {
    "images": lambda x: torch.zeros(x.shape[1:]),
    "integers": lambda x: torch.zeros(x.shape, dtype=torch.int32),
    "nothing": lambda x: torch.zeros(*x.shape[:4], 0),
    "channels last": lambda x: torch.zeros_like(
        x.to(memory_format=torch.channels_last_3d), memory_format=torch.preserve_format
    ),
}


class Buffered(nn.Module):
    """Both halves of a clip, convolved, in memory of its own; then `after`."""

    def __init__(self, allocate, after=lambda out, _: out):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv3d(CHANNELS, CHANNELS, 3, padding=1) for _ in range(2)])
        self.allocate, self.after = allocate, after
        self.recorded = []

    def forward(self, x):
        out = self.allocate(x)
        self.recorded.append(type(out) is LazyTensor)
        out[:, :, :3] = self.convs[0](x[:, :, :3] + 1)
        out[:, :, 3:] = self.convs[1](x[:, :, 3:] + 1)
        return self.after(out, x)


def run(model, backend="torch"):
    """Ours and torch's, the same bits."""
    with_integers(model, seed=1).requires_grad_(requires_grad=False)
    x = integers(*SHAPE, most=3, seed=2)
    expected = model(x)
    model.recorded.clear()
    with torch.no_grad(), patched(model, backend=backend) as report:
        ours = model(x)
    assert type(ours) is torch.Tensor
    assert torch.equal(ours, expected)
    return report


@pytest.mark.parametrize("name", ALLOCATED)
def test_two_halves_are_read_where_they_lie(name):
    model = Buffered(ALLOCATED[name], lambda out, x: out + x)
    report = run(model)
    assert model.recorded == [True]
    assert report.copied() == {"cat": 2 * 4 * torch.Size(SHAPE).numel()}  # for the sum


def through(conv):
    return Buffered(torch.empty_like, lambda out, _: conv(out))


def test_a_convolution_reads_both():
    report = run(through(with_integers(nn.Conv3d(CHANNELS, CHANNELS, (2, 1, 1)), 3)))
    assert len(report.stats.works) >= 2
    assert "cat" not in report.copied()


@pytest.mark.parametrize("name", TORCHS)
def test_what_holds_no_frames_is_torchs(name):
    class Allocates(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.recorded = nn.Conv3d(CHANNELS, CHANNELS, 1), []

        def forward(self, x):
            self.recorded.append(type(TORCHS[name](x)) is LazyTensor)
            return self.conv(x)

    model = Allocates()
    run(model)
    assert model.recorded == [False]


def looked_at(out, x):
    return out.flatten(2).softmax(2).round() + x.flatten(2)


def changed_again(out, x):
    out[:, :, 2:4] = x[:, :, :2]
    return out * 1


def changed_by_a_number(out, x):
    out[:, :, :1] = 2
    return out * 1


def rows_changed(out, x):
    out[:, :, :, 1:3] = x[:, :, :, :2]
    return out * 1


def a_view_from_before(out, x):
    view = out[:, :, 1:5]
    out[:, :, 2] = x[:, :, 0]
    return view.mul(2)


def resized(out, x):
    return out.permute(0, 2, 1, 3, 4).reshape(-1, *out.shape[3:]).sum(0)


AFTER = [looked_at, changed_again, changed_by_a_number, rows_changed, a_view_from_before, resized]


@pytest.mark.parametrize("after", AFTER, ids=lambda after: after.__name__)
@pytest.mark.parametrize("name", ["empty", "new_zeros"])
def test_whatever_comes_next(name, after):
    run(Buffered(ALLOCATED[name], after))


class Partly(nn.Module):
    """Some frames stay zeros; a source is changed after it was written; one is of another type."""

    def __init__(self):
        super().__init__()
        self.conv, self.recorded = nn.Conv3d(CHANNELS, CHANNELS, 3, padding=1), []

    def forward(self, x):
        out = torch.zeros(x.shape)
        source = x[:, :, :2] * 2
        out[:, :, :2] = source
        source.add_(1)
        before = out.clone()
        out[:, :, 3:4] = (x[:, :, :1] * 3).double()
        out[:, :, 5] = x[:, :, 5]
        return self.conv(torch.cat([out, before, source], dim=2))


@pytest.mark.parametrize("backend", ["torch", "nkisim"])
def test_what_is_not_written_is_zeros(backend):
    run(Partly(), backend)


class NegativelyMany(Partly):
    """An error of torch's."""

    def forward(self, x):
        return self.conv(x + torch.zeros(1, CHANNELS, -1, 2, 2))


def test_sizes_are_torchs_to_refuse():
    model = NegativelyMany()
    with pytest.raises(RuntimeError) as torchs:
        model(torch.zeros(SHAPE))
    with patched(model), pytest.raises(RuntimeError) as ours:
        model(torch.zeros(SHAPE))
    assert str(ours.value) == str(torchs.value)


class KeepsBuffer(nn.Module):
    """A buffer of a few frames of many."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(CHANNELS, CHANNELS, 3, padding=1)
        self.recorded, self.kept = [], None

    def forward(self, x):
        y = self.conv(x)
        kept = torch.empty(y[:, :, :2].shape)
        kept[...] = y[:, :, -2:]
        self.kept = kept
        return y


def test_a_buffer_of_a_few_frames_does_not_keep_the_others():
    model = KeepsBuffer()
    run(model)
    assert model.kept.untyped_storage().nbytes() == model.kept.nbytes

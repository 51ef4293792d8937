"""Shortcuts past an upsampling, read at their own resolution by the convolution they are added to.

Integers in float32: every sum is exact, so results are equal whatever the order.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.nn import functional

from trnconv.problem.coarse_residual import CoarseResidual
from trnconv.pytorch import patch_

pytestmark = [pytest.mark.torch, pytest.mark.block]


def in_cells(x, out, frames, leave_out=0):
    """Channels repeated and moved into 2 x 2 positions, and into frames."""
    repeats = out * frames * 4 // x.shape[1]
    n, _, t, h, w = x.shape
    x = x.repeat_interleave(repeats, dim=1).view(n, out, frames, 2, 2, t, h, w)
    x = x.permute(0, 1, 5, 2, 6, 3, 7, 4).contiguous()
    return x.view(n, out, t * frames, 2 * h, 2 * w)[:, :, leave_out:]


class UpBlock(nn.Module):
    """A convolution, frames doubled by channels, rows and columns upsampled, and a shortcut."""

    def __init__(self, c_in=128, c_out=128, frames=1, leave_out=0):
        super().__init__()
        self.c_out, self.frames, self.leave_out = c_out, frames, leave_out
        self.first = nn.Conv3d(c_in, c_out * frames, 1)
        self.resample = nn.Conv2d(c_out, c_out, 3, padding=1)

    def forward(self, x):
        kept = x.clone()
        x = self.first(x)
        n, _, t, h, w = x.shape
        x = x.view(n, self.frames, self.c_out, t, h, w).permute(0, 2, 3, 1, 4, 5)
        x = x.reshape(n, self.c_out, t * self.frames, h, w)[:, :, self.leave_out :]
        t = x.shape[2]
        x = x.permute(0, 2, 1, 3, 4).reshape(n * t, self.c_out, h, w)
        x = self.resample(functional.interpolate(x, scale_factor=2.0, mode="nearest-exact"))
        x = x.view(n, t, self.c_out, 2 * h, 2 * w).permute(0, 2, 1, 3, 4)
        return self.sum(x, kept)

    def sum(self, x, kept):
        return x + in_cells(kept, self.c_out, self.frames, self.leave_out)


class LookedAt(UpBlock):
    """Somebody else reads the shortcut as well."""

    def sum(self, x, kept):
        short = in_cells(kept, self.c_out, self.frames, self.leave_out)
        return x + short, short.amax(dim=1)


class ChangedAfterwards(UpBlock):
    """The source of the shortcut is changed before the sum is looked at."""

    def sum(self, x, kept):
        y = x + in_cells(kept, self.c_out, self.frames, self.leave_out)
        kept.add_(1)
        return y, kept


class OtherOrder(UpBlock):
    """Positions of a cell in another order: no shuffle that a kernel knows."""

    def sum(self, x, kept):
        n, c, t, h, w = kept.shape
        cells = kept.repeat_interleave(4, dim=1).view(n, c, 1, 2, 2, t, h, w)
        cells = cells.permute(0, 1, 5, 2, 6, 4, 7, 3).contiguous()
        return x + cells.view(n, c, t, 2 * h, 2 * w)


def with_integers(model):
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randint(-2, 3, parameter.shape, generator=generator))
    return model.eval()


def video(channels, frames=2, size=(16, 24)):
    generator = torch.Generator().manual_seed(5)
    return torch.randint(-2, 3, (1, channels, frames, *size), generator=generator).float()


def patched(model, x):
    """What a model gives before and after it is patched, and the ends of its convolutions."""
    with torch.no_grad():
        expected = model(x.clone())
        report = patch_(model, backend="nkisim")
        y = model(x.clone())
    ends = [ran.work.epilogue.coarse for ran in report.ran()]
    return expected, y, {end for end in ends if end is not None}, report.copied()


CASES = {
    "every channel": ((128, 128, 1), CoarseResidual(1, 2, 2, 4)),
    "rows of two channels": ((256, 128, 1), CoarseResidual(1, 2, 2, 2)),
    "frames too": ((128, 128, 2), CoarseResidual(2, 2, 2, 8)),
    "frames of two channels": ((256, 128, 2), CoarseResidual(2, 2, 2, 4)),
    "without the first frame": ((128, 128, 2, 1), CoarseResidual(2, 2, 2, 8, skipped=1)),
}


@pytest.mark.parametrize(("sizes", "coarse"), CASES.values(), ids=list(CASES))
def test_the_convolution_reads_the_shortcut_as_it_lies(sizes, coarse):
    expected, found, ends, copied = patched(with_integers(UpBlock(*sizes)), video(sizes[0]))
    assert torch.equal(found, expected)
    assert ends == {coarse}
    assert not copied["repeat"]


@pytest.mark.parametrize("kind", [LookedAt, ChangedAfterwards])
def test_who_else_reads_or_changes_it_sees_what_torch_shows(kind):
    expected, found, _, _ = patched(with_integers(kind()), video(128))
    for own, theirs in zip(found, expected, strict=True):
        assert torch.equal(own, theirs)


@pytest.mark.parametrize(
    "model", [OtherOrder(), UpBlock(64, 128), UpBlock(8, 8, 2)], ids=["order", "channels", "few"]
)
def test_what_no_kernel_reads_is_copied_and_right(model):
    """Cells in another order; columns of different channels; too few channels for phases."""
    expected, found, ends, copied = patched(with_integers(model), video(model.first.in_channels))
    assert torch.equal(found, expected)
    assert not ends
    assert copied["repeat"] or copied["contiguous"]


def test_the_torch_backend_has_copies_as_before():
    model, x = with_integers(UpBlock()), video(128)
    with torch.no_grad():
        expected = model(x)
        patch_(model, backend="torch")
        assert torch.equal(model(x), expected)

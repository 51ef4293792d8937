"""Channels that are repeated, or moved into frames, rows and columns: recorded, made when read.

A shortcut past an upsampling repeats its channels and gives each position of a cell one of them.
Recorded, it is a `CoarseResidual` for the convolution it is added to, and no copy is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch

from trnconv.problem.coarse_residual import CoarseResidual
from trnconv.pytorch.backends.aten import in_cells
from trnconv.pytorch.lazy.base.bypass import passing
from trnconv.pytorch.lazy.base.deferred_result import Pending
from trnconv.pytorch.lazy.base.memory import Counted, storage_of
from trnconv.pytorch.lazy.base.pending_reads import unseen
from trnconv.pytorch.lazy.base.stats import PatchStats
from trnconv.pytorch.lazy.frames.materialize import stored
from trnconv.pytorch.lazy.frames.stored_frames import StoredFrames
from trnconv.pytorch.lazy.frames.video import AxisOrder, FrameRun, LazyVideo
from trnconv.pytorch.lazy.tensors.cell import LazyCell, ViewOf, as_memory
from trnconv.pytorch.lazy.tensors.context import PatchContext
from trnconv.pytorch.lazy.tensors.tensor import LazyTensor

Tensor = torch.Tensor
_CELL_AXES = (3, 5, 7)  # of [N, C, T, frames of a cell, H, its rows, W, its columns]


@dataclass(frozen=True)
class CoarseSource:
    """A tensor [N, C, T, H, W] that others are made of, and what must not change meanwhile."""

    tensor: Tensor
    counted: tuple[Counted, ...]


class PendingCells(Pending):
    """A tensor whose elements each stand for a cell of positions."""

    def __init__(self, source: CoarseSource, coarse: CoarseResidual, stats: PatchStats) -> None:
        self._stats = stats
        self.source: CoarseSource | None = source  # None: it has run
        self.coarse = coarse
        tensor = source.tensor
        sizes = torch.Size(coarse.spread(tuple(tensor.shape)))
        super().__init__(sizes, tensor.dtype, tensor.device)

    def operand_storages(self) -> frozenset[int]:
        """Of the tensor it is made of."""
        return frozenset() if self.source is None else frozenset([storage_of(self.source.tensor)])

    def run(self) -> Tensor:
        """By torch's operators, as the model would."""
        assert self.source is not None
        for counted in self.source.counted:
            counted.require_unchanged()
        with passing():
            made = in_cells(self.source.tensor, self.coarse)
        self._stats.moved("repeat", self.source.tensor.nbytes + made.nbytes)
        self.source = None
        return made


def with_repeated_channels(
    context: PatchContext, video: LazyVideo, count: int, seen: torch.Size
) -> LazyTensor | None:
    """Channels, each so often in a row; `seen` is the shape the model sees. None: torch does it."""
    wanted = context.rewrites.fuse_epilogues and context.rewrites.coarse_residuals
    is_of_use = wanted and context.spread is None
    if not is_of_use or not video.as_it_lies or video.layout is not AxisOrder.video:
        return None
    run = video.runs[0]
    with passing():
        frames = stored(run)
    counted = (run.base.counted,) if isinstance(run.base, StoredFrames) else ()
    coarse = CoarseResidual(1, 1, 1, repeats=count)
    source = CoarseSource(frames, counted)
    return _recorded(context, PendingCells(source, coarse, context.stats), seen)


def moved_into_cells(context: PatchContext, x: Tensor) -> LazyTensor | None:
    """Repeated channels, moved into positions; None if x is not that."""
    repeated = _repeated(x)
    if repeated is None or x.dim() != 1 + _CELL_AXES[-1]:
        return None
    assert isinstance(x, LazyTensor)
    assert repeated.source is not None
    frames, rows, columns = (x.shape[at] for at in _CELL_AXES)
    coarse = CoarseResidual(frames, rows, columns, repeats=repeated.coarse.repeats)
    whole = x.view_of.cell.meta
    _, channel, image, row, column = whole.stride()
    strides = (
        whole.stride(0),
        coarse.cell() * channel,
        image,
        rows * columns * channel,
        row,
        columns * channel,
        column,
        channel,
    )
    pairs = zip(x.stride(), strides, x.shape, strict=True)
    as_expected = all(step == needed or size == 1 for step, needed, size in pairs)
    if not as_expected or prod(x.shape) != whole.numel() or x.storage_offset():
        return None
    return _recorded(context, PendingCells(repeated.source, coarse, context.stats), x.shape)


def cells_of(video: LazyVideo | None) -> tuple[CoarseSource, CoarseResidual] | None:
    """What a video is made of whose last frames are cells that are not made; None if it is not."""
    if video is None or not video.as_it_lies or video.layout is not AxisOrder.video:
        return None
    run = video.runs[0]
    base = run.base
    if not isinstance(base, PendingCells) or base.source is None or run.stop < base.shape[2]:
        return None
    frames, rows, columns = base.coarse.factors()
    coarse = CoarseResidual(frames, rows, columns, base.coarse.repeats, skipped=run.start)
    return (base.source, coarse) if run.start < frames else None


def _repeated(x: Tensor) -> PendingCells | None:
    """What all of x is, if that is repeated channels that are not made."""
    video = x.view_of.cell.video if isinstance(x, LazyTensor) else None
    if video is None or not video.untouched or video.layout is not AxisOrder.video:
        return None
    base = video.runs[0].base
    is_noted = isinstance(base, PendingCells) and base.source is not None
    return base if is_noted and base.coarse.cell() == 1 else None


def _recorded(context: PatchContext, pending: PendingCells, seen: torch.Size) -> LazyTensor:
    video = LazyVideo((FrameRun(pending, 0, pending.shape[2]),), pending.dtype)
    memory = as_memory(video)
    with unseen():
        meta = memory.view(seen)
    return LazyTensor(ViewOf(LazyCell(memory, video, context), meta), pending.device)

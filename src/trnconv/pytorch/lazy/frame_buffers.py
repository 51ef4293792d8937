"""Memory that a model allocates, and fills with frames piece by piece: recorded, not filled.

    out = torch.empty(...)
    out[:, :, :2] = convolved(...)
    out[:, :, 2:] = convolved(...)

is a record of those frames one after the other, as a concatenation is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from trnconv.pytorch.lazy.base.pending_reads import unseen
from trnconv.pytorch.lazy.frames.video import NO_PADS, AxisOrder, FrameRun, LazyVideo, spliced
from trnconv.pytorch.lazy.fusion.joined_convolutions import joined
from trnconv.pytorch.lazy.tensors.cell import LazyCell, ViewOf
from trnconv.pytorch.lazy.tensors.context import PatchContext, Recorder
from trnconv.pytorch.lazy.tensors.tensor import LazyTensor, meta_of
from trnconv.pytorch.lazy.tensors.videos import video_of

Tensor = torch.Tensor
_DIMENSIONS = 5
_LIKE = ("empty_like", "zeros_like", "new_empty", "new_zeros")  # their first argument is a tensor


@dataclass(frozen=True, eq=False)
class UnwrittenFrames:
    """[N, C, T, H, W] that nobody has written: made anew for everybody who looks at some."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    zeros: bool

    def lies_in(self) -> frozenset[int]:
        """No storage: there is none yet."""
        return frozenset()

    def is_ours(self) -> bool:
        """Nobody else can change what is not there."""
        return True

    def tensor(self, start: int, stop: int) -> Tensor:
        """Some of the frames."""
        n, c, _, h, w = self.shape
        sizes = (n, c, stop - start, h, w)
        make = torch.zeros if self.zeros else torch.empty
        return make(sizes, dtype=self.dtype, device=self.device)


def _allocated(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
    """Memory for frames in order; anything else is torch's."""
    if context.spread is not None or kwargs.get("pin_memory"):
        return NotImplemented
    name = func._schema.name.removeprefix("aten::")  # noqa: SLF001 (torch's only name for it)
    like = args[0] if name in _LIKE else None
    with unseen():
        on_meta = {**kwargs, "device": "meta"}
        operands = args if like is None else (meta_of(like), *args[1:])
        meta = func(*operands, **on_meta)
        default = torch.empty(0).device if like is None else like.device
    if meta.dim() != _DIMENSIONS or not meta.is_floating_point() or not meta.numel():
        return NotImplemented
    if meta.layout is not torch.strided or not meta.is_contiguous():
        return NotImplemented
    device = default if kwargs.get("device") is None else torch.device(kwargs["device"])
    frames = UnwrittenFrames(meta.shape, meta.dtype, device, zeros="zeros" in name)
    video = LazyVideo((FrameRun(frames, 0, meta.shape[2]),), meta.dtype)
    return LazyTensor(ViewOf(LazyCell(meta, video, context), meta), device)


def _written(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
    """Frames put where none were written before; other writes are torch's."""
    del func, kwargs
    target, source = args[:2]
    if context.spread is not None or not isinstance(target, LazyTensor):
        return NotImplemented
    cell = target.view_of.cell
    place = cell.frames_in(target.view_of.meta)
    if cell.video is None or place is None or not _is_unwritten(cell.video.frames(*place)):
        return NotImplemented
    video = _whole_of(source, target)
    if video is None:
        return NotImplemented
    last = cell.video.sizes[2]
    parts = [cell.video.frames(0, place[0]), video, cell.video.frames(place[1], last)]
    known = [part for part in parts if part is not None]
    filled = spliced(known) if len(known) == len(parts) else None
    if filled is None:
        return NotImplemented
    cell.made_of(joined(filled, context))
    return target


def _is_unwritten(video: LazyVideo | None) -> bool:
    return video is not None and all(isinstance(run.base, UnwrittenFrames) for run in video.runs)


def _whole_of(source: Any, target: Tensor) -> LazyVideo | None:
    """The frames of a source that is all of something, as the target has them; else None.

    Of a part, all of it would be kept in memory.
    """
    same_shape = isinstance(source, Tensor) and source.shape == target.shape
    if not same_shape or (source.dtype, source.device) != (target.dtype, target.device):
        return None
    video, frames = video_of(source), target.video() if isinstance(target, LazyTensor) else None
    if video is None or frames is None or video.pads != NO_PADS or video.sizes != frames.sizes:
        return None
    if (
        isinstance(source, LazyTensor)
        and source.dim() == _DIMENSIONS
        and video.layout != frames.layout
    ):
        return None
    if video.keeps_others:
        return None
    return replace(video, layout=AxisOrder.video, from_images=False)


RECORDED_BUFFERS: dict[str, Recorder] = {
    **{f"aten::{name}": _allocated for name in ("empty.memory_format", "zeros", *_LIKE)},
    "aten::copy_": _written,
}

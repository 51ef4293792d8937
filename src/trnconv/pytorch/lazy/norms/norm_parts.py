"""Parts of norms: which of them a tensor shows, and how an operator becomes the next."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from trnconv.pytorch.backends.kernel_place import runs_kernels
from trnconv.pytorch.lazy.base.pending_reads import unseen
from trnconv.pytorch.lazy.frames.video import NO_PADS, AxisOrder, FrameRun, LazyVideo
from trnconv.pytorch.lazy.norms.deferred_norm import DeferredNorm, NormPart
from trnconv.pytorch.lazy.norms.pending_norm import PendingNorm
from trnconv.pytorch.lazy.tensors.cell import LazyCell, ViewOf, as_memory
from trnconv.pytorch.lazy.tensors.context import PatchContext
from trnconv.pytorch.lazy.tensors.operator_call import Operator
from trnconv.pytorch.lazy.tensors.tensor import LazyTensor
from trnconv.pytorch.lazy.tensors.videos import as_video, video_of

Tensor = torch.Tensor
CHANNELS, LAST = 1, 4  # the axis of channels, where they are or may be moved to
TYPES = (torch.bfloat16, torch.float16, torch.float32)
TO_CHANNELS_LAST, _FROM_CHANNELS_LAST = (0, 2, 3, 4, 1), (0, 4, 1, 2, 3)


def recorded(
    part: NormPart, norm: DeferredNorm, dtype: torch.dtype, operator: Operator
) -> LazyTensor:
    """The result of an operator, that was not called."""
    n, c, t, h, w = norm.source.sizes
    per_channel = part in (NormPart.squares, NormPart.scaled, NormPart.whole)
    sizes = torch.Size((n, c if per_channel else 1, t, h, w))
    last = norm.axis != CHANNELS
    layout = AxisOrder.video if last else norm.source.layout
    run = operator.later()

    def by_torch() -> Tensor:
        seen = run()
        return as_video(seen.permute(_FROM_CHANNELS_LAST) if last else seen, layout, sizes)

    pending = PendingNorm(part, norm, (sizes, dtype), by_torch, operator.counted())
    video = LazyVideo(
        (FrameRun(pending, 0, t),), dtype, layout, from_images=norm.source.from_images
    )
    memory = as_memory(video)
    with unseen():
        meta = memory.permute(TO_CHANNELS_LAST) if last else memory
    cell = LazyCell(memory, video, norm.context, owns=True)
    return LazyTensor(ViewOf(cell, meta), video.device)


def frames_along(x: Any, axis: int) -> LazyVideo | None:
    """x as frames with channels along an axis; None if it shows none."""
    if not isinstance(x, Tensor) or x.dim() not in (4, 5):
        return None
    if axis == CHANNELS:
        video = video_of(x)
        unknown = (AxisOrder.frames_first, AxisOrder.stacked)
        return None if video is None or video.layout in unknown else video
    if x.dim() != 5 or axis != LAST:
        return None
    if not isinstance(x, LazyTensor):
        with unseen():
            first = x.permute(_FROM_CHANNELS_LAST)
        return LazyVideo.of(first)
    with unseen():
        meta = x.view_of.meta.permute(_FROM_CHANNELS_LAST)
    video = x.view_of.of(meta).video()
    return video if video is not None and video.layout is AxisOrder.video else None


def lies_in_order(x: Tensor, axis: int) -> bool:
    """Whether a tensor's channels, if they are along this axis, lie as those of videos do.

    A norm over them is no movement then; and what is not known to be channels is taken for them
    only so. Of a lazy tensor it is known which they are. Images may lie as frames of one video do.
    """
    if isinstance(x, LazyTensor):
        return True
    with unseen():
        first = x.permute(_FROM_CHANNELS_LAST) if axis == LAST and x.dim() == 5 else x
        return first.is_contiguous() or (x.dim() == 4 and x.transpose(0, 1).is_contiguous())


def source_of(x: Any, axis: int, context: PatchContext) -> LazyVideo | None:
    """The frames that a norm of x is about, in the type they have; None if there are none."""
    video = _known_to_kernels(x, axis, context)
    return video if video is not None and _is_of_plain_frames(video) else None


def source_in_memory(x: Any, axis: int, context: PatchContext) -> LazyVideo | None:
    """The same, but frames that are recorded as repeated, upsampled or padded are made first."""
    video = _known_to_kernels(x, axis, context)
    if video is None or _is_of_plain_frames(video):
        return video
    return source_of(x.elements(), axis, context) if isinstance(x, LazyTensor) else None


def _known_to_kernels(x: Any, axis: int, context: PatchContext) -> LazyVideo | None:
    if not context.rewrites.fuse_norms or context.reproducible:
        return None
    video = frames_along(x, axis)
    if video is None or not all(video.sizes):
        return None
    stored = video.runs[0].base.dtype
    known = stored in TYPES and runs_kernels(video, context.backend)
    return replace(video, dtype=stored) if known else None


def _is_of_plain_frames(video: LazyVideo) -> bool:
    return video.pads == NO_PADS and all(run.plain for run in video.runs)


@dataclass(frozen=True)
class RecognizedPart:
    """A part of a norm that has not run, with channels along the axis where the model looks."""

    norm: DeferredNorm
    dtype: torch.dtype


def part_of(x: Any, *parts: NormPart) -> RecognizedPart | None:
    """The part of a norm that x shows all of, or stands for along channels."""
    if not isinstance(x, LazyTensor) or x.view_of.cell.video is None:
        return None
    base = x.view_of.cell.video.runs[0].base
    if not isinstance(base, PendingNorm) or base.norm is None or base.part not in parts:
        return None
    for axis in (base.norm.axis, *{CHANNELS, LAST} - {base.norm.axis}):
        if _shows(x, axis, base, base.norm.source.layout):
            return RecognizedPart(replace(base.norm, axis=axis), base.dtype)
    return None


def _shows(x: LazyTensor, axis: int, base: PendingNorm, layout: AxisOrder) -> bool:
    """Whether x is all of a base with channels along an axis, or one of them stands for all."""
    meta = x.view_of.meta
    if meta.dim() <= axis or (axis == LAST and layout is not AxisOrder.video):
        return False
    with unseen():
        if meta.stride(axis) == 0:
            meta = meta.narrow(axis, 0, 1)
        if axis == LAST:
            meta = meta.permute(_FROM_CHANNELS_LAST)
    video = x.view_of.of(meta).video()
    if video is None or not video.untouched or video.runs[0].base is not base:
        return False
    return video.layout is layout


def is_source(x: Any, norm: DeferredNorm) -> bool:
    """Whether x is what the norm is about, in any type that loses nothing."""
    video = frames_along(x, norm.axis)
    if video is None or video.pads != NO_PADS:
        return False
    return (video.runs, video.layout) == (norm.source.runs, norm.source.layout)


def is_per_channel(value: Any, norm: DeferredNorm, rank: int) -> bool:
    """Whether a tensor has a number for each channel, and for nothing else."""
    if not isinstance(value, Tensor) or isinstance(value, LazyTensor) or value.dim() > rank:
        return False
    sizes = (1,) * (rank - value.dim()) + tuple(value.shape)
    channels = norm.source.sizes[1]
    return all(size == (channels if at == norm.axis else 1) for at, size in enumerate(sizes))


def rank_of(norm: DeferredNorm) -> int:
    """Dimensions of the tensors of the model."""
    return 4 if norm.source.layout is AxisOrder.images else 5

"""Operators of ATen that move data, recorded as videos. NotImplemented: this time torch does it.

`RECORDED` is the table that the mode looks operators up in, by name: those of this file, of
`frame_buffers.py`, `fusion/epilogues.py`, `norms/recognition.py` and `attention/masks.py`. A
recorder gets the context, the operator and its arguments, and returns what torch would, lazily.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import torch

from trnconv.pytorch.lazy.attention.masks import RECORDED_MASKS
from trnconv.pytorch.lazy.base.bypass import passing
from trnconv.pytorch.lazy.base.memory import same_memory
from trnconv.pytorch.lazy.base.pending_reads import unseen
from trnconv.pytorch.lazy.base.traits import tensors_in
from trnconv.pytorch.lazy.convolutions.deferred_conv import PendingConv
from trnconv.pytorch.lazy.frame_buffers import RECORDED_BUFFERS
from trnconv.pytorch.lazy.frames.materialize import stored
from trnconv.pytorch.lazy.frames.video import AxisOrder, FrameRun, LazyVideo, spliced
from trnconv.pytorch.lazy.fusion.channel_cells import moved_into_cells, with_repeated_channels
from trnconv.pytorch.lazy.fusion.convolution import run_of
from trnconv.pytorch.lazy.fusion.epilogues import RECORDED_EPILOGUES
from trnconv.pytorch.lazy.fusion.joined_convolutions import joined
from trnconv.pytorch.lazy.norms.pending_norm import PendingNorm
from trnconv.pytorch.lazy.norms.recognition import RECORDED_NORMS
from trnconv.pytorch.lazy.tensors.as_images import put_in_order
from trnconv.pytorch.lazy.tensors.cell import LazyCell, ViewOf, as_memory
from trnconv.pytorch.lazy.tensors.context import PatchContext, Recorder
from trnconv.pytorch.lazy.tensors.tensor import LazyTensor, meta_of
from trnconv.pytorch.lazy.tensors.videos import video_of

Tensor = torch.Tensor
_FRAMES = 2
_AXES = {3: _FRAMES, 4: 3, 5: 4}  # a repeated axis stands behind the one it repeats
_TORCH = Path(torch.__file__).parent
_LAYERS = str(_TORCH / "nn")
_BETWEEN = (  # an operator's caller and its handler
    str(Path(__file__).parents[1]),
    *(str(_TORCH / name) for name in ("_dynamo", "_compile.py", "_ops.py", "_tensor.py", "utils")),
)
_OUTER_AXES = 2  # videos and channels, before those that are padded or upsampled
_NEAREST = ("upsample_nearest", "_upsample_nearest_exact")
_NARROWEST = 2  # bytes: of what a model computes in; smaller types are for storage


def _copied(video: LazyVideo | None, context: PatchContext, meta: Tensor | None = None) -> Any:
    """A lazy tensor in memory of its own; laid out densely, if it is not said how."""
    if video is None:
        return NotImplemented
    memory = as_memory(video) if meta is None else meta
    return LazyTensor(ViewOf(LazyCell(memory, video, context), memory), video.device)


def _or_torch(recorded: LazyTensor | None) -> Any:
    return NotImplemented if recorded is None else recorded


def _cat(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
    """Frames one after the other; or one video alone, along any axis."""
    del func
    tensors = args[0] if args else kwargs["tensors"]
    dim = args[1] if len(args) > 1 else kwargs.get("dim", 0)
    along_frames = dim in (_FRAMES, _FRAMES - 5) or len(tensors) == 1
    if not along_frames or any(tensor.dim() != 5 for tensor in tensors):
        return NotImplemented
    videos = [video_of(tensor) for tensor in tensors]
    known = [video for video in videos if video is not None]
    together = spliced(known) if len(known) == len(videos) else None
    return NotImplemented if together is None else _copied(joined(together, context), context)


def _of_rank(rank: int, record: Recorder) -> Recorder:
    """A recorder for so many axes: torch refuses what has others, and says so itself."""

    def if_of_rank(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
        if args[0].dim() != rank + _OUTER_AXES:
            return NotImplemented
        return record(context, func, args, kwargs)

    return if_of_rank


def _pad_with(mode: str) -> Recorder:
    def record(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
        x, pads = args[:2]
        if mode != "constant" and x.dim() != len(pads) // 2 + _OUTER_AXES:
            return NotImplemented
        value = args[2] if len(args) > 2 else kwargs.get("value", 0)
        video = video_of(x)
        padded = None if video is None else video.padded(pads, mode, value)
        if padded is not None and mode == "reflect":
            with unseen():
                func(meta_of(x), pads)  # torch refuses more than there is
        return _copied(padded, context)

    return record


def _upsample(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
    """Nearest-neighbour upsampling to a size, and by what scales torch says that size came about.

    Which position is nearest follows from the scales, if there are any: a scale of 1.05 leaves two
    positions two, and reads the first one twice.
    """
    del func, kwargs
    x, size, *scales = args
    if x.dim() != len(size) + _OUTER_AXES:
        return NotImplemented
    factors = [n / now for n, now in zip(size, x.shape[2:], strict=True)]
    stated = [scale for scale in scales if scale is not None]
    if stated and stated != factors:
        return NotImplemented
    return _upsampled(context, x, factors)


def _upsample_by_factors(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
    """The same to a size or by factors, and never both."""
    del func, kwargs
    x, size, factors = (*args, None)[:3]
    if size is not None:
        return NotImplemented if factors is not None else _upsample(context, None, (x, size), {})
    return NotImplemented if factors is None else _upsampled(context, x, factors)


def _upsampled(context: PatchContext, x: Tensor, factors: Sequence[float]) -> Any:
    video = video_of(x)
    if video is None or video.layout is AxisOrder.frames_first:
        return NotImplemented
    if x.dim() != len(factors) + _OUTER_AXES:
        return NotImplemented
    if any(factor < 1 or factor != int(factor) for factor in factors):
        return NotImplemented
    whole = [1] * (3 - len(factors)) + [int(factor) for factor in factors]
    return _copied(video.upsampled((whole[0], whole[1], whole[2])), context)


def _repeat(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
    """Frames so many times one after the other."""
    del func, kwargs
    x, counts = args
    video = video_of(x)
    if video is None or video.layout is not AxisOrder.video or len(counts) != 5:
        return NotImplemented
    if any(count != 1 for at, count in enumerate(counts) if at != _FRAMES):
        return NotImplemented
    return _copied(video.times(counts[_FRAMES]), context)


def _clone(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
    """What was recorded is shared until it is changed in place; a copy that is smaller is made.

    A few frames of a long tensor, kept in a cache, would keep all of it in memory; upsampled frames
    take more than what they are of. Of a few frames that are upsampled or padded on paper, only
    the frames are copied. Who asks for frames in order (`contiguous`, `reshape`) keeps them for as
    long as it takes.
    """
    x, wanted = args[0], kwargs.get("memory_format")
    if wanted not in (None, torch.preserve_format, torch.contiguous_format):
        return NotImplemented
    if x.dim() == 6:
        return _interleaved(context, x)
    if x.dim() == 8:
        return _or_torch(moved_into_cells(context, x))
    if wanted is torch.contiguous_format and context.spread is None:
        put_in_order(x)
    video = _in_parts(x) if _has_planes(x) else None
    if video is None:
        return NotImplemented
    for run in video.runs:
        if isinstance(run.base, PendingConv):
            run.base.result()  # wanted twice: with an epilogue of its own it would run twice
    if video.keeps_others and wanted is not torch.contiguous_format:
        few = _of_copied_frames(video, context)
        if few is None:
            return NotImplemented
        video = few
    with unseen():
        meta = func(meta_of(x), **kwargs)
    copied = _copied(video, context, meta)
    in_order = wanted is torch.contiguous_format
    copied.view_of.cell.for_a_layer = in_order and not asked_by_a_model()
    return copied


def _of_copied_frames(video: LazyVideo, context: PatchContext) -> LazyVideo | None:
    """The same of copies of its frames; None if those are not smaller than the video."""
    spans = {
        base: FrameRun(
            base,
            min(run.start for run in video.runs if run.base == base),
            max(run.stop for run in video.runs if run.base == base),
        )
        for base in video.bases
    }
    kept = sum(
        prod(base.shape) // base.shape[_FRAMES] * span.frames for base, span in spans.items()
    )
    if kept >= prod(video.sizes):
        return None
    copies = {}
    with passing():
        for base, span in spans.items():
            frames = stored(span)
            copies[base] = run_of(frames.clone(memory_format=torch.contiguous_format)).base
            context.stats.moved("cache", 2 * frames.nbytes)
    runs = [
        replace(
            run,
            base=copies[run.base],
            start=run.start - spans[run.base].start,
            stop=run.stop - spans[run.base].start,
        )
        for run in video.runs
    ]
    return replace(video, runs=tuple(runs))


def _in_parts(x: Tensor) -> LazyVideo | None:
    """The frames of x; those of a norm that has not run are then a norm by themselves.

    So frames that are kept in a cache lie where others do not, and are not copied.
    """
    video = video_of(x)
    if video is None or not isinstance(x, LazyTensor) or video.layout is not AxisOrder.video:
        return video
    cell, run = x.view_of.cell, video.runs[0]
    recorded = cell.video
    if recorded is None or not recorded.untouched or not video.as_it_lies or run.whole:
        return video
    base = run.base
    if not isinstance(base, PendingNorm) or base is not recorded.runs[0].base:
        return video
    bounds = sorted({0, run.start, run.stop, base.shape[_FRAMES]})
    parts = base.in_parts(bounds)
    if parts is None:
        return video
    runs = [FrameRun(part, 0, part.shape[_FRAMES]) for part in parts]
    cell.made_of(replace(recorded, runs=tuple(runs)))
    return replace(video, runs=(runs[bounds.index(run.start)],))


def _interleaved(context: PatchContext, x: Tensor) -> Any:
    """repeat_interleave is unsqueeze, expand, clone, view."""
    repeated = [at for at in (2, *_AXES) if x.stride(at) == 0 and x.shape[at] > 1]
    if len(repeated) != 1:
        return NotImplemented
    at = repeated[0]
    once = x.select(at, 0) if not isinstance(x, LazyTensor) else _selected(x, at)
    video = video_of(once)
    if video is None or video.layout is not AxisOrder.video:
        return NotImplemented
    if at not in _AXES:
        return _or_torch(with_repeated_channels(context, video, x.shape[at], x.shape))
    factors = [1, 1, 1]
    factors[_AXES[at] - _FRAMES] = x.shape[at]
    more = video.upsampled((factors[0], factors[1], factors[2]))
    if more is None:
        return NotImplemented
    memory = as_memory(more)
    with unseen():
        meta = memory.view(x.shape)
    return LazyTensor(ViewOf(LazyCell(memory, more, context), meta), x.device)


def _selected(x: LazyTensor, at: int) -> LazyTensor:
    with unseen():
        meta = x.view_of.meta.select(at, 0)
    return LazyTensor(x.view_of.of(meta), x.device)


def _cast(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
    """A cast that loses nothing, or back to where it came from."""
    x, dtype = args[0], kwargs.get("dtype")
    plain = kwargs.get("memory_format") in (None, torch.preserve_format)
    here = kwargs.get("device") in (None, x.device)
    if dtype is None or not plain or not here or not x.is_floating_point():
        return NotImplemented
    if min(dtype.itemsize, x.dtype.itemsize) < _NARROWEST:
        return NotImplemented
    video = video_of(x) if _has_planes(x) else None
    cast = None if video is None else video.in_dtype(dtype)
    if cast is None:
        return NotImplemented
    with unseen():
        meta = func(meta_of(x), dtype=dtype)
    return _copied(cast, context, meta)


def _has_planes(x: Tensor) -> bool:
    """Whether rows and columns lie together, as in a video: else it is a matrix of something."""
    if x.dim() not in (4, 5):
        return False
    *others, height, width = zip(x.shape, x.stride(), strict=True)
    plane = (height[0] - 1) * height[1] + width[0]
    in_rows = width[0] == 1 or (width[1] == 1 and (height[0] == 1 or height[1] >= width[0]))
    return in_rows and all(size == 1 or step >= plane for size, step in others)


def _spliced(record: Recorder) -> Recorder:
    def if_allowed(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
        return record(context, func, args, kwargs) if context.rewrites.splice else NotImplemented

    return if_allowed


_BY_RANK: dict[str, Recorder] = {
    "replication_pad": _pad_with("replicate"),
    "reflection_pad": _pad_with("reflect"),
    **dict.fromkeys(_NEAREST, _upsample),
}
_MOVEMENTS: dict[str, Recorder] = {
    "cat": _cat,
    "constant_pad_nd": _pad_with("constant"),
    "repeat": _repeat,
    "clone": _clone,
    "_to_copy": _cast,
    **{
        f"{name}{rank}d": _of_rank(rank, record)
        for name, record in _BY_RANK.items()
        for rank in (2, 3)
    },
    **{
        f"{name}{rank}d.vec": _of_rank(rank, _upsample_by_factors)
        for name in _NEAREST
        for rank in (2, 3)
    },
}
_OTHERS: dict[str, Recorder] = {
    **{f"aten::{name}": _spliced(record) for name, record in _MOVEMENTS.items()},
    **{name: _spliced(record) for name, record in RECORDED_BUFFERS.items()},
    **RECORDED_EPILOGUES,
}


def _first_of(*recorders: Recorder) -> Recorder:
    """A recorder that asks these in order, until a call is taken over."""

    def record(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
        answers = (first(context, func, args, kwargs) for first in recorders)
        return next((result for result in answers if result is not NotImplemented), NotImplemented)

    return record


_TABLES = (RECORDED_MASKS, RECORDED_NORMS, _OTHERS)
RECORDED: dict[str, Recorder] = {
    name: _first_of(*(table[name] for table in _TABLES if name in table))
    for name in dict.fromkeys(name for table in _TABLES for name in table)
}


def count_copy(context: PatchContext, name: str, arguments: Any, result: Any) -> None:
    """An operator that torch did: counted, if it moved data for nothing but its place."""
    if name == "aten::_unsafe_view":
        context.stats.call_last("contiguous", "permute")  # reshape is a copy, and this
        return
    kind = _kind(name, arguments)
    if not kind or not isinstance(result, Tensor):
        return
    read: Sequence[Tensor] = list(tensors_in(arguments[0][:1]))
    if not any(same_memory(tensor, result) for tensor in read):
        context.stats.moved(kind, sum(bytes_read(tensor) for tensor in read) + result.nbytes)


def bytes_read(tensor: Tensor) -> int:
    """Elements that stand for several are read once."""
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    return prod(size for step, size in pairs if step) * tensor.element_size()


def _kind(name: str, arguments: Any) -> str:
    bare = name.removeprefix("aten::")
    if bare == "clone":
        return _kind_of_clone(*arguments)
    if bare in ("cat", "stack", "repeat"):
        return "repeat" if bare == "repeat" else "cat"
    if "_pad" in bare and "backward" not in bare:
        return "pad"
    return "upsample" if "upsample_" in bare and "backward" not in bare else ""


def _kind_of_clone(args: Any, kwargs: Any) -> str:
    """A copy of frames that the model asked for, or a rearrangement; none inside torch's layers."""
    if kwargs.get("memory_format") is None:
        return "cache"
    if 0 in [step for step, size in zip(args[0].stride(), args[0].shape, strict=True) if size > 1]:
        return "repeat"
    is_matrix = args[0].dim() < 5 and not _has_planes(args[0])  # of attention, say
    return "contiguous" if not is_matrix and asked_by_a_model() else ""


def asked_by_a_model() -> bool:
    """Whether no layer of torch's asked: its norms and products copy too, where they have to.

    What they do inside is not movement that a model asked for, and a device has its own ways.
    """
    frame = sys._getframe(1)  # noqa: SLF001 (the documented way to a frame)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_BETWEEN):
        frame = frame.f_back
    return not frame.f_code.co_filename.startswith(_LAYERS)

"""Functions that move data, noted on a video. None: not this time, let torch do it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from trnconv.pytorch.lazy.pending import Pending
from trnconv.pytorch.lazy.tensor import LazyTensor
from trnconv.pytorch.lazy.video import Layout, Video, spliced

_Noted = Video | tuple[Video, ...] | None
_FRAMES_FIRST = (0, 2, 1, 3, 4)
_FULL = slice(None)


def cat(tensors: Sequence[Any], dim: int = 0) -> _Noted:
    """Frames one after the other."""
    videos = [each.video() if isinstance(each, LazyTensor) else Video.of(each) for each in tensors]
    if dim not in (2, -3) or any(video is None for video in videos):
        return None
    return spliced([video for video in videos if video is not None])


def pad(
    x: Video, pads: Sequence[int], mode: str = "constant", value: float | None = None
) -> _Noted:
    """torch.nn.functional.pad."""
    return x.padded(list(pads), mode, value or 0.0)


def interpolate(
    x: Video,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    **rest: Any,
) -> _Noted:
    """Nearest-neighbour upsampling by whole numbers."""
    if mode not in ("nearest", "nearest-exact") or any(rest.values()):
        return None
    rank = 3 if x.layout is Layout.video else 2
    if x.layout is Layout.frames_first:
        return None
    now = x.shape[-rank:]
    asked = size if size is not None else scale_factor
    if asked is None or not all(now):
        return None
    listed = [asked] * rank if isinstance(asked, (int, float)) else list(asked)
    factors = [n / now[at] for at, n in enumerate(listed)] if size is not None else listed
    if any(factor < 1 or factor != int(factor) for factor in factors):
        return None
    whole = [int(factor) for factor in factors]
    return x.upsampled((whole[0], whole[1], whole[2]) if rank == 3 else (1, whole[0], whole[1]))


def getitem(x: Video, key: Any) -> _Noted:
    """[:, :, a:b], [:, :, i] and [:, :, None]; a trailing ... or full slices may follow."""
    keys = list(key) if isinstance(key, tuple) else [key]
    if keys[-1] is Ellipsis:
        keys.pop()
    if not 3 <= len(keys) <= 1 + len(x.shape) or not all(
        _is_full(each) for each in (*keys[:2], *keys[3:])
    ):
        return None
    chosen = keys[2]
    if chosen is None:
        return unsqueeze(x, 2)
    if x.layout is not Layout.video or len(keys) > len(x.shape):
        return None
    count = x.shape[2]
    if type(chosen) is int and -count <= chosen < count:
        at = chosen % count
        frame = x.frames(at, at + 1)
        return None if frame is None else frame.seen_as(Layout.images)
    if isinstance(chosen, slice) and chosen.step in (None, 1):
        start, stop, _ = chosen.indices(count)
        return x.frames(start, stop)
    return None


def _is_full(key: Any) -> bool:
    return isinstance(key, slice) and key == _FULL


def split(x: Video, sizes: Any, dim: int = 0) -> _Noted:
    """Parts of so many frames."""
    if dim != 2 or x.layout is not Layout.video:
        return None
    count = x.shape[2]
    if isinstance(sizes, int):
        sizes = [min(sizes, count - at) for at in range(0, count, max(1, sizes))]
    listed = list(sizes)
    return _parts(x, listed) if sum(listed) == count and min(listed, default=0) > 0 else None


def chunk(x: Video, chunks: int, dim: int = 0) -> _Noted:
    """So many parts, as equal as torch makes them."""
    return split(x, -(-x.shape[2] // chunks), dim) if dim == 2 and chunks > 0 else None


def _parts(x: Video, sizes: list[int]) -> _Noted:
    parts: list[Video] = []
    at = 0
    for size in sizes:
        part = x.frames(at, at + size)
        if part is None:
            return None
        parts.append(part)
        at += size
    return tuple(parts)


def repeat(x: Video, *counts: Any) -> _Noted:
    """Frames so many times one after the other."""
    listed = list(counts[0]) if len(counts) == 1 and not isinstance(counts[0], int) else counts
    if x.layout is not Layout.video or len(listed) != 5:
        return None
    if any(count != 1 for at, count in enumerate(listed) if at != 2) or listed[2] < 0:
        return None
    return x.times(listed[2])


def repeat_interleave(x: Video, repeats: Any, dim: int | None = None) -> _Noted:
    """Each frame, row or column so many times."""
    if not isinstance(repeats, int) or dim is None or repeats < 1:
        return None
    at = (dim + 5 if dim < 0 else dim) - 2
    if x.layout is not Layout.video or at not in (0, 1, 2):
        return None
    factors = [1, 1, 1]
    factors[at] = repeats
    return x.upsampled((factors[0], factors[1], factors[2]))


def permute(x: Video, *dims: Any) -> _Noted:
    """Channels and frames change places."""
    listed = tuple(dims[0]) if len(dims) == 1 and not isinstance(dims[0], int) else tuple(dims)
    if listed != _FRAMES_FIRST or x.layout is Layout.images:
        return None
    return x.seen_as(Layout.frames_first if x.layout is Layout.video else Layout.video)


def reshape(x: Video, *sizes: Any) -> _Noted:
    """Frames become images, or images frames."""
    if len(sizes) == 1 and isinstance(sizes[0], torch.dtype):
        return None
    listed = list(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else list(sizes)
    known = -torch.Size(listed).numel()
    if -1 in listed and known > 0:
        listed[listed.index(-1)] = x.shape.numel() // known
    n, c, t, h, w = x.sizes
    targets = {
        Layout.video: ((n, c, t, h, w), Layout.video),
        Layout.frames_first: ((n * t, c, h, w), Layout.images),
        Layout.images: ((n, t, c, h, w), Layout.frames_first),
    }
    wanted, layout = targets[x.layout]
    if tuple(listed) != wanted or x.from_images:  # else only a single image would be a frame
        return None
    return _as_images(x) if layout is Layout.images else x.seen_as(layout)


def _as_images(x: Video) -> Video:
    """Frames of several videos do not lie in steps of one size: then torch copies them."""
    videos, channels, frames, *_ = x.sizes
    in_steps = 1 in (videos, channels, frames)
    return replace(x, layout=Layout.images, copied=x.copied or not in_steps)


def flatten(x: Video, start_dim: int = 0, end_dim: int = -1) -> _Noted:
    """Frames become images."""
    if x.layout is Layout.frames_first and (start_dim, end_dim) == (0, 1):
        return _as_images(x)
    return None


def unflatten(x: Video, dim: int, sizes: Sequence[int]) -> _Noted:
    """Images become frames."""
    if x.layout is not Layout.images or dim != 0 or len(sizes) != 2:
        return None
    return reshape(x, *sizes, *x.shape[1:])


def squeeze(x: Video, dim: int | None = None) -> _Noted:
    """A single frame becomes an image."""
    if dim == 2 and x.layout is Layout.video and x.shape[2] == 1:
        return x.seen_as(Layout.images)
    return None


def unsqueeze(x: Video, dim: int) -> _Noted:
    """An image becomes a single frame."""
    if dim == 2 and x.layout is Layout.images and x.sizes[2] == 1:
        return x.seen_as(Layout.video)
    return None


def clone(x: Video, **_options: Any) -> _Noted:
    """Whole tensors are shared until one is changed in place; some frames are copied.

    A few frames of a long tensor would keep all of it in memory.
    """
    for run in x.runs:
        if isinstance(run.base, Pending):
            run.base.result()  # wanted twice: with an end of its own it would run twice
    parts_of_frames = any((run.start, run.stop) != (0, run.base.shape[2]) for run in x.runs)
    return None if parts_of_frames else replace(x, copied=True)


def contiguous(x: Video, **_options: Any) -> _Noted:
    """Whoever does the movement makes it so."""
    base = x.runs[0].base
    lies_so = isinstance(base, Pending) or base.is_contiguous()
    unmoved = x.layout is Layout.video or 1 in x.sizes[1:3]
    return replace(x, copied=x.copied or not (x.untouched and unmoved and lies_so))


def to(x: Video, *args: Any, **kwargs: Any) -> _Noted:
    """A cast that loses nothing, or no change at all."""
    given = [*args, *kwargs.values()]
    dtype = x.dtype
    for each in given:
        if isinstance(each, torch.dtype):
            dtype = each
        elif not isinstance(each, (str, torch.device)) or torch.device(each) != x.device:
            return None
    return x.in_dtype(dtype)


def to_float(x: Video) -> _Noted:
    """To float32."""
    return x.in_dtype(torch.float32)


def type_as(x: Video, other: Any) -> _Noted:
    """To the type of another tensor."""
    return x.in_dtype(other.dtype) if other.device == x.device else None


ON_VIDEOS: dict[str, Callable[..., _Noted]] = {
    "pad": pad,
    "interpolate": interpolate,
    "__getitem__": getitem,
    "split": split,
    "chunk": chunk,
    "repeat": repeat,
    "repeat_interleave": repeat_interleave,
    "permute": permute,
    "reshape": reshape,
    "view": reshape,
    "flatten": flatten,
    "unflatten": unflatten,
    "squeeze": squeeze,
    "unsqueeze": unsqueeze,
    "clone": clone,
    "contiguous": contiguous,
    "to": to,
    "float": to_float,
    "type_as": type_as,
}
COPIES = ("pad", "interpolate", "repeat", "repeat_interleave", "clone")  # others are views
CONCATENATIONS = ("cat", "concat", "concatenate")

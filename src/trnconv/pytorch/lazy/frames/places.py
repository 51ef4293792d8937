"""Which frames of a video a view of its memory shows: by sizes and strides alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from trnconv.pytorch.lazy.base.deferred_result import Pending
from trnconv.pytorch.lazy.frames.video import AxisOrder, LazyVideo

Tensor = torch.Tensor
_ORDERS = {AxisOrder.video: "nctHW", AxisOrder.frames_first: "ntcHW"}
_LAYOUTS = {4: (AxisOrder.images, AxisOrder.stacked), 5: tuple(_ORDERS)}  # by rank


def shown(video: LazyVideo, memory: Tensor, view: Tensor) -> LazyVideo | None:
    """The frames of `video`, laid out as `memory`, that `view` shows; None if it shows no frames.

    Both are on the meta device: `view` is a view of `memory`.
    """
    if view is memory:
        return video
    if view.dtype != memory.dtype or video.layout is AxisOrder.lines:
        return None
    frames = _shown(video, memory, view)
    if frames is None and (other := video.with_roles_exchanged()) is not None:
        frames = _shown(other, memory, view)
    return frames


def _shown(video: LazyVideo, memory: Tensor, view: Tensor) -> LazyVideo | None:
    place = place_of(video, memory, view)
    if place is None:
        return None
    whole = (place.start, place.stop) == (0, video.sizes[2])
    kept = video if whole else video.frames(place.start, place.stop)
    if kept is None:
        return None
    if place.times > 1:
        runs = tuple(replace(run, repeat=run.repeat * place.times) for run in kept.runs)
        kept = replace(kept, runs=runs)
    images = place.layout is AxisOrder.images and video.layout is AxisOrder.images
    return replace(kept, layout=place.layout, from_images=video.from_images and images)


@dataclass(frozen=True)
class ShownFrames:
    """Frames start..stop of a video, seen in a layout; a single one so many times."""

    layout: AxisOrder
    start: int
    stop: int
    times: int = 1


def place_of(video: LazyVideo, memory: Tensor, view: Tensor) -> ShownFrames | None:
    """Which of its frames a view of the memory of a video shows; None if it shows none."""
    if memory.storage_offset() != 0 or video.layout is AxisOrder.lines:
        return None
    axes = dict(zip("nctHW", video.sizes, strict=True)), _steps(video, memory)
    for layout in _LAYOUTS.get(view.dim(), ()):
        frames = _frames(layout, axes, view)
        if frames is not None:
            if layout is not AxisOrder.images and _are_only_images(video):
                return None
            return ShownFrames(layout, *frames)
    return None


def _are_only_images(video: LazyVideo) -> bool:
    """A convolution of images: whether they are frames must not depend on how many they are."""
    return video.from_images and isinstance(video.runs[0].base, Pending)


def _steps(video: LazyVideo, memory: Tensor) -> dict[str, int]:
    """The stride of every axis."""
    if video.layout in _ORDERS:
        return dict(zip(_ORDERS[video.layout], memory.stride(), strict=True))
    outer, channel, row, column = memory.stride()
    _, channels, frames, _, _ = video.sizes
    if video.layout is AxisOrder.stacked:
        return {"n": outer, "t": channel * channels, "c": channel, "H": row, "W": column}
    return {"n": outer * frames, "t": outer, "c": channel, "H": row, "W": column}


def _frames(
    layout: AxisOrder, axes: tuple[dict[str, int], dict[str, int]], view: Tensor
) -> tuple[int, int, int] | None:
    """First and last frame, and how often, if the view shows all of some in this layout."""
    sizes, steps = axes
    shape, strides = list(view.shape), list(view.stride())
    if layout is AxisOrder.images:
        split = _split_images(sizes, steps, shape[0], strides[0])
        if split is None:
            return None
        shape, strides = [*split[0], *shape[1:]], [*split[1], *strides[1:]]
    if layout is AxisOrder.stacked:
        channels = sizes["c"]
        if shape[1] % channels:
            return None
        shape[1:2] = [shape[1] // channels, channels]
        strides[1:2] = [strides[1] * channels, strides[1]]
    order = _ORDERS.get(layout, "ntcHW")
    at = order.index("t")
    for axis, name in enumerate(order):
        if axis != at and not _same(shape[axis], strides[axis], sizes[name], steps[name]):
            return None
    return _cut(shape[at], strides[at], int(view.storage_offset()), (sizes["t"], steps["t"]))


def _same(size: int, step: int, known: int, known_step: int) -> bool:
    return size == known and (size == 1 or step == known_step)


def _cut(
    count: int, step: int, offset: int, frames: tuple[int, int]
) -> tuple[int, int, int] | None:
    total, frame_step = frames
    times = 1
    if count > 1 and step == 0 < frame_step:  # one of them, expanded
        count, times = 1, count
    if count > 1 and step != frame_step:
        return None
    start = offset // frame_step if frame_step else 0
    if offset != start * frame_step or start + count > total:
        return None
    return start, start + count, times


def _split_images(
    sizes: dict[str, int], steps: dict[str, int], images: int, step: int
) -> tuple[Sequence[int], Sequence[int]] | None:
    """An axis of images as videos and frames."""
    videos = sizes["n"]
    if images % videos:
        return None
    frames = images // videos
    if videos == 1:
        return (1, frames), (0, step)
    if frames == 1:
        return (videos, 1), (step, 0)
    in_steps = steps["n"] == frames * steps["t"]
    return ((videos, frames), (frames * step, step)) if in_steps else None

"""LazyVideo: frames that lie in several tensors, repeated, upsampled and padded on paper only.

Pure bookkeeping: nothing here touches data. A method that returns None cannot record what was
asked, and the caller makes it happen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import prod
from typing import Any

import torch

from trnconv.geometry import REFLECT, REPLICATE, ZEROS, Modes
from trnconv.pytorch.lazy.base.pending_reads import unseen
from trnconv.pytorch.lazy.frames.stored_frames import StoredFrames, stored_frames

Pair = tuple[int, int]
Pads = tuple[Pair, Pair, Pair]  # before and after, of frames, rows and columns
_LINE_AXES = 3
NO_PADS: Pads = ((0, 0), (0, 0), (0, 0))
NO_MODES: Modes = (ZEROS, ZEROS, ZEROS)
_MODES = {"constant": ZEROS, "replicate": REPLICATE, "reflect": REFLECT}


class AxisOrder(Enum):
    """The order in which a model looks at [N, C, T, H, W]."""

    video = "N C T H W"
    frames_first = "N T C H W"
    images = "NT C H W"
    stacked = "N TC H W"  # for operators that treat all planes alike
    lines = "N C W"  # of samples: one frame of one row


@dataclass(frozen=True)
class FrameRun:
    """Frames start..stop of a base [N, C, T, H, W], each repeated; rows and columns too."""

    base: Any  # StoredFrames, or a convolution still to run: both have shape, dtype, device
    start: int
    stop: int
    repeat: int = 1
    scale: Pair = (1, 1)

    @property
    def frames(self) -> int:
        """Frames there are of it."""
        return (self.stop - self.start) * self.repeat

    @property
    def whole(self) -> bool:
        """All of the base, and nothing but it."""
        return (self.start, self.stop) == (0, self.base.shape[2]) and self.plain

    @property
    def plain(self) -> bool:
        """Neither repeated nor upsampled."""
        return self.repeat == 1 and self.scale == (1, 1)


@dataclass(frozen=True)
class LazyVideo:
    """Runs one after the other, padded, seen in a layout, in a dtype."""

    runs: tuple[FrameRun, ...]
    dtype: torch.dtype
    layout: AxisOrder = AxisOrder.video
    pads: Pads = NO_PADS
    modes: Modes = NO_MODES
    from_images: bool = False  # a tensor of images: which are frames of one video is unknown

    @staticmethod
    def of(tensor: torch.Tensor) -> LazyVideo | None:
        """A tensor of 5 dimensions as a video, of 4 as images; others have no frames.

        Images that lie as the frames of one video do are its frames; of others it is not known
        which belong together.
        """
        if not tensor.is_floating_point() or tensor.layout is not torch.strided:
            return None
        if tensor.dim() == 5 and 0 not in (*tensor.shape[:2], *tensor.shape[3:]):
            return _video_of(tensor, tensor, AxisOrder.video)
        if tensor.dim() != 4 or not tensor.numel():
            return None
        image, channel, row, column = tensor.stride()
        plane = (tensor.shape[2] - 1) * row + (tensor.shape[3] - 1) * column
        with unseen():
            alias = tensor.detach()
            if min(tensor.shape[:2]) > 1 and plane < image < channel:
                frames = alias.permute(1, 0, 2, 3).unsqueeze(0)
                return _video_of(frames, tensor, AxisOrder.images)
            images = _video_of(alias.unsqueeze(2), tensor, AxisOrder.images)
        return replace(images, from_images=True)

    @staticmethod
    def of_lines(tensor: torch.Tensor) -> LazyVideo | None:
        """A tensor of 3 dimensions that a convolution takes for lines; None if it has no elements.

        Tokens have 3 dimensions too: so nothing but a convolution says that they are lines.
        """
        plain = tensor.is_floating_point() and tensor.layout is torch.strided
        if tensor.dim() != _LINE_AXES or not plain or not tensor.numel():
            return None
        with unseen():
            frames = tensor.detach().unsqueeze(2).unsqueeze(2)
            return _video_of(frames, tensor, AxisOrder.lines)

    @property
    def bases(self) -> tuple[Any, ...]:
        """What the runs are frames of, each once."""
        return tuple(dict.fromkeys(run.base for run in self.runs))

    @property
    def keeps_others(self) -> bool:
        """Whether a record of it keeps more in memory than a copy of it takes."""
        held: int = sum(prod(base.shape) for base in self.bases)
        return prod(self.sizes) < held

    @property
    def sizes(self) -> tuple[int, int, int, int, int]:
        """(N, C, T, H, W), padding included."""
        first = self.runs[0]
        (t0, t1), (h0, h1), (w0, w1) = self.pads
        n, c, _, h, w = first.base.shape
        frames = sum(run.frames for run in self.runs)
        return n, c, frames + t0 + t1, h * first.scale[0] + h0 + h1, w * first.scale[1] + w0 + w1

    @property
    def shape(self) -> torch.Size:
        """What the model sees."""
        n, c, t, h, w = self.sizes
        seen = {
            AxisOrder.video: (n, c, t, h, w),
            AxisOrder.frames_first: (n, t, c, h, w),
            AxisOrder.images: (n * t, c, h, w),
            AxisOrder.stacked: (n, t * c, h, w),
            AxisOrder.lines: (n, c, w),
        }
        return torch.Size(seen[self.layout])

    @property
    def device(self) -> torch.device:
        """Where the frames are."""
        device: torch.device = self.runs[0].base.device
        return device

    @property
    def untouched(self) -> bool:
        """All of one base, seen through a layout at most."""
        own = len(self.runs) == 1 and self.runs[0].whole and self.pads == NO_PADS
        return own and self.dtype == self.runs[0].base.dtype

    @property
    def as_it_lies(self) -> bool:
        """Frames of one base, seen through a layout at most: no copy makes them."""
        own = len(self.runs) == 1 and self.runs[0].plain and self.pads == NO_PADS
        return own and self.dtype == self.runs[0].base.dtype

    def with_roles_exchanged(self) -> LazyVideo | None:
        """The same elements, with frames for channels: a tensor does not say which are which."""
        run = self.runs[0]
        base = run.base
        if len(self.runs) > 1 or not isinstance(base, StoredFrames) or run.repeat > 1:
            return None
        if self.pads[0] != (0, 0) or self.layout in (AxisOrder.images, AxisOrder.stacked):
            return None
        n, c, _, h, w = base.sizes
        frames, channel, image = run.stop - run.start, base.strides[1], base.strides[2]
        start = base.origin + run.start * image
        exchanged = replace(
            base,
            origin=start,
            sizes=(n, frames, c, h, w),
            strides=(base.strides[0], image, channel, *base.strides[3:]),
        )
        other = AxisOrder.video if self.layout is AxisOrder.frames_first else AxisOrder.frames_first
        return replace(self, runs=(replace(run, base=exchanged, start=0, stop=c),), layout=other)

    def seen_as(self, layout: AxisOrder) -> LazyVideo:
        """The same frames in another layout."""
        return replace(self, layout=layout, from_images=False)

    def in_dtype(self, dtype: torch.dtype) -> LazyVideo | None:
        """A cast, recorded if it loses nothing: up, or back to where it came from."""
        stored = self.runs[0].base.dtype
        if not (dtype.is_floating_point and stored.is_floating_point):
            return self if dtype == self.dtype else None
        widens = self.dtype == stored and torch.promote_types(dtype, stored) == dtype
        if dtype == stored or widens:
            return replace(self, dtype=dtype)
        return None

    def padded(self, pads: Sequence[int], mode: str, value: float) -> LazyVideo | None:
        """torch.nn.functional.pad: numbers from the last axis on, before and after."""
        named = _MODES.get(mode)
        if named is None or value != 0 or len(pads) > 6 or min(pads, default=0) < 0:
            return None
        padded_axes = {AxisOrder.video: 3, AxisOrder.lines: 1}.get(self.layout, 2)
        if any(pads[2 * padded_axes :]):
            return None
        listed = [(pads[at], pads[at + 1]) for at in range(0, len(pads), 2)]
        added = [*[(0, 0)] * (3 - len(listed)), *reversed(listed)]
        result: list[tuple[Pair, str]] = []
        for before, mode_before, new in zip(self.pads, self.modes, added, strict=True):
            if new == (0, 0):
                result.append((before, mode_before))
            elif before == (0, 0) or mode_before == named == ZEROS:
                result.append(((before[0] + new[0], before[1] + new[1]), named))
            else:
                return None
        both, modes = zip(*result, strict=True)
        return replace(self, pads=both, modes=modes)

    def upsampled(self, factors: tuple[int, int, int]) -> LazyVideo | None:
        """Nearest-neighbour upsampling by whole numbers, before any padding."""
        if self.pads != NO_PADS:
            return None
        depth, height, width = factors
        runs = tuple(
            replace(
                run,
                repeat=run.repeat * depth,
                scale=(run.scale[0] * height, run.scale[1] * width),
            )
            for run in self.runs
        )
        return replace(self, runs=runs)

    def frames(self, start: int, stop: int) -> LazyVideo | None:
        """Some of the frames; repeated ones only as a whole."""
        if self.pads[0] != (0, 0):
            return None
        runs: list[FrameRun] = []
        for run in self.runs:
            first, last = max(start, 0), min(stop, run.frames)
            if first < last:
                if first % run.repeat or last % run.repeat:
                    return None
                begin = run.start + first // run.repeat
                runs.append(replace(run, start=begin, stop=run.start + last // run.repeat))
            start, stop = start - run.frames, stop - run.frames
        if not runs:
            runs = [replace(self.runs[0], stop=self.runs[0].start)]
        return replace(self, runs=_joined(runs))

    def times(self, count: int) -> LazyVideo | None:
        """All frames, so often one after the other."""
        if self.pads[0] != (0, 0):
            return None
        if count == 0:
            return self.frames(0, 0)
        return replace(self, runs=self.runs * count)


def _video_of(frames: torch.Tensor, counted: torch.Tensor, layout: AxisOrder) -> LazyVideo:
    stored, first = stored_frames(frames, counted)
    run = FrameRun(stored, first, first + frames.shape[2])
    return LazyVideo((run,), frames.dtype, layout)


def spliced(parts: Sequence[LazyVideo]) -> LazyVideo | None:
    """torch.cat along the frames."""
    first = parts[0]
    same = [(part.layout, part.pads, part.dtype, part.device, *_rest(part)) for part in parts]
    if first.layout is not AxisOrder.video or first.pads[0] != (0, 0) or len(set(same)) != 1:
        return None
    if len({part.modes for part in parts}) != 1:
        return None
    runs = [run for part in parts for run in part.runs if run.frames] or list(first.runs[:1])
    return replace(first, runs=_joined(runs))


def _rest(part: LazyVideo) -> tuple[int, ...]:
    n, c, _, h, w = part.sizes
    return n, c, h, w


def _joined(runs: Sequence[FrameRun]) -> tuple[FrameRun, ...]:
    """Neighbours that continue each other, as one."""
    joined: list[FrameRun] = []
    for run in runs:
        last = joined[-1] if joined else None
        if last is not None and _continues(last, run):
            joined[-1] = replace(last, stop=run.stop)
        else:
            joined.append(run)
    return tuple(joined)


def _continues(last: FrameRun, run: FrameRun) -> bool:
    alike = (last.repeat, last.scale) == (run.repeat, run.scale)
    return alike and last.base == run.base and last.stop == run.start

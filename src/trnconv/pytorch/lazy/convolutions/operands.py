"""From a recorded video to what a convolution takes: pieces, padding, upsampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trnconv.geometry import CIRCULAR, REFLECT, REPLICATE, ZEROS, Modes, Triple
from trnconv.pytorch.lazy.convolutions.deferred_conv import Later
from trnconv.pytorch.lazy.frames.video import FrameRun, LazyVideo, Pads


@dataclass(frozen=True)
class Window3d:
    """How a 3-D convolution moves, and the zeros it pads itself."""

    kernel: Triple
    stride: Triple
    padding: Pads
    dilation: Triple
    groups: int
    mode: str = ZEROS  # of its own padding

    def is_pointwise(self, axis: int) -> bool:
        """Along this axis, outputs are in step with inputs."""
        alone = self.kernel[axis] == 1 and self.stride[axis] == 1
        return alone and self.padding[axis] == (0, 0)


@dataclass(frozen=True)
class ConvOperands:
    """The input of a convolution, in pieces along the frames, and all that is done to it."""

    pieces: tuple[FrameRun, ...]  # without repeats
    pads: Pads
    modes: Modes
    upsample: Triple = (1, 1, 1)
    skip: Triple = (0, 0, 0)
    later: Later | None = None  # rows of other ranks are on their way


def operands_of(video: LazyVideo, window: Window3d) -> ConvOperands | None:
    """What a convolution of this video takes; None where it cannot take it as it lies."""
    runs, skip = _first_frame_once(list(video.runs))
    runs, (front, back) = _without_copies(runs)
    if len({(run.repeat, run.scale) for run in runs}) != 1:
        return None
    if runs[0].repeat > 1 and len(runs) > 1:
        return None
    padding = _with_copies(video, front, back)
    summed = None if padding is None else _summed(padding, window)
    if summed is None:
        return None
    pads, modes = summed
    upsample = (runs[0].repeat, *runs[0].scale)
    result = _without_mirrors(ConvOperands(tuple(runs), pads, modes, upsample, (skip, 0, 0)))
    return result if _is_exact(result, window) else None


def _first_frame_once(runs: list[FrameRun]) -> tuple[list[FrameRun], int]:
    """Frame 0 once and the others f times is all of them f times, without the first f - 1."""
    for at in range(len(runs) - 1):
        first, rest = runs[at : at + 2]
        once = first.repeat == 1 and first.stop == rest.start == first.start + 1
        if once and rest.repeat > 1 and first.base == rest.base and first.scale == rest.scale:
            if at > 0 and not _copies(runs[at - 1], replace(rest, start=first.start), first=True):
                continue
            whole = replace(rest, start=first.start)
            return [*runs[:at], whole, *runs[at + 2 :]], rest.repeat - 1
    return runs, 0


def _without_copies(runs: list[FrameRun]) -> tuple[list[FrameRun], tuple[int, int]]:
    """The runs without copies of the first frame before them and of the last behind them."""
    front = back = 0
    while len(runs) > 1 and _copies(runs[0], runs[1], first=True):
        front += runs[0].frames
        runs = runs[1:]
    while len(runs) > 1 and _copies(runs[-1], runs[-2], first=False):
        back += runs[-1].frames
        runs = runs[:-1]
    return runs, (front, back)


def _copies(run: FrameRun, body: FrameRun, *, first: bool) -> bool:
    edge = body.start if first else body.stop - 1
    single = (run.start, run.stop) == (edge, edge + 1)
    return single and run.base == body.base and run.scale == body.scale


def _with_copies(video: LazyVideo, front: int, back: int) -> tuple[Pads, Modes] | None:
    """The video's padding, and copies of its first and last frame as replicate padding."""
    if (front, back) == (0, 0):
        return video.pads, video.modes
    if video.pads[0] != (0, 0):
        return None
    pads: Pads = ((front, back), video.pads[1], video.pads[2])
    return pads, (REPLICATE, video.modes[1], video.modes[2])


def _summed(padding: tuple[Pads, Modes], window: Window3d) -> tuple[Pads, Modes] | None:
    """That padding and the convolution's own, where one kind can do both."""
    pads: list[tuple[int, int]] = []
    modes: list[str] = []
    for (before, after), mode, more in zip(*padding, window.padding, strict=True):
        if more == (0, 0):
            kind = mode
        elif (before, after) == (0, 0) or mode == window.mode == ZEROS:
            kind = window.mode
        else:
            return None
        pads.append((before + more[0], after + more[1]))
        modes.append(kind if pads[-1] != (0, 0) else ZEROS)
    return (pads[0], pads[1], pads[2]), (modes[0], modes[1], modes[2])


def _without_mirrors(operands: ConvOperands) -> ConvOperands:
    """Less than one sample, upsampled, mirrored at its border is that sample copied."""
    modes = [
        REPLICATE if mode == REFLECT and max(pads) < factor and not skipped else mode
        for mode, pads, factor, skipped in zip(
            operands.modes, operands.pads, operands.upsample, operands.skip, strict=True
        )
    ]
    return replace(operands, modes=(modes[0], modes[1], modes[2]))


def _is_exact(operands: ConvOperands, window: Window3d) -> bool:
    """Upsampling folds into a stride of 1, beside zeros or copies of the border."""
    for axis in range(3):
        if operands.upsample[axis] == 1:
            continue
        padded = operands.pads[axis] != (0, 0)
        if window.stride[axis] != 1 or (padded and operands.modes[axis] in (REFLECT, CIRCULAR)):
            return False
        zeros_before = operands.pads[axis][0] and operands.modes[axis] == ZEROS
        if operands.skip[axis] and zeros_before:
            return False
    return True


def commuting(video: LazyVideo, window: Window3d) -> tuple[LazyVideo, Triple] | None:
    """A video without the upsampling of axes the window is pointwise along, and that upsampling.

    A pointwise convolution gives equal outputs for equal inputs, so it can run before them. Frames
    are handled by `frame_pattern`; here the factor of frames is 1.
    """
    scales = {run.scale for run in video.runs}
    if len(scales) != 1 or video.pads[1:] != ((0, 0), (0, 0)):
        return None
    scale = next(iter(scales))
    moved = tuple(scale[a] if window.is_pointwise(1 + a) else 1 for a in range(2))
    if moved == (1, 1):
        return None
    kept = (scale[0] // moved[0], scale[1] // moved[1])
    runs = tuple(replace(run, scale=kept) for run in video.runs)
    return replace(video, runs=runs), (1, moved[0], moved[1])


def frame_pattern(
    video: LazyVideo, window: Window3d
) -> tuple[LazyVideo, tuple[FrameRun, ...]] | None:
    """For a window without temporal taps: the distinct frames, and the runs to make of the result.

    Frames of one tensor that are repeated, or taken several times, are convolved once.
    """
    repeats = any(run.repeat > 1 for run in video.runs) or len(video.runs) > 1
    mixes_nothing = window.is_pointwise(0) and video.pads[0] == (0, 0) and len(video.bases) == 1
    if not mixes_nothing or not repeats:
        return None
    start = min(run.start for run in video.runs)
    stop = max(run.stop for run in video.runs)
    first = video.runs[0]
    once = replace(first, start=start, stop=stop, repeat=1)
    if len({run.scale for run in video.runs}) != 1:
        return None
    pattern = tuple(
        replace(run, start=run.start - start, stop=run.stop - start) for run in video.runs
    )
    return replace(video, runs=(once,)), pattern


def frame_counts(pieces: Sequence[FrameRun]) -> tuple[int, ...]:
    """Frames of each piece."""
    return tuple(run.stop - run.start for run in pieces)

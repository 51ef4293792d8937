"""Doing what was recorded: a video becomes a tensor, by torch's own operators."""

from __future__ import annotations

import torch

from trnconv.geometry import ZEROS
from trnconv.pytorch.lazy.base.deferred_result import Pending
from trnconv.pytorch.lazy.base.memory import same_memory
from trnconv.pytorch.lazy.base.stats import PatchStats
from trnconv.pytorch.lazy.frames.video import NO_PADS, AxisOrder, FrameRun, LazyVideo

Tensor = torch.Tensor
_LAYOUTS = {AxisOrder.video: (0, 1, 2, 3, 4), AxisOrder.frames_first: (0, 2, 1, 3, 4)}


def stored(run: FrameRun) -> Tensor:
    """The frames of a run as they lie: no copy. A convolution still to run, runs."""
    if not isinstance(run.base, Pending):
        frames: Tensor = run.base.tensor(run.start, run.stop)
        return frames
    result = run.base.result()
    whole = (run.start, run.stop) == (0, result.shape[2])
    return result if whole else result[:, :, run.start : run.stop]


def done(video: LazyVideo, stats: PatchStats) -> Tensor:
    """The tensor the model would have; every copy is counted."""
    parts = [_upsampled(run, stats) for run in video.runs]
    joined = parts[0]
    if len(parts) > 1:
        joined = torch.cat(parts, dim=2)
        stats.moved("cat", 2 * joined.nbytes)
    padded = _padded(joined, video, stats)
    return _laid_out(padded, video, stats).to(video.dtype)


def _upsampled(run: FrameRun, stats: PatchStats) -> Tensor:
    frames = stored(run)
    if run.plain:
        return frames
    read = frames.nbytes
    for axis, factor in enumerate((run.repeat, *run.scale)):
        if factor > 1:
            frames = frames.repeat_interleave(factor, dim=2 + axis)
    stats.moved("upsample", read + frames.nbytes)
    return frames


def _padded(frames: Tensor, video: LazyVideo, stats: PatchStats) -> Tensor:
    if video.pads == NO_PADS:
        return frames
    for mode in dict.fromkeys(video.modes):
        pads = [
            pair if mode_of_axis == mode else (0, 0)
            for pair, mode_of_axis in zip(video.pads, video.modes, strict=True)
        ]
        sides = [side for pair in reversed(pads) for side in pair]
        if any(sides):
            read = frames.nbytes
            frames = torch.nn.functional.pad(
                frames, sides, mode="constant" if mode == ZEROS else mode
            )
            stats.moved("pad", read + frames.nbytes)
    return frames


def _laid_out(frames: Tensor, video: LazyVideo, stats: PatchStats) -> Tensor:
    if video.layout is AxisOrder.lines:
        return frames[:, :, 0, 0]
    if video.layout in _LAYOUTS:
        return frames.permute(_LAYOUTS[video.layout])
    n, c, t, h, w = frames.shape
    sizes = (n, t * c, h, w) if video.layout is AxisOrder.stacked else (n * t, c, h, w)
    images = frames.permute(0, 2, 1, 3, 4).reshape(sizes)
    if not same_memory(images, frames):
        stats.moved("permute", 2 * frames.nbytes)
    return images

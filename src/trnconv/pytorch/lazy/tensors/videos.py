"""The frames of any tensor, and tensors of any layout as frames."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trnconv.pytorch.lazy.base.pending_reads import unseen
from trnconv.pytorch.lazy.frames.video import AxisOrder, LazyVideo
from trnconv.pytorch.lazy.tensors.tensor import LazyTensor

_TO_VIDEO = {AxisOrder.video: (0, 1, 2, 3, 4), AxisOrder.frames_first: (0, 2, 1, 3, 4)}


def video_of(x: torch.Tensor) -> LazyVideo | None:
    """As they are recorded, or as they lie; None if a tensor has none."""
    return x.video() if isinstance(x, LazyTensor) else LazyVideo.of(x)


def lines_of(x: torch.Tensor) -> LazyVideo | None:
    """The lines of samples of any tensor, for a one-dimensional convolution."""
    recorded = x.video() if isinstance(x, LazyTensor) else None
    if recorded is not None and recorded.layout is AxisOrder.lines:
        return recorded
    return LazyVideo.of_lines(x.elements() if isinstance(x, LazyTensor) else x)


def as_video(seen: torch.Tensor, layout: AxisOrder, sizes: Sequence[int]) -> torch.Tensor:
    """A tensor in a layout, as [N, C, T, H, W] of these sizes."""
    n, c, t, h, w = sizes
    with unseen():
        if layout is AxisOrder.lines:
            return seen.unsqueeze(2).unsqueeze(2)
        if layout in _TO_VIDEO:
            return seen.permute(*_TO_VIDEO[layout])
        if n == 1 and layout is AxisOrder.images:
            return seen.permute(1, 0, 2, 3).unsqueeze(0)
        return seen.reshape(n, t, c, h, w).permute(0, 2, 1, 3, 4)

"""The frames of any tensor."""

from __future__ import annotations

import torch

from trnconv.pytorch.lazy.tensor import LazyTensor
from trnconv.pytorch.lazy.video import AxisOrder, LazyVideo


def video_of(x: torch.Tensor) -> LazyVideo | None:
    """As they are noted, or as they lie; None if a tensor has none."""
    return x.video() if isinstance(x, LazyTensor) else LazyVideo.of(x)


def lines_of(x: torch.Tensor) -> LazyVideo | None:
    """The lines of samples of any tensor, for a one-dimensional convolution."""
    noted = x.video() if isinstance(x, LazyTensor) else None
    if noted is not None and noted.layout is AxisOrder.lines:
        return noted
    return LazyVideo.of_lines(x.value() if isinstance(x, LazyTensor) else x)

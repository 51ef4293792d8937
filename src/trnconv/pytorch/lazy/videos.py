"""The frames of any tensor."""

from __future__ import annotations

import torch

from trnconv.pytorch.lazy.tensor import LazyTensor
from trnconv.pytorch.lazy.video import LazyVideo


def video_of(x: torch.Tensor) -> LazyVideo | None:
    """As they are noted, or as they lie; None if a tensor has none."""
    return x.video() if isinstance(x, LazyTensor) else LazyVideo.of(x)

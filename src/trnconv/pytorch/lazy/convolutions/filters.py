"""Filters: what a convolution of a lazy tensor does, whatever its input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from trnconv.geometry import ZEROS, lifted
from trnconv.pytorch.functional.arguments import paddings, steps_of
from trnconv.pytorch.lazy.convolutions.operands import Window3d
from trnconv.pytorch.lazy.frames.video import LazyVideo


@dataclass(frozen=True)
class Filters:
    """What a convolution does, whatever its input."""

    weight: torch.Tensor
    bias: torch.Tensor | None = None
    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1
    mode: str = ZEROS
    module: str = ""

    @property
    def rank(self) -> int:
        """1, 2 or 3."""
        return self.weight.dim() - 2

    def fit(self, video: LazyVideo) -> bool:
        """Whether types and channels agree and autocast is off; else torch's rules decide."""
        device = video.device.type
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            return False
        biases = [] if self.bias is None else [self.bias]
        one_type = all(tensor.dtype == video.dtype for tensor in (self.weight, *biases))
        return one_type and self.weight.shape[1] * self.groups == video.sizes[1]

    @property
    def options(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]:
        """Strides, the larger padding of each axis, dilations and groups."""
        steps, dilations = steps_of(self.rank, self.stride, self.dilation, self.groups)
        sides = paddings(self.padding, self.weight, steps, dilations)
        return steps, tuple(map(max, *sides)), dilations, self.groups

    def window(self) -> Window3d:
        """The same in 3-D."""
        steps, dilations = steps_of(self.rank, self.stride, self.dilation, self.groups)
        sides = paddings(self.padding, self.weight, steps, dilations)
        before, after = (lifted(side, 0) for side in sides)
        return Window3d(
            kernel=lifted(tuple(self.weight.shape[2:]), 1),
            stride=lifted(steps, 1),
            padding=((before[0], after[0]), (before[1], after[1]), (before[2], after[2])),
            dilation=lifted(dilations, 1),
            groups=self.groups,
            mode=self.mode,
        )

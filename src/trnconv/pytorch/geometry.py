"""Lists of integers, as ops of torch.library take them, to problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trnconv.geometry import ConvShape, conv_shape


@dataclass(frozen=True)
class Window:
    """How a convolution moves: per axis stride, padding before and after, dilation; and groups."""

    stride: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @staticmethod
    def of(
        stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int
    ) -> Window:
        """`padding` has the numbers before all axes, then those after."""
        rank = len(stride)
        return Window(
            tuple(stride), tuple(padding[:rank]), tuple(padding[rank:]), tuple(dilation), groups
        )

    @property
    def pads(self) -> tuple[tuple[int, int], ...]:
        """(before, after) of each axis."""
        return tuple(zip(self.before, self.after, strict=True))

    def forward(self, x: Sequence[int], w: Sequence[int]) -> ConvShape:
        """The convolution of tensors of these shapes."""
        return conv_shape(
            x,
            w,
            stride=self.stride,
            padding=self.pads,
            dilation=self.dilation,
            groups=self.groups,
        )

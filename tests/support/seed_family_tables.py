"""Grouped convolutions and gradients of nki-conv3d, the project this one started from.

nki-conv3d (Apache 2.0) has 15 cases of grouped and depthwise convolutions, twelve of them problems
and three properties, and 38 of gradients: three gradients of each of ten problems, all gradients of
seven more, and zeros. `seed_families` has its dense forward problems.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnconv.geometry import ConvShape, Triple, conv_shape

ONE = (1, 1, 1)
TWO = (2, 2, 2)
NONE = (0, 0, 0)


@dataclass(frozen=True)
class Problem:
    """One call of conv3d, in float32."""

    name: str
    x: tuple[int, int, int, int, int]
    w: tuple[int, int, int, int, int]
    bias: bool = False
    stride: Triple = ONE
    padding: Triple = NONE
    dilation: Triple = ONE
    groups: int = 1

    def options(self):
        """The keyword arguments of the call."""
        return {
            "stride": self.stride,
            "padding": self.padding,
            "dilation": self.dilation,
            "groups": self.groups,
        }

    def shape(self) -> ConvShape:
        """The problem in integers."""
        return conv_shape(self.x, self.w, **self.options())


GROUPED = (
    Problem("two_groups", (1, 4, 4, 5, 4), (6, 2, 2, 3, 2), groups=2),
    Problem("two_groups_bias", (1, 4, 4, 5, 4), (6, 2, 2, 3, 2), bias=True, groups=2),
    Problem(
        "two_groups_padding", (1, 4, 4, 5, 5), (8, 2, 3, 3, 3), bias=True, padding=ONE, groups=2
    ),
    Problem("two_groups_stride", (2, 4, 6, 6, 6), (6, 2, 2, 2, 2), stride=TWO, groups=2),
    Problem("four_groups", (1, 8, 4, 5, 5), (12, 2, 2, 3, 3), groups=4),
    Problem(
        "four_groups_padding", (1, 8, 4, 6, 6), (16, 2, 3, 3, 3), bias=True, padding=ONE, groups=4
    ),
    Problem("depthwise", (1, 4, 4, 5, 5), (4, 1, 2, 3, 3), groups=4),
    Problem(
        "depthwise_padding", (1, 8, 4, 6, 6), (8, 1, 3, 3, 3), bias=True, padding=ONE, groups=8
    ),
    Problem(
        "depthwise_stride", (1, 4, 6, 6, 6), (4, 1, 3, 3, 3), stride=TWO, padding=ONE, groups=4
    ),
    Problem("two_groups_of_8_and_16", (1, 16, 4, 6, 6), (32, 8, 3, 3, 3), padding=ONE, groups=2),
    Problem("pointwise_groups", (1, 8, 4, 5, 5), (16, 2, 1, 1, 1), groups=4),
    Problem("time_kernel_groups", (1, 8, 6, 4, 4), (8, 2, 3, 1, 1), padding=(1, 0, 0), groups=4),
)

BACKWARD = (
    Problem("basic", (1, 2, 4, 5, 4), (3, 2, 2, 3, 2)),
    Problem("basic_bias", (1, 2, 4, 5, 4), (3, 2, 2, 3, 2), bias=True),
    Problem("pointwise", (1, 4, 3, 4, 5), (8, 4, 1, 1, 1)),
    Problem("padding", (1, 2, 4, 5, 4), (4, 2, 3, 3, 3), bias=True, padding=ONE),
    Problem("stride", (2, 3, 6, 6, 6), (4, 3, 2, 2, 2), stride=TWO),
    Problem("stride_padding", (1, 3, 5, 5, 5), (4, 3, 2, 2, 2), bias=True, stride=TWO, padding=ONE),
    Problem("uneven_kernel", (1, 3, 6, 5, 4), (4, 3, 2, 3, 4), bias=True),
    Problem("one_channel", (1, 1, 4, 4, 4), (1, 1, 3, 3, 3), padding=ONE),
    Problem("batch", (4, 2, 4, 4, 4), (3, 2, 3, 3, 3), bias=True, padding=ONE),
    Problem("time_kernel", (1, 4, 8, 4, 4), (4, 4, 3, 1, 1), padding=(1, 0, 0)),
)

BACKWARD_DILATED = (
    Problem("dilated", (1, 2, 6, 8, 8), (3, 2, 2, 3, 3), dilation=TWO),
    Problem("dilated_in_plane", (1, 3, 4, 8, 8), (4, 3, 2, 3, 3), bias=True, dilation=(1, 2, 2)),
    Problem(
        "dilated_padding", (1, 2, 6, 8, 8), (3, 2, 3, 3, 3), bias=True, padding=TWO, dilation=TWO
    ),
)

BACKWARD_GROUPED = (
    Problem("back_two_groups", (1, 4, 4, 5, 4), (6, 2, 2, 3, 2), groups=2),
    Problem(
        "back_two_groups_padding",
        (1, 4, 4, 5, 5),
        (8, 2, 3, 3, 3),
        bias=True,
        padding=ONE,
        groups=2,
    ),
    Problem("back_depthwise", (1, 4, 4, 5, 5), (4, 1, 2, 3, 3), groups=4),
    Problem(
        "back_depthwise_padding", (1, 8, 4, 6, 6), (8, 1, 3, 3, 3), bias=True, padding=ONE, groups=8
    ),
)

GRADIENTS = (*BACKWARD, *BACKWARD_DILATED, *BACKWARD_GROUPED)

"""DepthwisePlan: a depthwise convolution on the Vector, Scalar and GpSimd engines.

Lines are (image, channel) flattened: 128 of them, on as many partitions, are a tile of lines. Of a
tile, a *block* of outputs is computed from one window of the input, *piece* by piece: a piece is
what one instruction computes, one tap at a time. Pieces are worked on in groups; in each, some are
summed by the Vector engine (in PSUM), the others by GpSimd (in SBUF).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import gcd, prod
from typing import ClassVar

from nkisim.machine import V3
from trnconv.algorithms.algorithm import Plan
from trnconv.geometry import ConvShape, Triple
from trnconv.problem.epilogue import ITEM_BYTES

WIDE_BYTES = ITEM_BYTES["float32"]  # sums and filters
AHEAD = 2  # taps of a group that GpSimd gets before the Scalar engine turns to the one before
Span = tuple[int, int]


def cut_span(span: Span, size: int) -> list[Span]:
    """Parts of at most `size`, one after the other."""
    first, end = span
    return [(begin, min(begin + size, end)) for begin in range(first, end, size)]


@dataclass(frozen=True)
class PositionBox:
    """Outputs or inputs from `first` up to, not including, `end`; (depth, height, width)."""

    first: Triple
    end: Triple

    @property
    def sizes(self) -> Triple:
        """Elements along each axis; none if the box is empty."""
        return _triple(max(0, b - a) for a, b in zip(self.first, self.end, strict=True))

    @property
    def elems(self) -> int:
        """All of them."""
        return prod(self.sizes)

    def meet(self, other: PositionBox) -> PositionBox:
        """What is in both."""
        first = _triple(map(max, self.first, other.first))
        return PositionBox(first, _triple(map(min, self.end, other.end)))

    def cut(self, step: Triple) -> Iterator[PositionBox]:
        """Boxes of at most `step`, the last axis fastest."""
        axes = zip(self.first, self.end, step, strict=True)
        spans = [cut_span((first, end), size) for first, end, size in axes]
        for depth, height, width in product(*spans):
            yield PositionBox((depth[0], height[0], width[0]), (depth[1], height[1], width[1]))

    def without(self, inner: PositionBox) -> list[PositionBox]:
        """Boxes that fill what `inner`, a box inside this one, leaves."""
        left, rest = [], self
        for axis in range(3):
            for first, end in (
                (rest.first[axis], inner.first[axis]),
                (inner.end[axis], rest.end[axis]),
            ):
                if end > first:
                    left.append(rest.along(axis, (first, end)))
            rest = rest.along(axis, (inner.first[axis], inner.end[axis]))
        return left

    def span(self, axis: int) -> Span:
        """Its first and its end along an axis."""
        return self.first[axis], self.end[axis]

    def along(self, axis: int, span: Span) -> PositionBox:
        """The box with another span of one axis."""
        first, end = list(self.first), list(self.end)
        first[axis], end[axis] = span
        return PositionBox(_triple(first), _triple(end))


@dataclass(frozen=True)
class DepthwisePlan(Plan):
    """What is decided. `windows` and `outs` are how many tiles of each kind take turns."""

    algorithm: ClassVar[str] = "depthwise"

    shape: ConvShape
    block_outs: Triple
    piece: Triple  # outputs
    vector_pieces: int  # of a group
    gpsimd_pieces: int
    windows: int
    outs: int
    lines_of: Span | None = None  # of one of two cores, first and end; None: all
    outputs_of: tuple[Triple, Triple] | None = None  # likewise, the first and the end of a box

    def block(self) -> Triple:
        """Output frames, rows and columns of a block."""
        return self.block_outs

    def in_words(self) -> str:
        """The decisions in a line."""
        block, piece = ("x".join(map(str, value)) for value in (self.block_outs, self.piece))
        group = f"{self.vector_pieces} Vector + {self.gpsimd_pieces} GpSimd"
        return f"depthwise, {group} pieces of {piece}, blocks of {block}"

    @property
    def multiplier(self) -> int:
        """Outputs of each channel."""
        return self.shape.c_out // self.shape.c_in

    @property
    def lines(self) -> int:
        """Images times channels that this core computes."""
        return self.lines_of[1] - self.lines_of[0] if self.lines_of else every_line(self.shape)

    @property
    def first_line(self) -> int:
        """The first of them."""
        return self.lines_of[0] if self.lines_of else 0

    @property
    def outputs(self) -> PositionBox:
        """The outputs of a line that this core computes."""
        return (
            PositionBox(*self.outputs_of)
            if self.outputs_of
            else PositionBox((0, 0, 0), self.shape.out_sizes())
        )

    @property
    def line_tiles(self) -> int:
        """Tiles of lines."""
        return -(-self.lines // self.machine.partitions)

    @property
    def filter_sets(self) -> int:
        """Tiles of lines until the channels on the partitions repeat."""
        period = self.shape.c_in // gcd(self.shape.c_in, self.machine.partitions)
        return min(period, self.line_tiles)

    @property
    def filter_columns(self) -> int:
        """Of the image of filters: for each set and multiple the bias, then the taps."""
        return self.filter_sets * self.multiplier * (1 + self.shape.taps())

    @property
    def vector_begins(self) -> bool:
        """Whether the Vector engine begins sums: trn1's Scalar engine adds no bias to a copy."""
        return self.machine.generation < V3 or not self.machine.accepts.scalar_bias

    @property
    def group(self) -> int:
        """Pieces of a group."""
        return self.vector_pieces + self.gpsimd_pieces

    def blocks(self) -> list[PositionBox]:
        """The blocks of one tile of lines."""
        return list(self.outputs.cut(self.block_outs))

    def block_spans(self, axis: int) -> list[Span]:
        """What the blocks are along an axis: every combination of three axes is one."""
        return cut_span(self.outputs.span(axis), self.block_outs[axis])

    def window(self, block: PositionBox) -> PositionBox:
        """The inputs that the taps of a block meet; one element of an axis if they meet none."""
        sides = zip(block.first, block.end, strict=True)
        spans = [self.window_span(axis, side) for axis, side in enumerate(sides)]
        return PositionBox(_triple(a for a, _ in spans), _triple(b for _, b in spans))

    def window_span(self, axis: int, outputs: Span) -> Span:
        """The window of some outputs along an axis."""
        size, shape = self.shape.size[axis], self.shape
        low = min(max(0, shape.in_position(axis, outputs[0], 0)), size - 1)
        last = shape.in_position(axis, outputs[1] - 1, shape.kernel[axis] - 1)
        return low, max(low + 1, min(size, last + 1))

    def window_elems(self) -> int:
        """Of the largest window."""
        longest = [
            max(end - first for first, end in map(partial(self.window_span, axis), spans))
            for axis, spans in enumerate(map(self.block_spans, range(3)))
        ]
        return prod(longest)

    def bank_elems(self) -> int:
        """Sums of a piece on the Vector engine, in whole PSUM banks."""
        bank = self.machine.psum_bank_fp32_elems
        return -(-prod(self.piece) // bank) * bank

    def product_tiles(self) -> int:
        """Tiles through which products go from the Scalar engine to GpSimd."""
        return AHEAD * self.gpsimd_pieces + 1 if self.gpsimd_pieces else 0

    def wide_tiles(self) -> int:
        """Sums of two groups on GpSimd, then the products."""
        return 2 * self.gpsimd_pieces + self.product_tiles()

    def sbuf_bytes(self) -> int:
        """Bytes of a partition."""
        windows = self.windows * padded(self.window_elems() * self.item_bytes)
        outs = self.outs * padded(prod(self.block_outs) * self.item_bytes)
        sums = self.wide_tiles() * prod(self.piece) * WIDE_BYTES
        return windows + outs + sums + WIDE_BYTES * (self.filter_columns + 1)


def every_line(shape: ConvShape) -> int:
    """Images times channels of a convolution."""
    return shape.batch * shape.c_in


def valid_outputs(shape: ConvShape, tap: Triple) -> PositionBox:
    """The outputs for which a tap lies inside the input."""
    spans = [valid_span(shape, axis, tap[axis]) for axis in range(3)]
    return PositionBox(_triple(a for a, _ in spans), _triple(b for _, b in spans))


def valid_span(shape: ConvShape, axis: int, tap: int) -> Span:
    """The same along an axis."""
    shift, stride = shape.in_position(axis, 0, tap), shape.stride[axis]
    first = max(0, -(shift // stride))
    last = (shape.size[axis] - 1 - shift) // stride
    return first, min(last + 1, shape.out_size(axis))


def least_windows(plan: DepthwisePlan) -> int:
    """Two groups are under way at once, and all windows they read are in SBUF."""
    return _spanned(plan, 2 * plan.group, plan.multiplier)


def least_outs(plan: DepthwisePlan) -> int:
    """Three groups may write to outputs that are not stored yet."""
    return _spanned(plan, 3 * plan.group, 1)


def _spanned(plan: DepthwisePlan, pieces: int, passes: int) -> int:
    """The most blocks that so many pieces in a row belong to."""
    fewest = min(
        prod(-(-size // part) for size, part in zip(block.sizes, plan.piece, strict=True))
        for block in corners(plan)
    )
    return -(-(pieces - 1) // (fewest * passes)) + 1


def corners(plan: DepthwisePlan) -> list[PositionBox]:
    """The first and the last block: no block has fewer pieces than the smaller of them."""
    spans = [plan.block_spans(axis) for axis in range(3)]
    ends = ([span[0] for span in spans], [span[-1] for span in spans])
    return [PositionBox(_triple(a for a, _ in end), _triple(b for _, b in end)) for end in ends]


def padded(size_bytes: int) -> int:
    """Bytes of a tile, in whole words."""
    return -(-size_bytes // WIDE_BYTES) * WIDE_BYTES


def _triple(values: Iterable[int]) -> Triple:
    first, second, third = values
    return (first, second, third)

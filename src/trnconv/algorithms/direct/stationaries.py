"""Stationary matrices: which filter values stand where, and the columns they have in the image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from trnconv.algorithms.direct.accumulations import (
    Shift,
    TileSum,
    WindowProduct,
    grouped_accumulations,
    within,
)
from trnconv.algorithms.direct.array.m_layout import OutPart, out_tiles
from trnconv.algorithms.direct.block_types import frame_kinds
from trnconv.algorithms.direct.plan import PePacking
from trnconv.algorithms.direct.reduced_problem import DEPTH, ReducedProblem

Key = tuple[int, ...]


@dataclass(frozen=True)
class ChunkWeights:
    """The matrices of one window: input lines down, outputs across, one matrix for each view."""

    packing: PePacking
    out_number: int  # which tile of the pass
    lines: tuple[tuple[int, Key, int, int], ...]  # line, key from the first tap, channel, channels
    views: tuple[Shift, ...]
    part: OutPart  # of the tile

    @property
    def matrix_width(self) -> int:
        """Columns of one matrix."""
        return self.part.width

    @property
    def width(self) -> int:
        """Columns of all of them."""
        return len(self.views) * self.matrix_width


@dataclass
class WeightImage:
    """Columns of the packed weights, given out in the order of first use; equal ones only once."""

    chunks: dict[ChunkWeights, int] = field(default_factory=dict)  # and their first columns
    width: int = 0

    def place(self, chunk: ChunkWeights) -> int:
        """The first column of matrices that are used, and loaded, together."""
        first = self.chunks.setdefault(chunk, self.width)
        if first == self.width:
            self.width += chunk.width
        return first

    def matrix_columns(self) -> Iterator[tuple[int, int]]:
        """First and end column of each matrix, in order."""
        for chunk, first in self.chunks.items():
            step = chunk.matrix_width
            for column in range(first, first + chunk.width, step):
                yield column, column + step


def chunk_weights(
    reduced: ReducedProblem, accumulation: TileSum, product: WindowProduct
) -> ChunkWeights:
    """The matrices of one window of an accumulation. Frames count from its first tap."""
    first = reduced.advance(DEPTH, accumulation.frame)
    lines = tuple(
        (line.line, (line.key[0] - first, *line.key[1:]), line.channel, line.channels)
        for line in product.tile.lines
    )
    return ChunkWeights(
        accumulation.packing, accumulation.out_number, lines, product.views, product.part
    )


@lru_cache(maxsize=1024)
def image_width(
    reduced: ReducedProblem, passes: tuple[PePacking, ...], frames: int
) -> tuple[int, int]:
    """Columns that the weights of all blocks take, equal ones once; and the widest chunk."""
    image = WeightImage()
    width = widest = 0
    for kind in frame_kinds(reduced, frames):
        for group in grouped_accumulations(reduced, passes, kind.outputs, kind.present):
            for product in group.accumulation.products:
                chunk = chunk_weights(reduced, group.accumulation, product)
                before = image.width
                image.place(chunk)
                width += group.count * (image.width - before)
                widest = max(widest, chunk.width)
    return width, widest


def bias_width(reduced: ReducedProblem, passes: tuple[PePacking, ...], frames: int) -> int:
    """Columns that the bias takes at most: one for each tile of outputs of all blocks."""
    counts = {kind.outputs for kind in frame_kinds(reduced, frames)}
    used = {within(packing, count) for packing in passes for count in counts}
    return sum(len(out_tiles(packing)) for packing in used)

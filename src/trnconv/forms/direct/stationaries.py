"""Stationary matrices: which filter values stand where, and the columns they have in the image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from trnconv.forms.direct.array.m_lines import OutPart, out_tiles
from trnconv.forms.direct.block_types import frame_kinds
from trnconv.forms.direct.jobs import Shift, TileSum, WindowProduct, grouped_jobs, within
from trnconv.forms.direct.plan import ArrayFill
from trnconv.forms.direct.problem import DEPTH, Problem

Key = tuple[int, ...]


@dataclass(frozen=True)
class ChunkWeights:
    """The matrices of one window: input lines down, outputs across, one matrix for each view."""

    one: ArrayFill
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


def chunk_weights(problem: Problem, job: TileSum, product: WindowProduct) -> ChunkWeights:
    """The matrices of one window of a job. Frames count from the job's first tap."""
    first = problem.advance(DEPTH, job.frame)
    lines = tuple(
        (line.line, (line.key[0] - first, *line.key[1:]), line.channel, line.channels)
        for line in product.tile.lines
    )
    return ChunkWeights(job.one, job.out_number, lines, product.views, product.part)


@lru_cache(maxsize=1024)
def image_width(problem: Problem, passes: tuple[ArrayFill, ...], frames: int) -> tuple[int, int]:
    """Columns that the weights of all blocks take, equal ones once; and the widest chunk."""
    image = WeightImage()
    width = widest = 0
    for kind in frame_kinds(problem, frames):
        for group in grouped_jobs(problem, passes, kind.outputs, kind.present):
            for product in group.job.products:
                chunk = chunk_weights(problem, group.job, product)
                before = image.width
                image.place(chunk)
                width += group.count * (image.width - before)
                widest = max(widest, chunk.width)
    return width, widest


def bias_width(problem: Problem, passes: tuple[ArrayFill, ...], frames: int) -> int:
    """Columns that the bias takes at most: one for each tile of outputs of all blocks."""
    counts = {kind.outputs for kind in frame_kinds(problem, frames)}
    used = {within(fill, count) for fill in passes for count in counts}
    return sum(len(out_tiles(fill)) for fill in used)

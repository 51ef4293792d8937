"""Which channels, taps and columns share a matmul of a fast convolution: K and M.

Whole tiles of channels fill the partitions by themselves. What is left of the input channels, if it
is half a tile or less, stands on the partitions more than once, each copy shifted by one column (or
row), so that one matmul has several taps. What is left of the output channels, if it is half a tile
or less, shares the array's columns with the same channels of the next output column; if it is a
quarter or less, perhaps with those of the next three.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from trnconv.algorithms.winograd.plan import DEPTH, HEIGHT, WIDTH, WinogradPlan
from trnconv.geometry import REPLICATE, ConvShape

Shift = tuple[int, int]  # rows and columns
_MOST_STREAMED = 36  # matrices of one load of streamed weights; more would fill SBUF


@dataclass(frozen=True)
class InChannels:
    """A tile of input channels; its lines are the channels, once for each shift.

    If each copy begins where engines may, they make all but the first; else every one is loaded.
    """

    first: int
    channels: int
    shifts: tuple[Shift, ...] = ((0, 0),)
    copied: bool = False

    @property
    def lines(self) -> int:
        """Partitions."""
        return self.channels * len(self.shifts)

    @property
    def shifted(self) -> bool:
        """Whether channels stand on partitions more than once."""
        return len(self.shifts) > 1


@dataclass(frozen=True)
class OutChannels:
    """A tile of output channels with `stack` neighbouring columns of each.

    Engines begin at certain partitions only, so columns are `pitch` partitions apart. They share
    matmuls, or have column tiles of the array that work side by side, on machines that do that.
    """

    first: int
    channels: int
    stack: int = 1
    pitch: int = 0
    side_by_side: bool = False

    @property
    def lines(self) -> int:
        """Partitions."""
        return self.channels + (self.stack - 1) * self.pitch

    @property
    def shared(self) -> int:
        """Columns that share a matmul."""
        return 1 if self.side_by_side else self.stack

    @property
    def width(self) -> int:
        """Columns of a stationary matrix."""
        return self.channels if self.side_by_side else self.lines


@dataclass(frozen=True)
class Taps:
    """What one matmul sums: an input tile, read with a shift; copy k has the tap of its shift.

    `used` are the copies whose taps count here; the weights of the others are zero.
    """

    tile: int
    read: int  # frame, if tiles are rows
    row: int
    column: int
    used: tuple[int, ...]


def replicates(shape: ConvShape, axis: int) -> bool:
    """Whether there is padding along an axis that repeats its first and last position."""
    padded = shape.pad_before[axis] > 0 or shape.pad_after[axis] > 0
    return padded and shape.modes[axis] == REPLICATE


def in_channels(plan: WinogradPlan) -> tuple[InChannels, ...]:
    """The tiles of input channels."""
    pairs, machine = plan.paired_rows and not plan.by_rows, plan.machine
    by_engines = plan.prologue.scaled or replicates(plan.shape, WIDTH)
    return _in_channels(
        plan.shape, machine.partitions, pairs, machine.quadrant_partitions, by_engines
    )


@lru_cache(maxsize=256)
def _in_channels(
    shape: ConvShape,
    size: int,
    pairs: bool,  # noqa: FBT001
    quadrant: int,
    by_engines: bool,  # noqa: FBT001
) -> tuple[InChannels, ...]:
    """Copies have borders of their own, and are scaled where they were loaded.

    Engines that do this (`by_engines`) begin at quadrants only.
    """
    c_in = shape.c_in
    whole = [InChannels(first, size) for first in range(0, c_in - size + 1, size)]
    rest = c_in % size
    if rest == 0:
        return tuple(whole)
    first = c_in - rest
    copies = min(shape.kernel[WIDTH], size // rest)
    copied = rest % quadrant == 0
    if copies < 2 or (by_engines and not copied):
        return (*whole, InChannels(first, rest))
    columns = InChannels(first, rest, tuple((0, k) for k in range(copies)), copied)
    if pairs and copies == 2:
        return (*whole, columns, InChannels(first, rest, ((0, 0), (1, 0)), copied))
    return (*whole, columns)


def out_channels(plan: WinogradPlan) -> tuple[OutChannels, ...]:
    """The tiles of output channels."""
    machine = plan.machine
    quadrant = machine.quadrant_partitions if plan.shares_columns else 0
    stack = plan.stacked_columns
    parallel = machine.timing.column_tiles_parallel == 1
    return _out_channels(plan.shape.c_out, machine.partitions, quadrant, stack, parallel)


@lru_cache(maxsize=256)
def _out_channels(
    c_out: int,
    size: int,
    quadrant: int,
    stack: int,
    parallel: bool,  # noqa: FBT001
) -> tuple[OutChannels, ...]:
    """`quadrant` partitions is where engines may begin; 0 if there is no column to share with."""
    whole = [OutChannels(first, size) for first in range(0, c_out - size + 1, size)]
    rest = c_out % size
    if rest == 0:
        return tuple(whole)
    if quadrant == 0:
        return (*whole, OutChannels(c_out - rest, rest))
    pitch = quadrant if rest <= quadrant else size // stack
    return (*whole, OutChannels(c_out - rest, rest, stack, pitch, parallel and rest == pitch))


def may_stack(plan: WinogradPlan, columns: int) -> bool:
    """Whether a tile has room for so many columns of the output channels beyond whole tiles."""
    lines = plan.machine.partitions
    return 0 < plan.shape.c_out % lines * columns <= lines


def matrices_of_a_load(taps: int) -> int:
    """How many of a product's matrices one load brings, if weights are streamed."""
    return -(-taps // -(-taps // _MOST_STREAMED))


def taps_of(plan: WinogradPlan, stack: int) -> tuple[Taps, ...]:
    """The matmuls of one product, for output tiles of a stack."""
    kernel = plan.shape.kernel
    reads = kernel[DEPTH] if plan.by_rows and not plan.frame_pairs else 1
    rows = 1 if plan.by_rows else kernel[HEIGHT]
    return _taps(in_channels(plan), reads, rows, kernel[WIDTH] + stack - 1)


@lru_cache(maxsize=256)
def _taps(tiles: tuple[InChannels, ...], reads: int, rows: int, columns: int) -> tuple[Taps, ...]:
    taps = []
    for number, tile in enumerate(tiles):
        if tile.shifts[-1][0] > 0:
            continue
        paired = number + 1 < len(tiles) and tiles[number + 1].first == tile.first
        for read in range(reads):
            if paired:
                taps += _paired(number, read, rows, columns)
            else:
                copies = len(tile.shifts)
                taps += [
                    Taps(number, read, row, column, tuple(range(min(copies, columns - column))))
                    for row in range(rows)
                    for column in range(0, columns, copies)
                ]
    return tuple(taps)


def _paired(number: int, read: int, rows: int, columns: int) -> list[Taps]:
    """Pairs of columns; what is left of an odd number of columns in pairs of rows."""
    pairs = [
        Taps(number, read, row, column, (0, 1))
        for row in range(rows)
        for column in range(0, columns - 1, 2)
    ]
    if columns % 2:
        last = columns - 1
        pairs += [
            Taps(number + 1, read, row, last, tuple(range(min(2, rows - row))))
            for row in range(0, rows, 2)
        ]
    return pairs

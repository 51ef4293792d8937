"""Passes that sum every output in one order, however large the problem is and however it is cut.

An output is summed product by product, and inside a product line by line. What changes that is how
taps are shared out to products: lines that outputs have in common lie elsewhere for each of them,
and where frames do not exist, or taps go, everything moves up. So here all of it is counted from
the output's own first tap. There are four such orders. Which one is taken depends on the filters:

- deep: lines are stacked as deep as they fill the array, for one output position at a time;
- by columns: lines of all frames and rows of an output; columns are views. Outputs of neighbouring
  columns can share a matmul then: to each of them, the taps of the others are zeros;
- by rows: lines of all frames of an output; neighbouring rows can share a matmul too;
- apart: a product for each tap and tile of channels, so that neighbouring frames can share as well.

Whole tiles of output channels are summed deep. The others, if any, take what is least work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from math import inf

from nkisim.machine import PARTITIONS
from trnconv.algorithms.direct.array.k_layout import ReadNeeds, cover, line_tiles
from trnconv.algorithms.direct.array.pe_packing import (
    PackingRoom,
    Passes,
    blocks_of,
    distinct,
    fits,
    flat_stacks,
    joined,
    loading,
    of_any_size,
    phase_stacks,
    stacks_of,
    usable_levels,
    work,
)
from trnconv.algorithms.direct.plan import ASCENDING, BY_COLUMN, BY_FRAME, MIDDLE_FIRST, PePacking
from trnconv.algorithms.direct.reduced_problem import DEPTH, HEIGHT, WIDTH, ReducedProblem
from trnconv.geometry import ZEROS

_BY_ROWS = PePacking(0, 1, own_windows=True, order=ASCENDING)
_APART = PePacking(0, 1, apart=True, order=ASCENDING)
_STACKED_COLUMNS = (1, 2, 4)
# A line at a column shift is a DMA of its own. On windows as large as SBUF allows, it takes about
# as long as so many matmuls do.
_LINE_WORK = 0.1


def alike_candidates(reduced: ReducedProblem, room: PackingRoom) -> list[Passes]:
    """Ways to fill the array that all give the same sums, the least work first."""
    return joined([_block_candidates(reduced, part) for part in blocks_of(reduced, room)])


def keeps_orders(part: ReducedProblem, whole: ReducedProblem) -> bool:
    """Whether the first or last output channels of a problem are summed as in all of it."""
    mains = part.block_out < PARTITIONS or _main_order(part) == _main_order(whole)
    if part.block_out % PARTITIONS == 0:
        return mains
    rests = part.block_out % PARTITIONS == whole.block_out % PARTITIONS
    return mains and rests and _rest_order(part) == _rest_order(whole)


def _block_candidates(reduced: ReducedProblem, room: PackingRoom) -> list[Passes]:
    """Ways for one block of channels, or for a part of one: the order is that of the block."""
    first, end = room.channels
    block = first // reduced.block_out * reduced.block_out
    whole = block + reduced.block_out // PARTITIONS * PARTITIONS
    mains: Passes = ()
    if first < whole:
        mains = (_as(_main_order(reduced), _alone(reduced, first, min(end, whole))),)
    if end <= whole:
        return [mains]
    return [(*mains, packing) for packing in _rests(reduced, (max(first, whole), end), room)]


def _main_order(reduced: ReducedProblem) -> PePacking:
    return _deep(_filters(reduced), -(-reduced.block_out // PARTITIONS))


def _rest_order(reduced: ReducedProblem) -> PePacking:
    """The order of the channels that fill no tile."""
    tiles, rest = -(-reduced.block_out // PARTITIONS), reduced.block_out % PARTITIONS
    return _least_work(_filters(reduced), tiles, rest)


def _alone(reduced: ReducedProblem, first: int, end: int) -> PePacking:
    """Channels with every position in sums of its own."""
    return PePacking(first, end - first, *reduced.phases, separate=reduced.phases != (1, 1, 1))


def _filters(reduced: ReducedProblem) -> ReducedProblem:
    """All of a problem that an order may depend on: one phase, the one with the most taps."""
    most = [max(phases, key=len) for phases in reduced.reads]
    depth, height, width = [
        (tuple((shift - phase[0][0], tap) for tap, (shift, _) in enumerate(phase)),)
        for phase in most
    ]
    return replace(
        of_any_size(reduced),
        phases=(1, 1, 1),
        reads=(depth, height, width),
        modes=(ZEROS, ZEROS, reduced.modes[WIDTH]),
        pieces=(),
        merged=((), (), ()),
    )


def _as(order: PePacking, packing: PePacking) -> PePacking:
    """A pass with the order of another."""
    return replace(
        packing,
        levels=order.levels,
        own_windows=order.own_windows,
        apart=order.apart,
        order=order.order,
    )


@lru_cache(maxsize=1024)
def _deep(filters: ReducedProblem, tiles: int) -> PePacking:
    """Lines stacked so that one position of so many tiles of outputs takes the least work."""
    packing = PePacking(0, PARTITIONS, order=MIDDLE_FIRST)
    if filters.c_in % PARTITIONS == 0:
        return packing
    options = [
        replace(packing, levels=usable, own_windows=True)
        for usable in usable_levels(filters, packing)
    ]
    return min(options, key=lambda it: (_deep_work(filters, it, tiles), loading(it)))


def _deep_work(filters: ReducedProblem, packing: PePacking, tiles: int) -> float:
    """Matmuls for each position and tile; tiles share the windows."""
    return work(filters, packing, 1) + _LINE_WORK * _column_lines(filters, packing) / tiles


def _column_lines(filters: ReducedProblem, packing: PePacking) -> int:
    """Ranges of lines that are stacked by column shifts."""
    frames, rows, columns = [filters.shifts(axis, [0]) for axis in (DEPTH, HEIGHT, WIDTH)]
    needs = ReadNeeds(frames, rows, columns)
    level = packing.levels[0]
    tiles = line_tiles(level, tuple(needs.keys(level)), (0, filters.c_in))
    windows = cover(tiles, needs, packing.levels)
    return sum(len(tile.lines) for tile in windows if tile.level == BY_COLUMN)


def _by_columns(filters: ReducedProblem) -> PePacking:
    """Lines stacked by frames and rows so that there are the fewest matmuls."""
    packing = PePacking(0, PARTITIONS, own_windows=True, order=ASCENDING)
    levels = [
        usable
        for usable in usable_levels(filters, packing)
        if BY_COLUMN not in usable and usable != (BY_FRAME,)
    ]
    options = [replace(packing, levels=usable) for usable in levels]
    return min(options, key=lambda it: (work(filters, it, 1), loading(it)))


@lru_cache(maxsize=1024)
def _least_work(filters: ReducedProblem, tiles: int, channels: int) -> PePacking:
    """The order in which so many channels take the least work, if there is room for any stack."""
    deep = _deep(filters, tiles)
    least = {deep: _deep_work(filters, _as(deep, PePacking(0, channels)), tiles)}
    for order in (_by_columns(filters), _BY_ROWS, _APART):
        tried = _stacks(filters, order, (0, channels))
        least[order] = min((_stacked_work(filters, packing) for packing in tried), default=inf)
    return min(least, key=lambda order: least[order])


def _stacked_work(filters: ReducedProblem, packing: PePacking) -> float:
    """Matmuls for each output position; the first view may be cut, then zeros come before it."""
    return work(filters, packing, packing.frames) / packing.frames + 1 / packing.stack


def _rests(
    reduced: ReducedProblem, channels: tuple[int, int], room: PackingRoom
) -> Iterator[PePacking]:
    """Channels that fill no tile, with as many positions as there is room for."""
    order = _rest_order(reduced)
    stacks = [] if room.exact else _stacks(reduced, order, channels)
    fitting = [stack for stack in stacks if fits(reduced, stack, room)]
    fitting.sort(key=lambda packing: work(reduced, packing, room.frames))
    yield from dict.fromkeys([*distinct(fitting), _as(order, _alone(reduced, *channels))])


def _stacks(
    reduced: ReducedProblem, order: PePacking, channels: tuple[int, int]
) -> list[PePacking]:
    """Stacks of positions that leave every sum as it is: along axes whose taps are views."""
    if order.order == MIDDLE_FIRST:
        return []
    first, end = channels
    stacks = [*stacks_of(first, end - first, _STACKED_COLUMNS), *flat_stacks(first, end - first)]
    if reduced.phases != (1, 1, 1):
        stacks = phase_stacks(reduced, channels)
    by_rows = order.levels == (BY_FRAME,)
    return [
        _as(order, packing)
        for packing in stacks
        if (order.apart or packing.frames == 1) and (by_rows or packing.rows == 1)
    ]

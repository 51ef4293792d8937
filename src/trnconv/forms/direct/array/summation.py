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
from trnconv.forms.direct.array.fills import (
    FillRoom,
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
from trnconv.forms.direct.array.k_lines import ReadNeeds, cover, line_tiles
from trnconv.forms.direct.plan import ASCENDING, BY_COLUMN, BY_FRAME, MIDDLE_FIRST, ArrayFill
from trnconv.forms.direct.problem import DEPTH, HEIGHT, WIDTH, Problem
from trnconv.geometry import ZEROS

_BY_ROWS = ArrayFill(0, 1, own_windows=True, order=ASCENDING)
_APART = ArrayFill(0, 1, apart=True, order=ASCENDING)
_STACKED_COLUMNS = (1, 2, 4)
# A line at a column shift is a DMA of its own. On windows as large as SBUF allows, it takes about
# as long as so many matmuls do.
_LINE_WORK = 0.1


def alike_candidates(problem: Problem, room: FillRoom) -> list[Passes]:
    """Ways to fill the array that all give the same sums, the least work first."""
    return joined([_block_candidates(problem, part) for part in blocks_of(problem, room)])


def keeps_orders(part: Problem, whole: Problem) -> bool:
    """Whether the first or last output channels of a problem are summed as in all of it."""
    mains = part.block_out < PARTITIONS or _main_order(part) == _main_order(whole)
    if part.block_out % PARTITIONS == 0:
        return mains
    rests = part.block_out % PARTITIONS == whole.block_out % PARTITIONS
    return mains and rests and _rest_order(part) == _rest_order(whole)


def _block_candidates(problem: Problem, room: FillRoom) -> list[Passes]:
    """Ways for one block of channels, or for a part of one: the order is that of the block."""
    first, end = room.channels
    block = first // problem.block_out * problem.block_out
    whole = block + problem.block_out // PARTITIONS * PARTITIONS
    mains: Passes = ()
    if first < whole:
        mains = (_as(_main_order(problem), _alone(problem, first, min(end, whole))),)
    if end <= whole:
        return [mains]
    return [(*mains, fill) for fill in _rests(problem, (max(first, whole), end), room)]


def _main_order(problem: Problem) -> ArrayFill:
    return _deep(_filters(problem), -(-problem.block_out // PARTITIONS))


def _rest_order(problem: Problem) -> ArrayFill:
    """The order of the channels that fill no tile."""
    tiles, rest = -(-problem.block_out // PARTITIONS), problem.block_out % PARTITIONS
    return _least_work(_filters(problem), tiles, rest)


def _alone(problem: Problem, first: int, end: int) -> ArrayFill:
    """Channels with every position in sums of its own."""
    return ArrayFill(first, end - first, *problem.phases, separate=problem.phases != (1, 1, 1))


def _filters(problem: Problem) -> Problem:
    """All of a problem that an order may depend on: one phase, the one with the most taps."""
    most = [max(phases, key=len) for phases in problem.reads]
    depth, height, width = [
        (tuple((shift - phase[0][0], tap) for tap, (shift, _) in enumerate(phase)),)
        for phase in most
    ]
    return replace(
        of_any_size(problem),
        phases=(1, 1, 1),
        reads=(depth, height, width),
        modes=(ZEROS, ZEROS, problem.modes[WIDTH]),
        pieces=(),
        merged=((), (), ()),
    )


def _as(order: ArrayFill, one: ArrayFill) -> ArrayFill:
    """A pass with the order of another."""
    return replace(
        one,
        levels=order.levels,
        own_windows=order.own_windows,
        apart=order.apart,
        order=order.order,
    )


@lru_cache(maxsize=1024)
def _deep(filters: Problem, tiles: int) -> ArrayFill:
    """Lines stacked so that one position of so many tiles of outputs takes the least work."""
    one = ArrayFill(0, PARTITIONS, order=MIDDLE_FIRST)
    if filters.c_in % PARTITIONS == 0:
        return one
    options = [
        replace(one, levels=usable, own_windows=True) for usable in usable_levels(filters, one)
    ]
    return min(options, key=lambda it: (_deep_work(filters, it, tiles), loading(it)))


def _deep_work(filters: Problem, one: ArrayFill, tiles: int) -> float:
    """Matmuls for each position and tile; tiles share the windows."""
    return work(filters, one, 1) + _LINE_WORK * _column_lines(filters, one) / tiles


def _column_lines(filters: Problem, one: ArrayFill) -> int:
    """Ranges of lines that are stacked by column shifts."""
    frames, rows, columns = [filters.shifts(axis, [0]) for axis in (DEPTH, HEIGHT, WIDTH)]
    needs = ReadNeeds(frames, rows, columns)
    level = one.levels[0]
    tiles = line_tiles(level, tuple(needs.keys(level)), (0, filters.c_in))
    windows = cover(tiles, needs, one.levels)
    return sum(len(tile.lines) for tile in windows if tile.level == BY_COLUMN)


def _by_columns(filters: Problem) -> ArrayFill:
    """Lines stacked by frames and rows so that there are the fewest matmuls."""
    one = ArrayFill(0, PARTITIONS, own_windows=True, order=ASCENDING)
    levels = [
        usable
        for usable in usable_levels(filters, one)
        if BY_COLUMN not in usable and usable != (BY_FRAME,)
    ]
    options = [replace(one, levels=usable) for usable in levels]
    return min(options, key=lambda it: (work(filters, it, 1), loading(it)))


@lru_cache(maxsize=1024)
def _least_work(filters: Problem, tiles: int, channels: int) -> ArrayFill:
    """The order in which so many channels take the least work, if there is room for any stack."""
    deep = _deep(filters, tiles)
    least = {deep: _deep_work(filters, _as(deep, ArrayFill(0, channels)), tiles)}
    for order in (_by_columns(filters), _BY_ROWS, _APART):
        tried = _stacks(filters, order, (0, channels))
        least[order] = min((_stacked_work(filters, fill) for fill in tried), default=inf)
    return min(least, key=lambda order: least[order])


def _stacked_work(filters: Problem, one: ArrayFill) -> float:
    """Matmuls for each output position; the first view may be cut, then zeros come before it."""
    return work(filters, one, one.frames) / one.frames + 1 / one.stack


def _rests(problem: Problem, channels: tuple[int, int], room: FillRoom) -> Iterator[ArrayFill]:
    """Channels that fill no tile, with as many positions as there is room for."""
    order = _rest_order(problem)
    stacks = [] if room.exact else _stacks(problem, order, channels)
    fitting = [stack for stack in stacks if fits(problem, stack, room)]
    fitting.sort(key=lambda one: work(problem, one, room.frames))
    yield from dict.fromkeys([*distinct(fitting), _as(order, _alone(problem, *channels))])


def _stacks(problem: Problem, order: ArrayFill, channels: tuple[int, int]) -> list[ArrayFill]:
    """Stacks of positions that leave every sum as it is: along axes whose taps are views."""
    if order.order == MIDDLE_FIRST:
        return []
    first, end = channels
    found = [*stacks_of(first, end - first, _STACKED_COLUMNS), *flat_stacks(first, end - first)]
    if problem.phases != (1, 1, 1):
        found = phase_stacks(problem, channels)
    by_rows = order.levels == (BY_FRAME,)
    return [
        _as(order, fill)
        for fill in found
        if (order.apart or fill.frames == 1) and (by_rows or fill.rows == 1)
    ]

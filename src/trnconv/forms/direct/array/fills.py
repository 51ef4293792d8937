"""Candidates for the array: how output channels are stacked on M and input lines on K."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

from nkisim.machine import PARTITIONS
from trnconv.forms.direct.array.m_lines import out_tiles, phase_pitch
from trnconv.forms.direct.plan import BY_COLUMN, BY_FRAME, BY_ROW, ArrayFill
from trnconv.forms.direct.problem import DEPTH, HEIGHT, WIDTH, Problem
from trnconv.geometry import ZEROS

LEVELS = (
    (BY_FRAME,),
    (BY_FRAME, BY_ROW),
    (BY_FRAME, BY_ROW, BY_COLUMN),
    (BY_ROW,),
    (BY_ROW, BY_COLUMN),
    (BY_COLUMN,),
)
_STACKED_FRAMES = (1, 2, 3, 4)
_STACKED_ROWS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
_STACKED_COLUMNS = (1, 2)
_FLAT_STACKS = (2, 4, 8)
_TILE_COLUMNS = (32, 64)
_UNIT_FRAMES = (1, 2)
_UNIT_ROWS = (1, 2, 3, 5)
_UNITS = (1, 2, 4)
_KEPT_STACKS = 3
_KEPT_LEVELS = 2

Passes = tuple[ArrayFill, ...]


@dataclass(frozen=True)
class FillRoom:
    """What passes may use: channels from the first to the end, frames and rows of a block."""

    channels: tuple[int, int]
    frames: int
    rows: int
    exact: bool = False  # keep non-finite inputs to the outputs that read them
    column_tiles: bool = False  # the machine runs them in parallel


def pass_candidates(problem: Problem, room: FillRoom) -> list[Passes]:
    """Ways to fill the array, the least work first. Blocks of channels are all filled alike."""
    return joined([_block_candidates(problem, part) for part in blocks_of(problem, room)])


def joined(by_block: list[list[Passes]]) -> list[Passes]:
    """Ways for all blocks of channels, from those for each block."""
    ways = max(len(options) for options in by_block)
    return [
        tuple(fill for options in by_block for fill in options[min(way, len(options) - 1)])
        for way in range(ways)
    ]


def blocks_of(problem: Problem, room: FillRoom) -> list[FillRoom]:
    """The channels of a room, block by block."""
    first, end = room.channels
    block = problem.block_out
    starts = range(first // block * block, end, block)
    return [
        replace(room, channels=(max(first, start), min(end, start + block))) for start in starts
    ]


def _block_candidates(problem: Problem, room: FillRoom) -> list[Passes]:
    """Ways to fill the array for one block of channels.

    Exact ones have no stacks and no zeros that are shared; others fill up what is left of the array
    by stacks of positions.
    """
    (first, end), frames, exact = room.channels, room.frames, room.exact
    if problem.phases != (1, 1, 1):
        return _phased(problem, room)
    whole = (end - first) // PARTITIONS * PARTITIONS
    rest = end - first - whole
    mains = _best_levels(problem, ArrayFill(first, whole or rest), frames, exact=exact)
    found: list[Passes] = [
        (fill,)
        for fill in _best_levels(problem, ArrayFill(first, end - first), frames, exact=exact)
    ]
    if not exact and rest:
        rests = list(_rests(problem, (first + whole, rest), room))
        if room.column_tiles:
            rests += _column_tiled(problem, (first + whole, rest), room)
        found += (
            [(main, fill) for main in mains for fill in rests]
            if whole
            else [(fill,) for fill in rests]
        )
        found += [(fill,) for fill in _flat(problem, (first, end - first), room)]
    return _least_work_first(problem, found, frames)


def _least_work_first(problem: Problem, found: list[Passes], frames: int) -> list[Passes]:
    unique = list(dict.fromkeys(found))
    return sorted(unique, key=lambda passes: sum(work(problem, fill, frames) for fill in passes))


def _phased(problem: Problem, room: FillRoom) -> list[Passes]:
    """Phases of a transposed convolution: each in sums of its own, or stacked if they are small.

    Channels beyond whole tiles leave much of the array idle; their columns share it if they can.
    """
    first, end = room.channels
    apart = ArrayFill(first, end - first, *problem.phases, separate=True)
    found: list[Passes] = [(fill,) for fill in _best_levels_of(problem, [apart], room)]
    if room.exact:
        return _least_work_first(problem, found, room.frames)
    stacks = [stack for stack in phase_stacks(problem, room.channels) if fits(problem, stack, room)]
    found += [(fill,) for fill in _best_levels_of(problem, stacks, room)]
    whole = (end - first) // PARTITIONS * PARTITIONS
    rest = replace(apart, first_channel=first + whole, channels=end - first - whole)
    mains = _best_levels_of(problem, [replace(apart, channels=whole)], room) if whole else []
    for fill in _best_levels_of(problem, _paired_columns(rest), room):
        found += [(main, fill) for main in mains] or [(fill,)]
    return _least_work_first(problem, found, room.frames)


def _best_levels_of(problem: Problem, passes: list[ArrayFill], room: FillRoom) -> list[ArrayFill]:
    found = [_best_levels(problem, fill, room.frames, exact=room.exact) for fill in passes]
    return [leveled for options in found for leveled in options]


def _paired_columns(one: ArrayFill) -> list[ArrayFill]:
    """The columns of a separate pass in the same sums, if the array has room for them."""
    pairs = one.columns > 1 and one.channels > 0 and _on_array(replace(one, frames=1, rows=1))
    return [replace(one, pairs_columns=True)] if pairs else []


def phase_stacks(problem: Problem, channels: tuple[int, int]) -> list[ArrayFill]:
    """Whole steps of all phases whose channels, from the first to the end, fit the array."""
    first, end = channels
    frames, rows, columns = problem.phases
    stacks = [
        ArrayFill(first, end - first, frames * more_frames, rows * more_rows, columns)
        for more_frames, more_rows in product((1, 2), (1, 2, 4))
    ]
    return [stack for stack in stacks if _on_array(stack)]


def work(problem: Problem, one: ArrayFill, frames: int) -> float:
    """Matmuls of a pass for each output position, over all frames of a block."""
    return _work(of_any_size(problem), replace(one, first_channel=0), frames)


def of_any_size(problem: Problem) -> Problem:
    """The problem without what has no influence on matmuls, so that equal ones are counted once."""
    none = (0, 0, 0)
    strides = (0, 0, 0, 0, 0)
    return replace(
        problem,
        images=1,
        channels=problem.c_in,
        c_out=0,
        block_out=1,
        size=none,
        out=none,
        pad=none,
        x_strides=strides,
        y_strides=strides,
    )


@lru_cache(maxsize=65536)
def _work(problem: Problem, one: ArrayFill, frames: int) -> float:
    starts = [*range(0, frames - one.frames, one.frames), frames - one.frames]
    total = 0.0
    every_row = problem.shifts(HEIGHT, range(one.rows))
    for tile, part in [(out, part) for out in out_tiles(one) for part in out.parts]:
        read = [problem.shifts(axis, tile.stacked(axis, part)) for axis in range(3)]
        if not all(read):
            continue
        for start in starts:
            first = problem.advance(DEPTH, start)
            runs = _runs([first + shift for shift in read[0]])
            if one.levels[0] > BY_FRAME:
                height = len(every_row) if not one.own_windows else len(read[1])
                runs = _row_runs(runs, every_row.index(read[1][0]), len(read[1]), height)
            counts = [len(shifts) for shifts in read]
            total += _matmuls(problem.c_in, one, runs, counts) / len(tile.parts)
    return total / (one.rows * one.columns)


def _runs(keys: list[int]) -> list[tuple[int, int]]:
    """Keys as (first, end) of consecutive ones."""
    runs = [(keys[0], keys[0] + 1)]
    for key in keys[1:]:
        if key == runs[-1][1]:
            runs[-1] = (runs[-1][0], key + 1)
        else:
            runs.append((key, key + 1))
    return runs


def _row_runs(
    frame_runs: list[tuple[int, int]], first: int, count: int, height: int
) -> list[tuple[int, int]]:
    """The same for lines of a frame and a row shift, `height` shifts to a frame."""
    if count == height:
        return [(begin * height, end * height) for begin, end in frame_runs]
    frames = [frame for begin, end in frame_runs for frame in range(begin, end)]
    return [(frame * height + first, frame * height + first + count) for frame in frames]


def _matmuls(c_in: int, one: ArrayFill, runs: list[tuple[int, int]], read: list[int]) -> int:
    """Products of one tile of outputs: lines in tiles of the array's height, level by level."""
    views = {BY_FRAME: read[1] * read[2], BY_ROW: read[2], BY_COLUMN: 1}
    level = one.levels[0]
    if one.apart:
        return sum(end - begin for begin, end in runs) * -(-c_in // PARTITIONS) * views[level]
    if level == BY_COLUMN:
        runs = [(begin * read[1] * read[2], end * read[1] * read[2]) for begin, end in runs]
    shift = runs[0][0] * c_in if one.own_windows else 0
    lines = [(begin * c_in - shift, end * c_in - shift) for begin, end in runs]
    if len(one.levels) == 1:
        touched = sum(-(-end // PARTITIONS) - begin // PARTITIONS for begin, end in lines)
        return touched * views[level]
    full = sum(max(0, end // PARTITIONS - -(-begin // PARTITIONS)) for begin, end in lines)
    left = sum(end - begin for begin, end in lines) - full * PARTITIONS
    total = full * views[level]
    for deeper in one.levels[1:]:
        left *= views[level] // views[deeper]
        level = deeper
        whole = left // PARTITIONS if deeper != one.levels[-1] else -(-left // PARTITIONS)
        total += whole * views[deeper]
        left -= whole * PARTITIONS
    return total


def _best_levels(
    problem: Problem, one: ArrayFill, frames: int, *, exact: bool = False
) -> list[ArrayFill]:
    """The pass at the levels that take the fewest matmuls; plain windows are always among them."""
    plain = one.at((BY_FRAME,), exact)
    if problem.c_in % PARTITIONS == 0:
        return [plain]
    options = [
        one.at(levels, own) for levels in usable_levels(problem, one) for own in (False, True)
    ]
    if exact:
        options = [option for option in options if option.own_windows]
    ranked = sorted(options, key=lambda it: (work(problem, it, frames), loading(it)))
    whole_rows = [option for option in ranked if BY_COLUMN not in option.levels]  # far fewer DMAs
    return list(dict.fromkeys([*ranked[:_KEPT_LEVELS], whole_rows[0], plain]))


def usable_levels(problem: Problem, one: ArrayFill) -> list[tuple[int, ...]]:
    """Ways to stack input lines that DMA can load well."""
    apart = problem.advance(WIDTH, one.columns) > 1  # then DMA would fetch single elements
    filled = problem.modes[WIDTH] != ZEROS  # borders are copied on chip, on whole windows
    return [levels for levels in LEVELS if not ((apart or filled) and BY_COLUMN in levels)]


def loading(one: ArrayFill) -> tuple[int, bool, int]:
    """How much more than plain windows a pass loads: deeper levels hold lines several times."""
    return (one.levels[0], one.own_windows, len(one.levels))


def _rests(problem: Problem, channels: tuple[int, int], room: FillRoom) -> Iterator[ArrayFill]:
    """Stacks of positions for fewer channels than the array has columns."""
    stacks = [stack for stack in stacks_of(*channels) if fits(problem, stack, room)]
    stacks.sort(key=lambda one: ideal_work(problem, one))
    for stack in distinct(stacks):
        yield from _best_levels(problem, stack, room.frames)[:_KEPT_LEVELS]


def stacks_of(
    first: int, count: int, columns: tuple[int, ...] = _STACKED_COLUMNS
) -> list[ArrayFill]:
    """Positions whose channels fit the array together."""
    stacks = [
        ArrayFill(first, count, *stack)
        for stack in product(_STACKED_FRAMES, _STACKED_ROWS, columns)
    ]
    return [stack for stack in stacks if _on_array(stack)]


def _on_array(one: ArrayFill) -> bool:
    width = phase_pitch(one) * (one.columns - 1) + one.channels * one.frames * one.rows
    return width <= PARTITIONS


def fits(problem: Problem, one: ArrayFill, room: FillRoom) -> bool:
    """Whether a block has so many frames, rows and columns."""
    high = one.frames <= room.frames and one.rows <= room.rows
    return high and one.columns <= problem.out[WIDTH]


def distinct(stacks: list[ArrayFill]) -> list[ArrayFill]:
    """The best stack, the best without column phases, and the best of frames or rows alone."""
    without_phases = [stack for stack in stacks if stack.columns == 1]
    of_rows = [stack for stack in without_phases if stack.frames == 1]
    of_frames = [stack for stack in without_phases if stack.rows == 1]
    kept = [*stacks[:_KEPT_STACKS], *without_phases[:1], *of_rows[:1], *of_frames[:1]]
    return list(dict.fromkeys(kept))


def ideal_work(problem: Problem, one: ArrayFill) -> float:
    """Matmuls for each output of a pass if lines fill every window: what a stack can bring."""
    lines = problem.c_in
    for axis, stack in ((DEPTH, one.frames), (HEIGHT, one.rows), (WIDTH, one.columns)):
        lines *= len(problem.shifts(axis, range(stack)))
    return lines / PARTITIONS / one.stack


def _flat(problem: Problem, channels: tuple[int, int], room: FillRoom) -> Iterator[ArrayFill]:
    """Channels of several frames, or rows, one after the other: full tiles of any channels."""
    for stack in flat_stacks(*channels):
        if fits(problem, stack, room):
            yield from _best_levels(problem, stack, room.frames)[:1]


def flat_stacks(first: int, count: int) -> Iterator[ArrayFill]:
    """Positions whose channels, one after the other, take fewer tiles than each by itself."""
    for stack in _FLAT_STACKS:
        tiles = -(-count * stack // PARTITIONS)
        fills = tiles < stack * -(-count // PARTITIONS)
        if fills and count * stack > PARTITIONS:
            yield ArrayFill(first, count, frames=stack)
            yield ArrayFill(first, count, rows=stack)


def _column_tiled(problem: Problem, channels: tuple[int, int], room: FillRoom) -> list[ArrayFill]:
    """Column tiles side by side: units of a few positions, enough of them to fill the array."""
    first, count = channels
    found: list[ArrayFill] = []
    for columns, (frames, rows), (more_frames, more_rows) in product(
        _TILE_COLUMNS, product(_UNIT_FRAMES, _UNIT_ROWS), product(_UNITS, _UNITS)
    ):
        lines = count * frames * rows
        alone = (frames, rows) == (1, 1)
        blocks = -(-count // columns) if alone else 1
        full = more_frames * more_rows * blocks % (PARTITIONS // columns) == 0
        fits = more_frames * frames <= room.frames and more_rows * rows <= room.rows
        if full and fits and (alone or lines <= columns):
            found.append(
                ArrayFill(
                    first,
                    count,
                    frames=more_frames * frames,
                    rows=more_rows * rows,
                    tile_columns=columns,
                    unit=(frames, rows),
                )
            )
    tried = [best for fill in found for best in _best_levels(problem, fill, room.frames)[:1]]
    return sorted(tried, key=lambda one: work(problem, one, room.frames))[:_KEPT_STACKS]

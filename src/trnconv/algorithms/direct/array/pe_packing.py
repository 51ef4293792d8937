"""Candidates for the array: how output channels are stacked on M and input lines on K."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

from nkisim.machine import PARTITIONS
from trnconv.algorithms.direct.array.m_layout import out_tiles, phase_pitch
from trnconv.algorithms.direct.plan import BY_COLUMN, BY_FRAME, BY_ROW, PePacking
from trnconv.algorithms.direct.reduced_problem import DEPTH, HEIGHT, WIDTH, ReducedProblem
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

Passes = tuple[PePacking, ...]


@dataclass(frozen=True)
class PackingRoom:
    """What passes may use: channels from the first to the end, frames and rows of a block."""

    channels: tuple[int, int]
    frames: int
    rows: int
    exact: bool = False  # keep non-finite inputs to the outputs that read them
    column_tiles: bool = False  # the machine runs them in parallel


def pass_candidates(reduced: ReducedProblem, room: PackingRoom) -> list[Passes]:
    """Ways to fill the array, the least work first. Blocks of channels are all filled alike."""
    return joined([_block_candidates(reduced, part) for part in blocks_of(reduced, room)])


def joined(by_block: list[list[Passes]]) -> list[Passes]:
    """Ways for all blocks of channels, from those for each block."""
    ways = max(len(options) for options in by_block)
    return [
        tuple(packing for options in by_block for packing in options[min(way, len(options) - 1)])
        for way in range(ways)
    ]


def blocks_of(reduced: ReducedProblem, room: PackingRoom) -> list[PackingRoom]:
    """The channels of a room, block by block."""
    first, end = room.channels
    block = reduced.block_out
    starts = range(first // block * block, end, block)
    return [
        replace(room, channels=(max(first, start), min(end, start + block))) for start in starts
    ]


def _block_candidates(reduced: ReducedProblem, room: PackingRoom) -> list[Passes]:
    """Ways to fill the array for one block of channels.

    Exact ones have no stacks and no zeros that are shared; others fill up what is left of the array
    by stacks of positions.
    """
    (first, end), frames, exact = room.channels, room.frames, room.exact
    if reduced.phases != (1, 1, 1):
        return _phased(reduced, room)
    whole = (end - first) // PARTITIONS * PARTITIONS
    rest = end - first - whole
    mains = _best_levels(reduced, PePacking(first, whole or rest), frames, exact=exact)
    candidates: list[Passes] = [
        (packing,)
        for packing in _best_levels(reduced, PePacking(first, end - first), frames, exact=exact)
    ]
    if not exact and rest:
        rests = list(_rests(reduced, (first + whole, rest), room))
        if room.column_tiles:
            rests += _column_tiled(reduced, (first + whole, rest), room)
        candidates += (
            [(main, packing) for main in mains for packing in rests]
            if whole
            else [(packing,) for packing in rests]
        )
        candidates += [(packing,) for packing in _flat(reduced, (first, end - first), room)]
    return _least_work_first(reduced, candidates, frames)


def _least_work_first(
    reduced: ReducedProblem, candidates: list[Passes], frames: int
) -> list[Passes]:
    unique = list(dict.fromkeys(candidates))
    return sorted(
        unique, key=lambda passes: sum(work(reduced, packing, frames) for packing in passes)
    )


def _phased(reduced: ReducedProblem, room: PackingRoom) -> list[Passes]:
    """Phases of a transposed convolution: each in sums of its own, or stacked if they are small.

    Channels beyond whole tiles leave much of the array idle; their columns share it if they can.
    """
    first, end = room.channels
    apart = PePacking(first, end - first, *reduced.phases, separate=True)
    candidates: list[Passes] = [(packing,) for packing in _best_levels_of(reduced, [apart], room)]
    if room.exact:
        return _least_work_first(reduced, candidates, room.frames)
    stacks = [stack for stack in phase_stacks(reduced, room.channels) if fits(reduced, stack, room)]
    candidates += [(packing,) for packing in _best_levels_of(reduced, stacks, room)]
    whole = (end - first) // PARTITIONS * PARTITIONS
    rest = replace(apart, first_channel=first + whole, channels=end - first - whole)
    mains = _best_levels_of(reduced, [replace(apart, channels=whole)], room) if whole else []
    for packing in _best_levels_of(reduced, _paired_columns(rest), room):
        candidates += [(main, packing) for main in mains] or [(packing,)]
    return _least_work_first(reduced, candidates, room.frames)


def _best_levels_of(
    reduced: ReducedProblem, passes: list[PePacking], room: PackingRoom
) -> list[PePacking]:
    found = [_best_levels(reduced, packing, room.frames, exact=room.exact) for packing in passes]
    return [leveled for options in found for leveled in options]


def _paired_columns(packing: PePacking) -> list[PePacking]:
    """The columns of a separate pass in the same sums, if the array has room for them."""
    pairs = (
        packing.columns > 1
        and packing.channels > 0
        and _on_array(replace(packing, frames=1, rows=1))
    )
    return [replace(packing, pairs_columns=True)] if pairs else []


def phase_stacks(reduced: ReducedProblem, channels: tuple[int, int]) -> list[PePacking]:
    """Whole steps of all phases whose channels, from the first to the end, fit the array."""
    first, end = channels
    frames, rows, columns = reduced.phases
    stacks = [
        PePacking(first, end - first, frames * more_frames, rows * more_rows, columns)
        for more_frames, more_rows in product((1, 2), (1, 2, 4))
    ]
    return [stack for stack in stacks if _on_array(stack)]


def work(reduced: ReducedProblem, packing: PePacking, frames: int) -> float:
    """Matmuls of a pass for each output position, over all frames of a block."""
    return _work(of_any_size(reduced), replace(packing, first_channel=0), frames)


def of_any_size(reduced: ReducedProblem) -> ReducedProblem:
    """The problem without what has no influence on matmuls, so that equal ones are counted once."""
    none = (0, 0, 0)
    strides = (0, 0, 0, 0, 0)
    return replace(
        reduced,
        images=1,
        channels=reduced.c_in,
        c_out=0,
        block_out=1,
        size=none,
        out=none,
        pad=none,
        x_strides=strides,
        y_strides=strides,
    )


@lru_cache(maxsize=65536)
def _work(reduced: ReducedProblem, packing: PePacking, frames: int) -> float:
    starts = [*range(0, frames - packing.frames, packing.frames), frames - packing.frames]
    total = 0.0
    every_row = reduced.shifts(HEIGHT, range(packing.rows))
    for tile, part in [(out, part) for out in out_tiles(packing) for part in out.parts]:
        read = [reduced.shifts(axis, tile.stacked(axis, part)) for axis in range(3)]
        if not all(read):
            continue
        for start in starts:
            first = reduced.advance(DEPTH, start)
            runs = _runs([first + shift for shift in read[0]])
            if packing.levels[0] > BY_FRAME:
                height = len(every_row) if not packing.own_windows else len(read[1])
                runs = _row_runs(runs, every_row.index(read[1][0]), len(read[1]), height)
            counts = [len(shifts) for shifts in read]
            total += _matmuls(reduced.c_in, packing, runs, counts) / len(tile.parts)
    return total / (packing.rows * packing.columns)


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


def _matmuls(c_in: int, packing: PePacking, runs: list[tuple[int, int]], read: list[int]) -> int:
    """Products of one tile of outputs: lines in tiles of the array's height, level by level."""
    views = {BY_FRAME: read[1] * read[2], BY_ROW: read[2], BY_COLUMN: 1}
    level = packing.levels[0]
    if packing.apart:
        return sum(end - begin for begin, end in runs) * -(-c_in // PARTITIONS) * views[level]
    if level == BY_COLUMN:
        runs = [(begin * read[1] * read[2], end * read[1] * read[2]) for begin, end in runs]
    shift = runs[0][0] * c_in if packing.own_windows else 0
    lines = [(begin * c_in - shift, end * c_in - shift) for begin, end in runs]
    if len(packing.levels) == 1:
        touched = sum(-(-end // PARTITIONS) - begin // PARTITIONS for begin, end in lines)
        return touched * views[level]
    full = sum(max(0, end // PARTITIONS - -(-begin // PARTITIONS)) for begin, end in lines)
    left = sum(end - begin for begin, end in lines) - full * PARTITIONS
    total = full * views[level]
    for deeper in packing.levels[1:]:
        left *= views[level] // views[deeper]
        level = deeper
        whole = left // PARTITIONS if deeper != packing.levels[-1] else -(-left // PARTITIONS)
        total += whole * views[deeper]
        left -= whole * PARTITIONS
    return total


def _best_levels(
    reduced: ReducedProblem, packing: PePacking, frames: int, *, exact: bool = False
) -> list[PePacking]:
    """The pass at the levels that take the fewest matmuls; plain windows are always among them."""
    plain = packing.at((BY_FRAME,), exact)
    if reduced.c_in % PARTITIONS == 0:
        return [plain]
    options = [
        packing.at(levels, own)
        for levels in usable_levels(reduced, packing)
        for own in (False, True)
    ]
    if exact:
        options = [option for option in options if option.own_windows]
    ranked = sorted(options, key=lambda it: (work(reduced, it, frames), loading(it)))
    whole_rows = [option for option in ranked if BY_COLUMN not in option.levels]  # far fewer DMAs
    return list(dict.fromkeys([*ranked[:_KEPT_LEVELS], whole_rows[0], plain]))


def usable_levels(reduced: ReducedProblem, packing: PePacking) -> list[tuple[int, ...]]:
    """Ways to stack input lines that DMA can load well."""
    apart = reduced.advance(WIDTH, packing.columns) > 1  # then DMA would fetch single elements
    filled = reduced.modes[WIDTH] != ZEROS  # borders are copied on chip, on whole windows
    return [levels for levels in LEVELS if not ((apart or filled) and BY_COLUMN in levels)]


def loading(packing: PePacking) -> tuple[int, bool, int]:
    """How much more than plain windows a pass loads: deeper levels hold lines several times."""
    return (packing.levels[0], packing.own_windows, len(packing.levels))


def _rests(
    reduced: ReducedProblem, channels: tuple[int, int], room: PackingRoom
) -> Iterator[PePacking]:
    """Stacks of positions for fewer channels than the array has columns."""
    stacks = [stack for stack in stacks_of(*channels) if fits(reduced, stack, room)]
    stacks.sort(key=lambda packing: ideal_work(reduced, packing))
    for stack in distinct(stacks):
        yield from _best_levels(reduced, stack, room.frames)[:_KEPT_LEVELS]


def stacks_of(
    first: int, count: int, columns: tuple[int, ...] = _STACKED_COLUMNS
) -> list[PePacking]:
    """Positions whose channels fit the array together."""
    stacks = [
        PePacking(first, count, *stack)
        for stack in product(_STACKED_FRAMES, _STACKED_ROWS, columns)
    ]
    return [stack for stack in stacks if _on_array(stack)]


def _on_array(packing: PePacking) -> bool:
    width = (
        phase_pitch(packing) * (packing.columns - 1)
        + packing.channels * packing.frames * packing.rows
    )
    return width <= PARTITIONS


def fits(reduced: ReducedProblem, packing: PePacking, room: PackingRoom) -> bool:
    """Whether a block has so many frames, rows and columns."""
    high = packing.frames <= room.frames and packing.rows <= room.rows
    return high and packing.columns <= reduced.out[WIDTH]


def distinct(stacks: list[PePacking]) -> list[PePacking]:
    """The best stack, the best without column phases, and the best of frames or rows alone."""
    without_phases = [stack for stack in stacks if stack.columns == 1]
    of_rows = [stack for stack in without_phases if stack.frames == 1]
    of_frames = [stack for stack in without_phases if stack.rows == 1]
    kept = [*stacks[:_KEPT_STACKS], *without_phases[:1], *of_rows[:1], *of_frames[:1]]
    return list(dict.fromkeys(kept))


def ideal_work(reduced: ReducedProblem, packing: PePacking) -> float:
    """Matmuls for each output of a pass if lines fill every window: what a stack can bring."""
    lines = reduced.c_in
    for axis, stack in ((DEPTH, packing.frames), (HEIGHT, packing.rows), (WIDTH, packing.columns)):
        lines *= len(reduced.shifts(axis, range(stack)))
    return lines / PARTITIONS / packing.stack


def _flat(
    reduced: ReducedProblem, channels: tuple[int, int], room: PackingRoom
) -> Iterator[PePacking]:
    """Channels of several frames, or rows, one after the other: full tiles of any channels."""
    for stack in flat_stacks(*channels):
        if fits(reduced, stack, room):
            yield from _best_levels(reduced, stack, room.frames)[:1]


def flat_stacks(first: int, count: int) -> Iterator[PePacking]:
    """Positions whose channels, one after the other, take fewer tiles than each by itself."""
    for stack in _FLAT_STACKS:
        tiles = -(-count * stack // PARTITIONS)
        stacks_fill = tiles < stack * -(-count // PARTITIONS)
        if stacks_fill and count * stack > PARTITIONS:
            yield PePacking(first, count, frames=stack)
            yield PePacking(first, count, rows=stack)


def _column_tiled(
    reduced: ReducedProblem, channels: tuple[int, int], room: PackingRoom
) -> list[PePacking]:
    """Column tiles side by side: units of a few positions, enough of them to fill the array."""
    first, count = channels
    packings: list[PePacking] = []
    for columns, (frames, rows), (more_frames, more_rows) in product(
        _TILE_COLUMNS, product(_UNIT_FRAMES, _UNIT_ROWS), product(_UNITS, _UNITS)
    ):
        lines = count * frames * rows
        alone = (frames, rows) == (1, 1)
        blocks = -(-count // columns) if alone else 1
        full = more_frames * more_rows * blocks % (PARTITIONS // columns) == 0
        fits = more_frames * frames <= room.frames and more_rows * rows <= room.rows
        if full and fits and (alone or lines <= columns):
            packings.append(
                PePacking(
                    first,
                    count,
                    frames=more_frames * frames,
                    rows=more_rows * rows,
                    tile_columns=columns,
                    unit=(frames, rows),
                )
            )
    tried = [
        best for packing in packings for best in _best_levels(reduced, packing, room.frames)[:1]
    ]
    return sorted(tried, key=lambda packing: work(reduced, packing, room.frames))[:_KEPT_STACKS]

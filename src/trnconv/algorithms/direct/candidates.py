"""Candidate plans: blocks, buffers and loops for each way to fill the array."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nkisim.machine import Machine
from trnconv.algorithms.direct.accumulations import grouped_accumulations
from trnconv.algorithms.direct.array.pe_packing import PackingRoom, pass_candidates, work
from trnconv.algorithms.direct.array.summation import alike_candidates
from trnconv.algorithms.direct.block_types import frame_kinds
from trnconv.algorithms.direct.blocks import bank_tile_count
from trnconv.algorithms.direct.plan import BY_COLUMN, BY_FRAME, DirectPlan, PePacking
from trnconv.algorithms.direct.reduced_problem import (
    DEPTH,
    HEIGHT,
    WIDTH,
    ReducedProblem,
    reduced_problem_of,
)
from trnconv.algorithms.direct.rules import broken_patterns
from trnconv.algorithms.direct.sbuf import lay_out
from trnconv.algorithms.direct.stationaries import bias_width, image_width
from trnconv.algorithms.direct.traffic import WindowCounts, count_windows
from trnconv.problem.conv_problem import ConvProblem, CoreSplit
from trnconv.problem.epilogue import ITEM_BYTES

_FRAME_BLOCKS = (8, 6, 4, 3, 2, 1)
_BLOCK_BANKS = (1, 2, 4, 8, 12, 16, 24)  # sizes of blocks to try, in PSUM banks
_KEPT_PASSES = 3
_ROW_TRIES = 12
_WINDOW_SHARE = 80  # percent of SBUF for windows, if weights are streamed
_HELD_TIMES = 3  # windows of this many blocks are enough, if there is room
# Passes with more work than this times the least are not tried. 1.2: the same plans. 2.0: three of
# 194 are others, up to 35 % faster (small images of few channels), and searching takes 4 times as
# long.
_WORTH_A_LOOK = 1.4
_STREAM_SLOTS = (6, 2)  # for weights; fewer where matrices of large kernels leave no room
_OUT_BUFFERS = (6, 4, 2)
_LEAD_SHARES = ((6, 3), (4, 2), (3,), (2,), (6,))
_ENOUGH_SIZES = 2  # of blocks, in frames and columns, that leave room for their windows
_UNEVEN = 20  # two cores also cut columns where one has a 20th of all rows more than the other
_OUT_SHARE = 4  # output buffers take at most a quarter of SBUF if there are more than two


@dataclass(frozen=True)
class Task:
    """A problem with its problem folded: all of it, or one core's share."""

    problem: ConvProblem
    reduced: ReducedProblem

    @staticmethod
    def of(problem: ConvProblem) -> Task:
        """The task that a problem sets."""
        return Task(problem, reduced_problem_of(problem))

    @property
    def machine(self) -> Machine:
        """Where it would run."""
        return self.problem.machine

    @property
    def rows(self) -> tuple[int, int]:
        """Output rows, first and end."""
        share = self.problem.core_split
        return share.rows if share else (0, self.reduced.out[HEIGHT])

    @property
    def channels(self) -> tuple[int, int]:
        """Output channels, first and end."""
        share = self.problem.core_split
        return share.channels if share else (0, self.reduced.c_out)

    @property
    def columns(self) -> tuple[int, int]:
        """Output columns, first and end."""
        share = self.problem.core_split
        return share.columns if share and share.columns else (0, self.reduced.out[WIDTH])

    @property
    def height(self) -> int:
        """Output rows."""
        return self.rows[1] - self.rows[0]

    @property
    def width(self) -> int:
        """Output columns."""
        return self.columns[1] - self.columns[0]

    @property
    def item_bytes(self) -> int:
        """Bytes of an element."""
        return ITEM_BYTES[self.problem.dtype]


def candidates(task: Task, *, thorough: bool = False) -> Iterator[DirectPlan]:
    """Plans worth pricing, unrolled and without refinements. Some may be illegal.

    Windows of whole rows are contiguous in HBM, and blocks of more frames load less; so parts of
    rows, and fewer frames, are tried only as far as needed, unless the search is `thorough`.
    Where windows of all those are too large (strides, dilated or large kernels), blocks get smaller
    until one fits.
    """
    frame_sizes = frame_blocks(task.reduced)
    one_row = _is_one_row(task)
    enough = 0
    any_fits = False
    for columns in _row_parts(task) if one_row else column_blocks(task):
        for frames in frame_sizes if thorough or not one_row else frame_sizes[:_ENOUGH_SIZES]:
            sized = list(_blocks(task, frames, columns))
            yield from sized
            any_fits = any_fits or bool(sized)
            enough += any(not plan.window_major for plan in sized)
            if enough == _ENOUGH_SIZES and not (thorough or one_row):
                return
    if not any_fits:
        yield from _small_blocks(task, frame_sizes[-1])


def _small_blocks(task: Task, frames: int) -> Iterator[DirectPlan]:
    """Blocks of half a bank of positions, a quarter and so on, of the first size that fits."""
    whole = task.reduced.phases[WIDTH]
    positions = task.machine.psum_bank_fp32_elems // 2
    narrowest = min(column_blocks(task))
    while positions:
        columns = min(narrowest, -(-positions // whole) * whole)
        sized = list(_blocks(task, frames, columns, positions // columns))
        yield from sized
        if sized:
            return
        positions //= 2


def _blocks(
    task: Task, frames: int, columns: int, rows_of_block: int | None = None
) -> Iterator[DirectPlan]:
    """Ways to fill the array, each in blocks of several sizes, or of about so many rows."""
    reduced = task.reduced
    height = task.height
    tiles = bool(task.machine.timing.column_tiles_parallel)
    room = PackingRoom(task.channels, frames, height, task.problem.exact, tiles)
    find = alike_candidates if task.problem.reproducible else pass_candidates
    options = find(reduced, room)
    for passes in _kept(reduced, options, frames):
        needs = _SbufNeeds.of(reduced, passes, frames)
        sizes = _row_sizes(task, passes, columns, needs)
        if rows_of_block is not None:
            step = DirectPlan.multiple_of(passes)
            sizes = [max(step, min(rows_of_block, height) // step * step)]
        fitted = [_buffered(task, passes, (frames, rows, columns), needs) for rows in sizes]
        legal = [plan for plan in fitted if plan is not None and not broken_patterns(plan)]
        yield from [plan for plan in legal if not plan.window_major] or legal


def _kept(
    reduced: ReducedProblem, options: list[tuple[PePacking, ...]], frames: int
) -> list[tuple[PePacking, ...]]:
    """The few with the least work, and those with the fewest loads or weights, if DMA binds."""
    amounts = {
        option: sum(work(reduced, packing, frames) for packing in option) for option in options
    }
    near = [option for option in options if amounts[option] <= _WORTH_A_LOOK * amounts[options[0]]]
    plain = [
        option for option in options if all(packing.levels == (BY_FRAME,) for packing in option)
    ]
    by_rows = [
        option for option in options if all(BY_COLUMN not in packing.levels for packing in option)
    ]
    lightest = min(near, key=lambda option: image_width(reduced, option, frames)[0])
    return list(dict.fromkeys([*near[:_KEPT_PASSES], *by_rows[:1], *plain[:1], lightest]))


def refined(plan: DirectPlan, *, moving: bool) -> Iterator[DirectPlan]:
    """Variants of a good plan: small blocks at the ends; loads before stores, if DMA binds."""
    plans = [plan, plan.but(ahead=True)] if moving else [plan]
    for variant in plans:
        yield variant
        for lead in _leads(variant):
            yield variant.but(lead=lead)


def frame_blocks(reduced: ReducedProblem) -> list[int]:
    """Output frames of a block: spans of equal size that few frames are computed twice for."""
    out = reduced.out[DEPTH]
    if reduced.kernel(DEPTH) == 1 and reduced.phases[DEPTH] == 1 and out > 1:
        return [1]  # frames have nothing in common
    whole = reduced.phases[DEPTH]  # frames of a block come in whole steps
    steps = out // whole
    sizes = {-(-steps // -(-steps // most)) for most in _FRAME_BLOCKS if most <= steps} | {1}
    if steps <= max(_FRAME_BLOCKS) + 2:
        sizes.add(steps)
    kept = sorted(sizes, reverse=True)[:3] + ([1] if len(sizes) > 3 else [])
    return [whole * size for size in kept]


def _is_one_row(task: Task) -> bool:
    return task.height == 1 and task.reduced.kernel(HEIGHT) == 1


def _row_parts(task: Task) -> list[int]:
    """Output columns of a block if there is one row: any part of it is contiguous in HBM."""
    bank, out = task.machine.psum_bank_fp32_elems, task.width
    whole = task.reduced.phases[WIDTH]
    sizes = {_equal_part(out // whole, banks * bank) * whole for banks in _BLOCK_BANKS}
    return sorted(sizes, reverse=True)


def column_blocks(task: Task) -> list[int]:
    """Output columns of a block: whole rows where they fit, else equal parts."""
    reduced = task.reduced
    out = task.width
    most = task.machine.access_stride_max // (2 * reduced.step[WIDTH])
    whole = reduced.phases[WIDTH]
    parts = -(-out // most)
    sizes = {-(-out // (parts * more * whole)) * whole for more in (1, 2, 4, 8)}
    return sorted(sizes, reverse=True)


def _equal_part(total: int, most: int) -> int:
    return -(-total // -(-total // most))


def row_blocks(task: Task, passes: tuple[PePacking, ...], columns: int) -> list[int]:
    """Output rows of a block: for each size in banks, the number that leaves the fewest tiles."""
    height = task.height
    bank = task.machine.psum_bank_fp32_elems
    step = DirectPlan.multiple_of(passes)
    best = set()
    smaller = 0
    for banks in _BLOCK_BANKS:
        most = max(step, min(height, banks * bank // columns) // step * step)
        least = max(smaller, most - _ROW_TRIES * step)
        tries = range(most, least, -step)
        if tries:
            best.add(min(tries, key=lambda rows: (_tiles_of(height, rows, columns, bank), -rows)))
        smaller = most
    return sorted(best, reverse=True)


def _row_sizes(
    task: Task, passes: tuple[PePacking, ...], columns: int, needs: _SbufNeeds
) -> list[int]:
    """Row blocks; where weights are streamed, also the largest that holds all its windows.

    Every block streams all weights, so fewer blocks move less.
    """
    sizes = row_blocks(task, passes, columns)
    room = task.machine.sbuf_usable_bytes_per_partition
    if needs.weight_columns * task.item_bytes < room:
        return sizes
    reduced, step = task.reduced, DirectPlan.multiple_of(passes)
    row_bytes = (columns + reduced.reach(WIDTH)) * reduced.step[WIDTH] * task.item_bytes
    in_rows = room * _WINDOW_SHARE // 100 // max(1, needs.windows.in_all[0] * row_bytes)
    rows = (in_rows - reduced.reach(HEIGHT)) // reduced.step[HEIGHT] // step * step
    height = task.height
    if step <= rows < height:
        equal = -(-height // -(-height // rows))
        sizes.append(-(-equal // step) * step)
    return sizes


def _tiles_of(height: int, rows: int, columns: int, bank: int) -> int:
    blocks, rest = divmod(height, rows)
    return blocks * bank_tile_count(rows, columns, bank) + (
        bank_tile_count(rest, columns, bank) if rest else 0
    )


def _buffered(
    task: Task,
    passes: tuple[PePacking, ...],
    block: tuple[int, int, int],
    needs: _SbufNeeds,
) -> DirectPlan | None:
    """The block with as many buffers as fit; weights that do not fit are streamed."""
    plan = DirectPlan(
        shape=task.problem.shape,
        machine_name=task.machine.name,
        dtype=task.problem.dtype,
        reduced=task.reduced,
        passes=passes,
        frames=block[0],
        rows=block[1],
        columns=block[2],
        slots=(0, 0, 0),
        rows_of=task.rows,
        columns_of=(task.problem.core_split and task.problem.core_split.columns) or (0, 0),
        epilogue=task.problem.epilogue,
    )
    kept = ((0, False), (0, True))
    for streamed, window_major in (*kept, *((slots, True) for slots in _STREAM_SLOTS)):
        fitted = _fit(plan.but(streamed=streamed, window_major=window_major), needs)
        if fitted is not None:
            return fitted
    return None


@dataclass(frozen=True)
class _SbufNeeds:
    """What the accumulations of any block need of SBUF."""

    windows: WindowCounts
    weight_columns: int
    chunk_columns: int
    biases: int

    @staticmethod
    def of(reduced: ReducedProblem, passes: tuple[PePacking, ...], frames: int) -> _SbufNeeds:
        """The most that a block of so many frames needs, at the ends of a video too."""
        windows = WindowCounts((0, 0, 0), (0, 0, 0), (0, 0, 0))
        for kind in frame_kinds(reduced, frames):
            groups = grouped_accumulations(reduced, passes, kind.outputs, kind.present)
            windows = windows.most(count_windows(groups))
        width, chunk = image_width(reduced, passes, frames)
        return _SbufNeeds(windows, width, chunk, bias_width(reduced, passes, frames))

    def least_slots(self, *, window_major: bool) -> list[int]:
        """Slots by level with which no accumulation waits for a window that found no room."""
        if window_major:
            return [min(2, count) for count in self.windows.in_all]
        counts = zip(self.windows.at_once, self.windows.fresh, self.windows.in_all, strict=True)
        return [min(in_all, at_once + fresh) for at_once, fresh, in_all in counts]


def _fit(plan: DirectPlan, needs: _SbufNeeds) -> DirectPlan | None:
    """The plan with the most window slots that fit, or None if too few do."""
    room = plan.machine.sbuf_usable_bytes_per_partition
    least = needs.least_slots(window_major=plan.window_major)
    bare = plan.but(out_buffers=0)
    layout = lay_out(bare, needs.weight_columns, needs.chunk_columns, needs.biases)
    pitches = [ring.pitch for ring in layout.rings]
    held = layout.end + sum(n * pitch for n, pitch in zip(least, pitches, strict=True))
    for buffers in _OUT_BUFFERS:
        out_bytes = buffers * layout.out.pitch
        if buffers > _OUT_BUFFERS[-1] and out_bytes * _OUT_SHARE > room:
            continue
        left = room - held - out_bytes
        if left >= 0:
            slots = _more_slots(needs, least, pitches, left)
            return plan.but(out_buffers=buffers, slots=slots)
    return None


def _more_slots(
    needs: _SbufNeeds, least: list[int], pitches: list[int], left: int
) -> tuple[int, int, int]:
    """Slots beyond the least: first so that nothing is loaded twice, then to load ahead."""
    slots = list(least)
    for level in reversed(range(BY_COLUMN)):
        want = _HELD_TIMES * needs.windows.in_all[level]
        more = max(0, min(want - slots[level], left // pitches[level]))
        slots[level] += more
        left -= more * pitches[level]
    return (slots[0], slots[1], slots[2])


def _leads(plan: DirectPlan) -> Iterator[tuple[int, ...]]:
    """Sizes of small first and last blocks: an early first matmul, an early last store."""
    multiple = plan.row_multiple
    if plan.reduced.out[HEIGHT] == 1:
        bank = plan.machine.psum_bank_fp32_elems
        multiple = -(-plan.columns // -(-plan.columns // bank))
        (first, end), size = plan.column_span, plan.columns
    else:
        (first, end), size = plan.row_span, plan.rows
    for shares in _LEAD_SHARES:
        lead = tuple(-(-size // (share * multiple)) * multiple for share in shares)
        if max(lead) < size and 2 * sum(lead) + size <= end - first:
            yield lead


def halves(problem: ConvProblem) -> list[tuple[ConvProblem, ConvProblem]]:
    """Two cores with half of the rows or output channels each; of columns, if rows are few."""
    task = Task.of(problem)
    whole = task.reduced.phases[HEIGHT]  # a core takes whole steps
    taller = -(-task.height // (2 * whole)) * whole
    rows = _halved(task.rows, taller)
    channels = _halved(task.channels, -(-(task.channels[1] - task.channels[0]) // 2))
    shares = [
        (CoreSplit(first, task.channels), CoreSplit(second, task.channels))
        for first, second in rows
    ]
    every = (task.rows, task.channels)
    shares += [
        (CoreSplit(task.rows, first), CoreSplit(task.rows, second)) for first, second in channels
    ]
    if _UNEVEN * (2 * taller - task.height) > task.height:
        step = task.reduced.phases[WIDTH]
        columns = _halved(task.columns, -(-task.width // (2 * step)) * step)
        shares += [
            (CoreSplit(*every, first), CoreSplit(*every, second)) for first, second in columns
        ]
    return [
        (replace(problem, core_split=first), replace(problem, core_split=second))
        for first, second in shares
    ]


def _halved(span: tuple[int, int], half: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """A span in two; nothing if one of them would be empty."""
    first, end = span
    middle = first + half
    return [((first, middle), (middle, end))] if first < middle < end else []

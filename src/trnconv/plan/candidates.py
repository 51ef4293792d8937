"""Candidate plans: blocks, buffers and loops for each way to fill the array."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nkisim.machine import Machine
from trnconv.plan.blocks import bank_tile_count
from trnconv.plan.conv_plan import BY_COLUMN, BY_FRAME, ConvPlan, Pass
from trnconv.plan.ends import ITEM_BYTES, PLAIN_END, End
from trnconv.plan.jobs import grouped_jobs
from trnconv.plan.kinds import frame_kinds
from trnconv.plan.orders import alike_candidates
from trnconv.plan.passes import Room, pass_candidates, work
from trnconv.plan.problem import DEPTH, HEIGHT, WIDTH, Problem
from trnconv.plan.sbuf import lay_out
from trnconv.plan.stationaries import bias_width, image_width
from trnconv.plan.traffic import WindowCounts, count_windows

_FRAME_BLOCKS = (8, 6, 4, 3, 2, 1)
_BLOCK_BANKS = (1, 2, 4, 8, 12, 16, 24)  # sizes of blocks to try, in PSUM banks
_KEPT_PASSES = 3
_ROW_TRIES = 12
_WINDOW_SHARE = 80  # percent of SBUF for windows, if weights are streamed
_HELD_TIMES = 3  # windows of this many blocks are enough, if there is room
_WORTH_A_LOOK = 1.4  # passes with more work than this times the least are not tried
_STREAM_SLOTS = 6
_OUT_BUFFERS = (6, 4, 2)
_LEAD_SHARES = ((6, 3), (4, 2), (3,), (2,), (6,))
_ENOUGH_SIZES = 2  # of blocks, in frames and columns, that leave room for their windows
_OUT_SHARE = 4  # output buffers take at most a quarter of SBUF if there are more than two


@dataclass(frozen=True)
class Request:
    """What is to be planned: a problem, or one core's share of it."""

    problem: Problem
    machine: Machine
    dtype: str
    rows: tuple[int, int]  # output rows, first and end
    channels: tuple[int, int]  # output channels, first and end
    exact: bool = False
    end: End = PLAIN_END
    reproducible: bool = False  # every output summed in an order that does not depend on sizes

    @property
    def item_bytes(self) -> int:
        """Bytes of an element."""
        return ITEM_BYTES[self.dtype]


def candidates(request: Request, *, thorough: bool = False) -> Iterator[ConvPlan]:
    """Plans worth pricing, unrolled and without refinements. Some may be illegal.

    Windows of whole rows are contiguous in HBM, and blocks of more frames load less; so parts of
    rows, and fewer frames, are tried only as far as needed, unless the search is `thorough`.
    """
    frame_sizes = frame_blocks(request.problem)
    one_row = _is_one_row(request)
    enough = 0
    for columns in _row_parts(request) if one_row else column_blocks(request):
        for frames in frame_sizes if thorough or not one_row else frame_sizes[:_ENOUGH_SIZES]:
            found = list(_blocks(request, frames, columns))
            yield from found
            enough += any(not plan.window_major for plan in found)
            if enough == _ENOUGH_SIZES and not (thorough or one_row):
                return


def _blocks(request: Request, frames: int, columns: int) -> Iterator[ConvPlan]:
    problem = request.problem
    height = request.rows[1] - request.rows[0]
    tiles = bool(request.machine.timing.column_tiles_parallel)
    room = Room(request.channels, frames, height, request.exact, tiles)
    find = alike_candidates if request.reproducible else pass_candidates
    options = find(problem, room)
    for passes in _kept(problem, options, frames):
        needs = _Needs.of(problem, passes, frames)
        sizes = _row_sizes(request, passes, columns, needs)
        fitted = [_buffered(request, passes, (frames, rows, columns), needs) for rows in sizes]
        found = [plan for plan in fitted if plan is not None]
        yield from [plan for plan in found if not plan.window_major] or found


def _kept(problem: Problem, options: list[tuple[Pass, ...]], frames: int) -> list[tuple[Pass, ...]]:
    """The few with the least work, and those with the fewest loads, in case DMA binds."""
    amounts = {it: sum(work(problem, one, frames) for one in it) for it in options}
    near = [it for it in options if amounts[it] <= _WORTH_A_LOOK * amounts[options[0]]]
    plain = [it for it in options if all(one.levels == (BY_FRAME,) for one in it)]
    by_rows = [it for it in options if all(BY_COLUMN not in one.levels for one in it)]
    return list(dict.fromkeys([*near[:_KEPT_PASSES], *by_rows[:1], *plain[:1]]))


def refined(plan: ConvPlan, *, moving: bool) -> Iterator[ConvPlan]:
    """Variants of a good plan: small blocks at the ends; loads before stores, if DMA binds."""
    plans = [plan, replace(plan, ahead=True)] if moving else [plan]
    for one in plans:
        yield one
        for lead in _leads(one):
            yield replace(one, lead=lead)


def frame_blocks(problem: Problem) -> list[int]:
    """Output frames of a block: spans of equal size that few frames are computed twice for."""
    out = problem.out[DEPTH]
    if problem.kernel(DEPTH) == 1 and problem.phases[DEPTH] == 1 and out > 1:
        return [1]  # frames have nothing in common
    whole = problem.phases[DEPTH]  # frames of a block come in whole steps
    steps = out // whole
    sizes = {-(-steps // -(-steps // most)) for most in _FRAME_BLOCKS if most <= steps} | {1}
    if steps <= max(_FRAME_BLOCKS) + 2:
        sizes.add(steps)
    kept = sorted(sizes, reverse=True)[:3] + ([1] if len(sizes) > 3 else [])
    return [whole * size for size in kept]


def _is_one_row(request: Request) -> bool:
    return request.rows[1] - request.rows[0] == 1 and request.problem.kernel(HEIGHT) == 1


def _row_parts(request: Request) -> list[int]:
    """Output columns of a block if there is one row: any part of it is contiguous in HBM."""
    bank, out = request.machine.psum_bank_fp32_elems, request.problem.out[WIDTH]
    whole = request.problem.phases[WIDTH]
    sizes = {_equal_part(out // whole, banks * bank) * whole for banks in _BLOCK_BANKS}
    return sorted(sizes, reverse=True)


def column_blocks(request: Request) -> list[int]:
    """Output columns of a block: whole rows where they fit, else equal parts."""
    problem = request.problem
    out = problem.out[WIDTH]
    most = request.machine.access_stride_max // (2 * problem.step[WIDTH])
    whole = problem.phases[WIDTH]
    parts = -(-out // most)
    sizes = {-(-out // (parts * more * whole)) * whole for more in (1, 2, 4, 8)}
    return sorted(sizes, reverse=True)


def _equal_part(total: int, most: int) -> int:
    return -(-total // -(-total // most))


def row_blocks(request: Request, passes: tuple[Pass, ...], columns: int) -> list[int]:
    """Output rows of a block: for each size in banks, the number that leaves the fewest tiles."""
    height = request.rows[1] - request.rows[0]
    bank = request.machine.psum_bank_fp32_elems
    step = ConvPlan.multiple_of(passes)
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
    request: Request, passes: tuple[Pass, ...], columns: int, needs: _Needs
) -> list[int]:
    """Row blocks; where weights are streamed, also the largest that holds all its windows.

    Every block streams all weights, so fewer blocks move less.
    """
    sizes = row_blocks(request, passes, columns)
    room = request.machine.sbuf_usable_bytes_per_partition
    if needs.weight_columns * request.item_bytes < room:
        return sizes
    problem, step = request.problem, ConvPlan.multiple_of(passes)
    row_bytes = (columns + problem.reach(WIDTH)) * problem.step[WIDTH] * request.item_bytes
    in_rows = room * _WINDOW_SHARE // 100 // max(1, needs.windows.in_all[0] * row_bytes)
    rows = (in_rows - problem.reach(HEIGHT)) // problem.step[HEIGHT] // step * step
    height = request.rows[1] - request.rows[0]
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
    request: Request,
    passes: tuple[Pass, ...],
    block: tuple[int, int, int],
    needs: _Needs,
) -> ConvPlan | None:
    """The block with as many buffers as fit; weights that do not fit are streamed."""
    plan = ConvPlan(
        problem=request.problem,
        machine=request.machine.name,
        dtype=request.dtype,
        passes=passes,
        frames=block[0],
        rows=block[1],
        columns=block[2],
        slots=(0, 0, 0),
        rows_of=request.rows,
        end=request.end,
    )
    for streamed, window_major in ((0, False), (0, True), (_STREAM_SLOTS, True)):
        fitted = _fit(replace(plan, streamed=streamed, window_major=window_major), needs)
        if fitted is not None:
            return fitted
    return None


@dataclass(frozen=True)
class _Needs:
    """What the jobs of any block need of SBUF."""

    windows: WindowCounts
    weight_columns: int
    chunk_columns: int
    biases: int

    @staticmethod
    def of(problem: Problem, passes: tuple[Pass, ...], frames: int) -> _Needs:
        """The most that a block of so many frames needs, at the ends of a video too."""
        windows = WindowCounts((0, 0, 0), (0, 0, 0), (0, 0, 0))
        for kind in frame_kinds(problem, frames):
            groups = grouped_jobs(problem, passes, kind.outputs, kind.present)
            windows = windows.most(count_windows(groups))
        width, chunk = image_width(problem, passes, frames)
        return _Needs(windows, width, chunk, bias_width(problem, passes, frames))

    def least_slots(self, *, window_major: bool) -> list[int]:
        """Slots by level with which no job waits for a window that found no room."""
        if window_major:
            return [min(2, count) for count in self.windows.in_all]
        counts = zip(self.windows.at_once, self.windows.fresh, self.windows.in_all, strict=True)
        return [min(in_all, at_once + fresh) for at_once, fresh, in_all in counts]


def _fit(plan: ConvPlan, needs: _Needs) -> ConvPlan | None:
    """The plan with the most window slots that fit, or None if too few do."""
    room = plan.target.sbuf_usable_bytes_per_partition
    least = needs.least_slots(window_major=plan.window_major)
    for buffers in _OUT_BUFFERS:
        bare = replace(plan, out_buffers=buffers)
        layout = lay_out(bare, needs.weight_columns, needs.chunk_columns, needs.biases)
        out_bytes = layout.out.slots * layout.out.pitch
        if buffers > _OUT_BUFFERS[-1] and out_bytes * _OUT_SHARE > room:
            continue
        pitches = [ring.pitch for ring in layout.rings]
        left = room - layout.end - sum(n * pitch for n, pitch in zip(least, pitches, strict=True))
        if left >= 0:
            slots = _more_slots(needs, least, pitches, left)
            return replace(bare, slots=slots)
    return None


def _more_slots(
    needs: _Needs, least: list[int], pitches: list[int], left: int
) -> tuple[int, int, int]:
    """Slots beyond the least: first so that nothing is loaded twice, then to load ahead."""
    slots = list(least)
    for level in reversed(range(BY_COLUMN)):
        want = _HELD_TIMES * needs.windows.in_all[level]
        more = max(0, min(want - slots[level], left // pitches[level]))
        slots[level] += more
        left -= more * pitches[level]
    return (slots[0], slots[1], slots[2])


def _leads(plan: ConvPlan) -> Iterator[tuple[int, ...]]:
    """Sizes of small first and last blocks: an early first matmul, an early last store."""
    multiple = plan.row_multiple
    if plan.problem.out[HEIGHT] == 1:
        bank = plan.target.psum_bank_fp32_elems
        multiple = -(-plan.columns // -(-plan.columns // bank))
        total, size = plan.problem.out[WIDTH], plan.columns
    else:
        total, size = plan.row_span[1] - plan.row_span[0], plan.rows
    for shares in _LEAD_SHARES:
        lead = tuple(-(-size // (share * multiple)) * multiple for share in shares)
        if max(lead) < size and 2 * sum(lead) + size <= total:
            yield lead

"""Candidate plans: blocks, buffers and loops for each way to fill the array."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nkisim.machine import Machine
from trnconv.plan.blocks import bank_tile_count
from trnconv.plan.conv_plan import BY_COLUMN, BY_FRAME, ITEM_BYTES, ConvPlan, Pass
from trnconv.plan.jobs import OutJob, jobs_of
from trnconv.plan.kinds import frame_kinds
from trnconv.plan.out_lines import out_tiles
from trnconv.plan.passes import pass_candidates, work
from trnconv.plan.problem import DEPTH, HEIGHT, WIDTH, Problem
from trnconv.plan.sbuf import lay_out
from trnconv.plan.stationaries import WeightImage, chunk_weights

_FRAME_BLOCKS = (8, 6, 4, 3, 2, 1)
_BLOCK_BANKS = (1, 2, 4, 8, 12, 16, 24)  # sizes of blocks to try, in PSUM banks
_KEPT_PASSES = 4
_WORTH_A_LOOK = 1.4  # passes with more work than this times the least are not tried
_STREAM_SLOTS = 6
_OUT_BUFFERS = (6, 4, 2)
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

    @property
    def item_bytes(self) -> int:
        """Bytes of an element."""
        return ITEM_BYTES[self.dtype]


def candidates(request: Request) -> Iterator[ConvPlan]:
    """Plans worth pricing, unrolled. Some may be illegal."""
    problem = request.problem
    height = request.rows[1] - request.rows[0]
    for frames in frame_blocks(problem):
        options = pass_candidates(problem, request.channels, frames, height, exact=request.exact)
        least = sum(work(problem, one, frames) for one in options[0])
        near = [
            passes
            for passes in options
            if sum(work(problem, one, frames) for one in passes) <= _WORTH_A_LOOK * least
        ]
        for passes in (near or options)[:_KEPT_PASSES]:
            needs = _Needs.of(problem, passes, frames)
            for columns in column_blocks(request):
                for rows in row_blocks(request, passes, columns):
                    block = (frames, rows, columns)
                    yield from _buffered(request, passes, block, needs)


def frame_blocks(problem: Problem) -> list[int]:
    """Output frames of a block: spans of equal size that few frames are computed twice for."""
    out = problem.out[DEPTH]
    if problem.kernel[DEPTH] == 1 and out > 1:
        return [1]  # frames have nothing in common
    sizes = {-(-out // -(-out // most)) for most in _FRAME_BLOCKS if most <= out} | {1}
    if out <= max(_FRAME_BLOCKS) + 2:
        sizes.add(out)
    return sorted(sizes, reverse=True)[:3] + ([1] if len(sizes) > 3 else [])


def column_blocks(request: Request) -> list[int]:
    """Output columns of a block: whole rows where they fit, else equal parts."""
    problem, bank = request.problem, request.machine.psum_bank_fp32_elems
    out = problem.out[WIDTH]
    if request.rows[1] - request.rows[0] == 1 and problem.kernel[HEIGHT] == 1:
        sizes = {_equal_part(out, banks * bank) for banks in _BLOCK_BANKS}
        return sorted(sizes, reverse=True)
    most = request.machine.access_stride_max // (2 * problem.stride[WIDTH])
    parts = -(-out // most)
    return sorted({-(-out // (parts * more)) for more in (1, 2, 4)}, reverse=True)


def _equal_part(total: int, most: int) -> int:
    return -(-total // -(-total // most))


def row_blocks(request: Request, passes: tuple[Pass, ...], columns: int) -> list[int]:
    """Output rows of a block, one candidate for each size: the one that fills banks best."""
    height = request.rows[1] - request.rows[0]
    bank = request.machine.psum_bank_fp32_elems
    step = ConvPlan.multiple_of(passes)
    best: dict[int, tuple[float, int]] = {}
    for rows in range(step, height + 1, step):
        banks = rows * columns / bank
        if banks > _BLOCK_BANKS[-1] and best:
            break
        size = next((n for n in _BLOCK_BANKS if banks <= n), _BLOCK_BANKS[-1])
        blocks, rest = divmod(height, rows)
        tiles = blocks * bank_tile_count(rows, columns, bank)
        tiles += bank_tile_count(rest, columns, bank) if rest else 0
        best[size] = min(best.get(size, (float("inf"), 0)), (float(tiles), -rows))
    return sorted((-rows for _, rows in best.values()), reverse=True)


def _buffered(
    request: Request,
    passes: tuple[Pass, ...],
    block: tuple[int, int, int],
    needs: _Needs,
) -> Iterator[ConvPlan]:
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
    )
    found = 0
    for streamed in (0, _STREAM_SLOTS):
        for window_major in (False, True) if not streamed else (True,):
            fitted = _fit(replace(plan, streamed=streamed, window_major=window_major), needs)
            if fitted is not None:
                found += 1
                yield fitted
                yield from _with_lead(fitted)
                break
        if found:
            break


@dataclass(frozen=True)
class _Needs:
    """What the jobs of any block need of SBUF."""

    at_once: tuple[int, int, int]  # windows of one job, by level
    in_all: tuple[int, int, int]  # windows of the block
    weight_columns: int
    chunk_columns: int
    biases: int

    @staticmethod
    def of(problem: Problem, passes: tuple[Pass, ...], frames: int) -> _Needs:
        """The most that a block of so many frames needs, at the ends of a video too."""
        image = WeightImage()
        at_once, in_all, chunk = [0, 0, 0], [0, 0, 0], 0
        for kind in frame_kinds(problem, frames):
            jobs = jobs_of(problem, passes, kind.outputs, kind.present)
            held = _windows_of(jobs)
            at_once = [max(pair) for pair in zip(at_once, held[0], strict=True)]
            in_all = [max(pair) for pair in zip(in_all, held[1], strict=True)]
            for job in jobs:
                for product in job.products:
                    weights = chunk_weights(problem, job, product)
                    image.place(weights)
                    chunk = max(chunk, weights.width)
        return _Needs(
            (at_once[0], at_once[1], at_once[2]),
            (in_all[0], in_all[1], in_all[2]),
            image.width,
            chunk,
            sum(len(out_tiles(one)) for one in passes),
        )


def _windows_of(jobs: list[OutJob]) -> tuple[list[int], list[int]]:
    """By level: the most windows of one job, and those of all jobs."""
    at_once = [0, 0, 0]
    seen: list[set[tuple[int, ...]]] = [set(), set(), set()]
    for job in jobs:
        held = [0, 0, 0]
        for product in job.products:
            level = product.tile.level
            held[level - 1] += 1
            stack = (job.one.rows, job.one.columns) if level > BY_FRAME else ()
            seen[level - 1].add((id(product.tile), *stack))
        at_once = [max(pair) for pair in zip(at_once, held, strict=True)]
    return at_once, [len(keys) for keys in seen]


def _fit(plan: ConvPlan, needs: _Needs) -> ConvPlan | None:
    """The plan with the most window slots that fit, or None if too few do."""
    room = plan.target.sbuf_usable_bytes_per_partition
    least = needs.at_once
    if plan.window_major:
        least = tuple(min(2, count) for count in needs.in_all)  # type: ignore[assignment]
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
    needs: _Needs, least: tuple[int, int, int], pitches: list[int], left: int
) -> tuple[int, int, int]:
    """Slots beyond the least: first so that nothing is loaded twice, then to load ahead."""
    slots = list(least)
    for level in reversed(range(BY_COLUMN)):
        want = needs.in_all[level] + needs.at_once[level]
        more = max(0, min(want - slots[level], left // pitches[level]))
        slots[level] += more
        left -= more * pitches[level]
    return (slots[0], slots[1], slots[2])


def _with_lead(plan: ConvPlan) -> Iterator[ConvPlan]:
    """Small first and last blocks: the first matmul comes early, and so does the last store."""
    multiple = plan.row_multiple
    along_columns = plan.problem.out[HEIGHT] == 1
    if along_columns:
        tile = plan.columns // max(1, -(-plan.columns // plan.target.psum_bank_fp32_elems))
        total, size, multiple = plan.problem.out[WIDTH], plan.columns, tile
    else:
        total, size = plan.row_span[1] - plan.row_span[0], plan.rows
    for shares in ((4, 2), (2,), (6,)):
        lead = tuple(-(-size // (share * multiple)) * multiple for share in shares)
        if max(lead) < size and 2 * sum(lead) + size <= total:
            yield replace(plan, lead=lead)

"""What sheets of x and moved copies of dy cost, by the cost model."""

from __future__ import annotations

from collections.abc import Iterable

from nkisim.machine import Timing
from trnconv.algorithms.dma import descriptor_ns, issue_ns
from trnconv.algorithms.weight_gradient.engine_work import EngineWork
from trnconv.algorithms.weight_gradient.plan import HEIGHT, WIDTH, GradientStrip, WeightGradientPlan
from trnconv.algorithms.weight_gradient.sheet_blocks import (
    PieceRun,
    cut_pieces,
    dy_tiles_of_piece,
    piece_runs,
    rows_of_sheet_tile,
)
from trnconv.algorithms.weight_gradient.sheets import existing_run, row_steps, sheet_column_runs

BlockSizes = tuple[int, int]  # images, rows


def sheets_of(strips: Iterable[tuple[GradientStrip, int]]) -> list[tuple[int, int]]:
    """The sheets that strips read: frame tap and channels of each."""
    sheets = {(strip.frame_tap, strip.channel): strip.channels for strip, _ in strips}
    return [(frame_tap, channels) for (frame_tap, _), channels in sheets.items()]


def sheet_work(
    plan: WeightGradientPlan, timing: Timing, sizes: BlockSizes, channels: int
) -> EngineWork:
    """One sheet of a block."""
    images, rows = sizes
    tiles = row_steps(plan.shape).tiles(dy_tiles_of_piece(plan, rows), plan.shape.kernel[HEIGHT])
    runs = piece_runs(plan, sheet_column_runs(plan.shape))
    return _filled(plan, timing, (images, rows, tiles), runs, (channels, plan.unit))


def moved_dy_work(
    plan: WeightGradientPlan, timing: Timing, sizes: BlockSizes, outs: int
) -> EngineWork:
    """All copies of dy of a block."""
    images, rows = sizes
    tiles = dy_tiles_of_piece(plan, rows)
    work = EngineWork()
    for shift in plan.shifts:
        held = existing_run(shift, plan.sheet_columns, plan.shape.out_size(WIDTH))
        runs = piece_runs(plan, held)
        work.add(_filled(plan, timing, (images, rows, tiles), runs, (outs, 1)), 1)
    return work


def sheet_edge_work(plan: WeightGradientPlan, timing: Timing, channels: int) -> EngineWork:
    """Rows of a frame's sheets that are padding: at each end a tile to clear, or to load."""
    shape = plan.shape
    last = shape.in_position(HEIGHT, shape.out_size(HEIGHT) - 1, shape.kernel[HEIGHT] - 1)
    ends = (shape.pad_before[HEIGHT] > 0) + (last >= shape.size[HEIGHT])
    if shape.repeats(HEIGHT):
        runs = len(piece_runs(plan, sheet_column_runs(shape)))
        return EngineWork(dmas=ends * runs, instructions=ends * runs)
    pieces = -(-plan.sheet_columns // plan.piece)
    return cleared(timing, ends, pieces * channels)


def _filled(
    plan: WeightGradientPlan,
    timing: Timing,
    tiles_of: tuple[int, int, int],
    runs: list[PieceRun],
    elements: tuple[int, int],
) -> EngineWork:
    """DMAs of a block: one for each run of pieces, row of a tile and image."""
    images, rows, tiles = tiles_of
    channels, unit = elements
    work = EngineWork()
    rate = timing.dma_transpose_rate * (timing.dma_transpose_4_byte_rate if unit > 1 else 1.0)
    dmas = images * rows_of_sheet_tile(plan, rows)
    for run in runs:
        descriptors = max(run.count, channels)
        moved = run.count * run.pieces * tiles * channels * unit * plan.item_bytes
        each = descriptor_ns(timing, moved / descriptors, looped=plan.looped, rate=rate)
        busy = descriptors * each
        issue = issue_ns(timing, looped=plan.looped) / timing.dma_issue_queues
        load = EngineWork(
            dma=busy,
            dmas=1,
            unhidden=max(0.0, issue - busy / timing.dma_engines),
            hbm=moved,
            instructions=1,
        )
        work.add(load, dmas)
    cut = len(cut_pieces(plan, runs))
    work.add(cleared(timing, 1, tiles * channels), cut * images)
    return work


def cleared(timing: Timing, times: int, elems: int) -> EngineWork:
    """Zeros in so many elements of each partition, so often."""
    cycles = elems * timing.gpsimd_cycles_per_elem + timing.gpsimd_startup_cycles
    return EngineWork(gpsimd=times * cycles, instructions=times)

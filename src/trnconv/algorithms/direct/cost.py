"""What a plan costs, by the cost model: engine times, traffic, instructions and SBUF.

Blocks are products of spans of frames, rows and columns, and what a view of a window reads is a
product of rows and columns; so sums over blocks are products of sums over spans.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from nkisim.machine import PARTITIONS, Timing
from trnconv.algorithms.algorithm import Cost
from trnconv.algorithms.direct.accumulations import (
    AccumulationGroups,
    ProductKind,
    grouped_accumulations,
)
from trnconv.algorithms.direct.array.pe_packing import work
from trnconv.algorithms.direct.block_types import (
    SpanKind,
    column_kinds,
    frame_kinds,
    row_kinds,
)
from trnconv.algorithms.direct.blocks import bank_tile_count, valid
from trnconv.algorithms.direct.length import block_evictions, block_tiles, program_of, weight_loads
from trnconv.algorithms.direct.plan import BY_FRAME, BY_ROW, DirectPlan, PePacking
from trnconv.algorithms.direct.ramp import last_pass_rectangle, places_ns, ramp_ns
from trnconv.algorithms.direct.reduced_problem import (
    HEIGHT,
    WIDTH,
    ReducedProblem,
    reduced_problem_of,
)
from trnconv.algorithms.direct.sbuf import layout_of
from trnconv.algorithms.direct.traffic import (
    BlockExtent,
    Loaded,
    Transfers,
    loaded_windows,
    store_transfer,
    transfer,
    window_transfer,
)
from trnconv.algorithms.dma import fence_ns, issue_ns
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.epilogue import IDENTITY, composed_steps

Kinds = tuple[tuple[SpanKind, int], ...]
_BORDERS = 0.9  # of the taps meet the input, padding the others: 10 % is a 3x3 on 30x30
# What hides behind the Tensor engine in the model may not on a device, so traffic has a price. By
# the problems of algorithms/search.py: without a weight 14 plans are others, 0.1 % faster (at most
# 0.7 %); with twice as much 10 are, 0.4 % slower with 5 % less traffic.
_TRAFFIC_WEIGHT = 0.06
# A plan with that many times the least traffic is taken only if it brings 4 %. Without: 3 others,
# 0.2 % faster with 6 % more traffic; with 10 %: 3 others, 1.8 % slower.
_HEAVY = 2.25
_HEAVY_PRICE = 1.04


@dataclass(frozen=True)
class _SpanKinds:
    """The kinds of spans of a plan's rows and columns."""

    rows: Kinds
    columns: Kinds

    def extents(self) -> Iterable[tuple[BlockExtent, int]]:
        """Every kind of block, and how many there are for one span of frames."""
        for row, row_count in self.rows:
            for column, column_count in self.columns:
                extent = BlockExtent(row.outputs, row.inputs, column.outputs, column.inputs)
                yield extent, row_count * column_count


@dataclass(frozen=True)
class _PlanWork:
    """What a plan does, however long the iterations of its loops are."""

    columns: float
    tensor_ns: float
    evict_ns: float
    waiting_ns: float
    moved: Transfers
    ends_ns: tuple[float, float]  # before the Tensor engine starts, and after it ends


def cost_of(plan: DirectPlan) -> Cost:
    """The cost of a plan, legal or not."""
    timing = plan.timing
    work = _work(plan.but(body_blocks=1))
    program = program_of(plan)
    start, tail = work.ends_ns
    loops = program.iterations * (timing.loop_iteration_ns + places_ns(timing) + start + tail)
    loops += program.after * (start + tail)
    moved = work.moved
    issue = moved.dmas * issue_ns(timing, looped=plan.looped) / timing.dma_issue_queues
    computing = max(work.tensor_ns + work.waiting_ns, work.evict_ns) + start + tail
    issuing = issue + timing.dma_start_ns + timing.dma_done_ns + tail
    moving = moved.ns + (tail if plan.ahead else start + tail)
    total = max(computing, issuing, moving) + loops
    if plan.is_fenced:
        total += fence_ns(timing, plan.reduced.y_elems() * plan.out_bytes)
    busy = {"tensor": work.tensor_ns, "dma": moved.ns, "dma issue": issue, "evict": work.evict_ns}
    return Cost(
        total_ns=total,
        weighed_ns=_weighed_ns(plan, total, moved),
        busy=tuple(busy.items()),
        hbm_bytes=int(moved.hbm_bytes),
        sbuf_bytes=layout_of(plan).end,
        instructions=program.instructions + plan.is_fenced,
        regions=program.regions,
        loops_ns=loops,
        columns=int(work.columns),
    )


@lru_cache(maxsize=64)
def _work(plan: DirectPlan) -> _PlanWork:
    """The same for every length of a loop's iterations: it is asked with one."""
    timing = plan.timing
    cut = _cut(plan)
    columns = cycles = evict = waiting = 0.0
    moved = Transfers()
    for kind, groups in frame_kinds(plan.reduced, plan.frames).items():
        accumulations = grouped_accumulations(plan.reduced, plan.passes, kind.outputs, kind.present)
        counted = _tensor_work(plan, timing, accumulations, cut)
        columns += groups * counted[0]
        cycles += groups * counted[1]
        evict += groups * _evict_ns(plan, timing, accumulations, cut)
        transfers, late = _group_transfers(plan, timing, accumulations, cut)
        moved += transfers.times(groups)
        waiting += groups * late
    loads, weight_columns = weight_loads(plan)
    if loads:
        moved += transfer(plan, loads, loads * PARTITIONS, weight_columns * plan.item_bytes / loads)
    tensor = cycles / timing.pe_columns_per_ns
    return _PlanWork(columns, tensor, evict, waiting, moved, ramp_ns(plan, timing, tensor))


def _cut(plan: DirectPlan) -> _SpanKinds:
    return _SpanKinds(tuple(row_kinds(plan).items()), tuple(column_kinds(plan).items()))


def _weighed_ns(plan: DirectPlan, total_ns: float, moved: Transfers) -> float:
    """Where times are close, the plan that moves less comes first."""
    reduced, item = plan.reduced, plan.item_bytes
    least = item * (reduced.x_elems() + reduced.y_elems())
    heavy = _HEAVY_PRICE if int(moved.hbm_bytes) > _HEAVY * least else 1.0
    return heavy * total_ns + _TRAFFIC_WEIGHT * moved.ns


def least_tensor_ns(plan: DirectPlan) -> float:
    """What the Tensor engine needs at least for the matmuls of a plan, borders not counted off."""
    groups = plan.reduced.out[0] / plan.frames * plan.reduced.images
    positions = groups * plan.frame_area
    matmuls = sum(work(plan.reduced, packing, plan.frames) for packing in plan.passes)
    return _BORDERS * positions * matmuls / plan.machine.timing.pe_columns_per_ns


def floor_ns(problem: ConvProblem) -> float:
    """What the Tensor engine needs for the products alone, with every cell of the array at work."""
    shape, reduced, timing = problem.shape, reduced_problem_of(problem), problem.machine.timing
    channels = shape.c_in // shape.groups * shape.c_out
    products = reduced.images * channels * prod(_products_along(reduced, axis) for axis in range(3))
    fp32 = timing.pe_fp32_passes * timing.pe_fp32_cycles_per_column
    cycles = products / PARTITIONS**2 * (fp32 if problem.dtype == "float32" else 1)
    return 0.0 if problem.core_split else cycles / timing.pe_columns_per_ns


def _products_along(reduced: ReducedProblem, axis: int) -> int:
    """Pairs of an output and a tap that meet in the input; not in padding, which may be skipped."""
    step, phases = reduced.step[axis], reduced.phases[axis]
    outputs = reduced.out[axis] // phases
    spans = (
        valid((shift - reduced.pad[axis], step), outputs, reduced.size[axis])
        for reads in reduced.reads[axis]
        for shift, _ in reads
    )
    return sum(end - first for first, end in spans)


@lru_cache(maxsize=8192)
def _read_positions(reduced: ReducedProblem, axis: int, stack: int, kinds: Kinds) -> dict[int, int]:
    """Positions that find the input at each shift, summed over spans."""
    step = reduced.advance(axis, stack)
    read = dict.fromkeys(reduced.shifts(axis, range(stack)), 0)
    for shift in read:
        for kind, count in kinds:
            positions = -(-kind.outputs // stack)
            first, end = valid((shift - kind.missing, step), positions, kind.inputs)
            read[shift] += count * (end - first)
    return read


@lru_cache(maxsize=8192)
def _positions(stack: int, kinds: Kinds) -> int:
    return sum(-(-kind.outputs // stack) * count for kind, count in kinds)


@lru_cache(maxsize=8192)
def _tiles(one_rows: int, one_columns: int, cut: _SpanKinds, bank: int) -> int:
    """PSUM tiles of all blocks of one span of frames."""
    return sum(
        count * block_tiles((one_rows, one_columns), extent, bank)
        for extent, count in cut.extents()
    )


@lru_cache(maxsize=8192)
def _evictions(stack: tuple[int, int], cut: _SpanKinds, bank: int, *, by_column: bool) -> int:
    """What brings the sums of a phase of all those blocks out of PSUM."""
    return sum(
        count * block_evictions(stack, extent, bank, by_column=by_column)
        for extent, count in cut.extents()
    )


def _tensor_work(
    plan: DirectPlan, timing: Timing, accumulations: AccumulationGroups, cut: _SpanKinds
) -> tuple[float, float]:
    """Matmul columns, and Tensor engine cycles, of one span of frames."""
    bank = plan.machine.psum_bank_fp32_elems
    columns = cycles = 0.0
    for group in accumulations.kinds:
        accumulation = group.accumulation
        tiles = _tiles(accumulation.packing.rows, accumulation.packing.columns, cut, bank)
        together = len(accumulation.out.parts) if timing.column_tiles_parallel else 1
        streamed = slowed = 0.0
        for kind, products in accumulation.product_kinds.items():
            count = (
                group.count
                * products
                * _product_columns(plan.reduced, accumulation.packing, kind, cut)
            )
            streamed += count
            slowed += count / timing.pe_rate(together * kind.share)
        matmuls = group.count * accumulation.matmuls * tiles
        columns += streamed
        passes, column_cycles = _passes(plan, timing, accumulation.packing)
        least = matmuls * timing.pe_min_cycles * column_cycles
        one_pass = max(column_cycles * slowed, least) + matmuls * timing.pe_gap_cycles
        if passes > 1:
            width = sum(part.width for part in accumulation.out.parts) / len(accumulation.out.parts)
            loads = matmuls * timing.weight_load_fp32_cycles * width / PARTITIONS
            one_pass = max(one_pass, loads)
        cycles += passes * one_pass / together
    return columns, cycles


def _product_columns(
    reduced: ReducedProblem, packing: PePacking, kind: ProductKind, cut: _SpanKinds
) -> int:
    rows, columns = _positions(packing.rows, cut.rows), _positions(packing.columns, cut.columns)
    if kind.level == BY_FRAME:
        read = _read_positions(reduced, HEIGHT, packing.rows, cut.rows)
        rows = sum(read[row] for row in kind.rows)
    if kind.level <= BY_ROW:
        read = _read_positions(reduced, WIDTH, packing.columns, cut.columns)
        columns = sum(read[column] for column in kind.columns)
    return rows * columns


def _passes(plan: DirectPlan, timing: Timing, packing: PePacking) -> tuple[int, float]:
    """Passes of a matmul, each with its load of weights, and cycles a column of each."""
    apart = plan.reduced.advance(WIDTH, packing.columns) * plan.item_bytes
    wide = apart > timing.wide_stride_bytes
    rate = timing.pe_wide_stride_cycles if wide else 1.0
    if plan.dtype == "float32":
        return timing.pe_fp32_passes, rate * timing.pe_fp32_cycles_per_column
    return 1, rate


def _evict_ns(
    plan: DirectPlan, timing: Timing, accumulations: AccumulationGroups, cut: _SpanKinds
) -> float:
    """Each of two engines takes half of the tiles, if both can; the Vector engine is slower."""
    bank = plan.machine.psum_bank_fp32_elems
    ns = 0.0
    for group in accumulations.kinds:
        accumulation = group.accumulation
        stack = (accumulation.packing.rows, accumulation.packing.columns)
        evicted = _evictions(stack, cut, bank, by_column=plan.evicts_by_column)
        positions = _positions(accumulation.packing.rows, cut.rows) * _positions(
            accumulation.packing.columns, cut.columns
        )
        cycles = float(max(positions, evicted * timing.engine_min_cycles))
        cycles += evicted * timing.vector_startup_cycles
        alone = plan.epilogue.activation == IDENTITY and not plan.scalar_adds
        share = 2 if plan.epilogue.shares_engines() and not alone else 1
        passes = composed_steps(plan.epilogue, scalar_adds=plan.scalar_adds)[1] / share
        ns += group.count * len(accumulation.out.phases) * cycles / timing.vector_ghz * passes
    return ns


def _group_transfers(
    plan: DirectPlan, timing: Timing, accumulations: AccumulationGroups, cut: _SpanKinds
) -> tuple[Transfers, float]:
    """Windows in and outputs out of one span of frames; ns that blocks wait for windows."""
    windows = loaded_windows(accumulations, plan.slots)
    moved = Transfers()
    waiting = 0.0
    for extent, count in cut.extents():
        loads = [
            (window_transfer(plan, window, extent).times(window.times), window)
            for window in windows
        ]
        block = sum((load.times(window.count) for load, window in loads), Transfers())
        for group in accumulations.kinds:
            block += store_transfer(plan, group.accumulation, extent).times(group.count)
        moved += (block + _streamed(plan, accumulations, extent)).times(count)
        late = _late_ns(plan, timing, accumulations, _Loads(loads, _tile_positions(plan, extent)))
        waiting += count * late
    return moved, waiting


@dataclass(frozen=True)
class _Loads:
    """The window loads of a block, and the positions of one of its tiles."""

    loads: list[tuple[Transfers, Loaded]]
    tile_positions: float


def _tile_positions(plan: DirectPlan, extent: BlockExtent) -> float:
    rows, columns = last_pass_rectangle(plan, extent)
    return rows * columns / bank_tile_count(rows, columns, plan.machine.psum_bank_fp32_elems)


def _streamed(
    plan: DirectPlan, accumulations: AccumulationGroups, extent: BlockExtent
) -> Transfers:
    """Weights that are loaded as they are used, once for as many tiles as there are banks."""
    total = Transfers()
    if plan.streamed:
        for group in accumulations.kinds:
            accumulation = group.accumulation
            bank = plan.machine.psum_bank_fp32_elems
            tiles = block_tiles(
                (accumulation.packing.rows, accumulation.packing.columns), extent, bank
            )
            again = group.count * -(-tiles // plan.machine.psum_banks)
            for width, products in accumulation.weight_widths.items():
                loads = again * products
                total += transfer(plan, loads, loads * PARTITIONS, width * plan.item_bytes)
    return total


def _late_ns(
    plan: DirectPlan, timing: Timing, accumulations: AccumulationGroups, blocks: _Loads
) -> float:
    """What a block waits for its first windows, if there is no room to load them ahead.

    Those of the block before are given up one by one while its last tile is summed.
    """
    if not accumulations or not blocks.loads or plan.window_major:
        return 0.0
    last_tile = (
        accumulations[-1].accumulation.matmuls * blocks.tile_positions / timing.pe_columns_per_ns
    )
    late = 0.0
    for level, slots in enumerate(plan.slots, start=1):
        first, last = (accumulations[at].accumulation.tile_levels[level] for at in (0, -1))
        short = first - max(0, slots - last)
        if short > 0:
            each = max(load.ns for load, window in blocks.loads if window.tile.level == level)
            late += short * each + timing.dma_start_ns + timing.dma_done_ns
    # loads queue in order: those that found room wait behind the first that did not
    whole = sum(window.count * load.ns for load, window in blocks.loads)
    waiting = whole / sum(window.count for _, window in blocks.loads) if late else 0.0
    return max(0.0, late + waiting - last_tile)

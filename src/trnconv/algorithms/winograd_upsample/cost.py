"""What a plan by differences costs, by the cost model: times, bytes and static instructions."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from operator import add
from typing import NamedTuple

from nkisim.compiler_count import matmul_instructions
from trnconv.algorithms.algorithm import Cost
from trnconv.algorithms.dma import fence_ns, issue_ns, latency_ns, moved_ns
from trnconv.algorithms.recipe_parts import loop_spans
from trnconv.algorithms.rectangles import rectangles
from trnconv.algorithms.winograd_upsample.blocks import (
    PairSpan,
    column_spans,
    frame_reads,
    iterations_of,
    row_spans,
    tap_sets,
)
from trnconv.algorithms.winograd_upsample.plan import HEIGHT, V_BYTES, V_DTYPE, WIDTH, UpsamplePlan
from trnconv.algorithms.winograd_upsample.sbuf import (
    channel_tiles,
    lay_out,
    pieces_of,
    set_columns,
)
from trnconv.algorithms.winograd_upsample.terms import PRODUCTS, TIMES, plane_sizes
from trnconv.geometry import REPLICATE
from trnconv.problem.epilogue import NO_RESIDUAL

_MATMUL = matmul_instructions(V_DTYPE)
_COPIES, _ENDS = 4, 5  # of a chain, on the Scalar and on the Vector engine
_ADDED = 1  # on the GpSimd engine
_OUTPUTS = TIMES * TIMES
# What hides behind the Tensor engine in the model may not on a device, as for `winograd`.
_TRAFFIC_WEIGHT = 0.06
_ENGINE_WEIGHT = 0.03


class BlockTime(NamedTuple):
    """What engines do for a block, in ns, with bytes and instructions."""

    tensor: float = 0.0
    vector: float = 0.0
    scalar: float = 0.0
    gpsimd: float = 0.0
    dma: float = 0.0
    issue: float = 0.0
    bytes: float = 0.0
    instructions: float = 0.0
    columns: float = 0.0

    def plus(self, other: BlockTime) -> BlockTime:
        """Both together."""
        return BlockTime._make(map(add, self, other))

    def times(self, count: float) -> BlockTime:
        """So many of them."""
        return BlockTime._make([count * value for value in self])

    @property
    def longest_ns(self) -> float:
        """Of the engines, which work side by side."""
        return max(self[:6])


@lru_cache(maxsize=4096)
def cost_of(plan: UpsamplePlan) -> Cost:
    """The cost of a plan."""
    timing = plan.timing
    span_kinds = Counter(span.look for span in row_spans(plan))
    one_of = {span.look: span for span in row_spans(plan)}
    spans = {look: _span_time(plan, one_of[look]) for look in span_kinds}
    times = {look: plan.shape.batch * count for look, count in span_kinds.items()}
    every = BlockTime()
    for look, count in times.items():
        every = every.plus(spans[look].times(count))
    iterations = iterations_of(plan)
    most = max(times, key=lambda look: times[look])
    looped = iterations * plan.iteration_spans
    unrolled = {look: count - looped * (look == most) for look, count in times.items()}
    kept = _kept_weights(plan)
    begin = _begin_ns(plan, one_of[most])
    straight = sum(spans[look].longest_ns * count for look, count in unrolled.items())
    total = kept.dma + (straight + begin if any(unrolled.values()) else 0.0)
    loops = iterations * (begin + timing.loop_iteration_ns)
    total += loops + looped * spans[most].longest_ns
    if plan.is_fenced:
        outputs = plan.shape.batch * plan.shape.c_out * plan.shape.positions()
        total += fence_ns(timing, outputs * plan.out_bytes)
    static = sum(spans[look].instructions * count for look, count in unrolled.items())
    static += spans[most].instructions * plan.iteration_spans * bool(iterations)
    every = every.plus(kept)
    return Cost(
        total_ns=total,
        weighed_ns=total
        + _TRAFFIC_WEIGHT * every.dma
        + _ENGINE_WEIGHT * (every.vector + every.gpsimd),
        busy=(
            ("tensor", every.tensor),
            ("vector", every.vector),
            ("scalar", every.scalar),
            ("gpsimd", every.gpsimd),
            ("dma", every.dma),
            ("dma issue", every.issue),
        ),
        hbm_bytes=round(every.bytes),
        sbuf_bytes=lay_out(plan).end,
        instructions=round(static + kept.instructions) + plan.is_fenced,
        loops_ns=loops,
        columns=round(every.columns),
        regions=len(trips_of(plan)),
    )


def trips_of(plan: UpsamplePlan) -> tuple[int, ...]:
    """Iterations of the hardware loops of a plan's program, in their order."""
    iterations = iterations_of(plan)
    return (
        tuple(end - first for first, end in loop_spans(iterations, plan.machine))
        if iterations
        else ()
    )


def least_ns(plan: UpsamplePlan) -> float:
    """What any plan takes at least: its matmuls, without gaps."""
    shape, lines = plan.shape, plan.machine.partitions
    ins, outs = (len(channel_tiles(n, lines)) for n in (shape.c_in, shape.c_out))
    first, end = plan.row_span
    positions = shape.batch * (end - first) / TIMES * shape.size[WIDTH]
    taps = sum(len(reads) for reads in frame_reads(shape))
    columns = len(PRODUCTS) * ins * outs * taps * positions
    return columns / plan.timing.pe_columns_per_ns


def _span_time(plan: UpsamplePlan, row: PairSpan) -> BlockTime:
    """All blocks of a span, and all their frames."""
    every = BlockTime()
    for column in column_spans(plan):
        every = every.plus(_block_time(plan, row, column))
    return every


def _block_time(plan: UpsamplePlan, row: PairSpan, column: PairSpan) -> BlockTime:
    reads = frame_reads(plan.shape)
    made = len({frame for taps in reads for frame, _ in taps})
    every = _prepare_time(plan, row, column).times(made)
    for taps in reads:
        every = every.plus(_unit_time(plan, row, column, len(taps)))
    return every


def _prepare_time(plan: UpsamplePlan, row: PairSpan, column: PairSpan) -> BlockTime:
    """Load an input frame and make its differences."""
    timing = plan.timing
    rows = row.count + 2 - row.before - row.after
    columns = column.count + 2 - column.before - column.after
    repeats = plan.shape.modes[HEIGHT] == REPLICATE
    repeated = (row.before + row.after) * repeats
    borders = column.before + column.after + (0 if repeats else row.before + row.after)
    x, across, down, both = (a * b for a, b in plane_sizes(row.count, column.count))
    on_vector = [across, both] if plan.gpsimd_rows else [across, down, both]
    tiles = channel_tiles(plan.shape.c_in, plan.machine.partitions)
    count, pieces = len(tiles), pieces_of(plan)
    runs = sum(channels for _, channels in tiles) * (rows + repeated)
    border = borders * (row.count + 2) * timing.gpsimd_cycles_per_elem
    early = down * timing.gpsimd_cycles_per_elem if plan.gpsimd_rows else 0
    gpsimd = border + early + timing.gpsimd_startup_cycles * (borders + pieces * plan.gpsimd_rows)
    loads = count * (1 + repeated)
    return BlockTime(
        vector=count
        * sum(elems + pieces * timing.vector_startup_cycles for elems in on_vector)
        / timing.vector_ghz,
        scalar=count * (x + pieces * timing.scalar_startup_cycles) / timing.scalar_ghz,
        gpsimd=count * gpsimd / timing.gpsimd_ghz,
        dma=moved_ns(timing, runs, columns * plan.item_bytes),
        issue=loads * issue_ns(timing),
        bytes=runs * columns * plan.item_bytes,
        instructions=loads + count * (4 * pieces + borders),
    )


def _unit_time(plan: UpsamplePlan, row: PairSpan, column: PairSpan, taps: int) -> BlockTime:
    """One output frame of a block, all output channels."""
    timing, machine = plan.timing, plan.machine
    sizes = [
        (part.row_end - part.row) * (part.column_end - part.column)
        for part in rectangles(row.count, column.count, machine.psum_bank_fp32_elems)
    ]
    tiles = channel_tiles(plan.shape.c_out, machine.partitions)
    ins = channel_tiles(plan.shape.c_in, machine.partitions)
    matmuls = len(PRODUCTS) * len(ins) * taps
    elems, chains, outs = sum(sizes), len(sizes), len(tiles)
    streamed = sum(max(size, timing.pe_min_cycles) + timing.pe_gap_cycles for size in sizes)
    residual = plan.epilogue.residual != NO_RESIDUAL
    added = _ADDED + (_OUTPUTS if residual else 0) + plan.gpsimd_sums
    ends, copies = _ENDS - plan.gpsimd_sums, _COPIES + plan.gpsimd_sums
    adding = added * (elems * timing.gpsimd_cycles_per_elem + chains * timing.gpsimd_startup_cycles)
    one = BlockTime(
        tensor=matmuls * streamed / timing.pe_columns_per_ns,
        vector=ends * (elems + chains * timing.vector_startup_cycles) / timing.vector_ghz,
        scalar=copies * (elems + chains * timing.scalar_startup_cycles) / timing.scalar_ghz,
        gpsimd=adding / timing.gpsimd_ghz,
        instructions=chains * (_MATMUL * matmuls + ends + copies + added),
        columns=matmuls * elems,
    )
    every = one.times(outs).plus(_store_time(plan, row, column))
    if residual:
        every = every.plus(_residual_time(plan, row, column))
    return every.plus(_streamed_time(plan, taps)) if plan.streamed else every


def _store_time(plan: UpsamplePlan, row: PairSpan, column: PairSpan) -> BlockTime:
    whole = column.stored == plan.shape.out_size(WIDTH)
    runs = plan.shape.c_out * (1 if whole else row.stored)
    every = plan.shape.c_out * row.stored * column.stored * plan.out_bytes
    return _moved(plan, _out_tiles(plan), runs, every)


def _residual_time(plan: UpsamplePlan, row: PairSpan, column: PairSpan) -> BlockTime:
    if plan.epilogue.coarse is None:
        return _store_time(plan, row, column)
    runs = plan.shape.c_out * TIMES * row.count
    return _moved(plan, TIMES * _out_tiles(plan), runs, runs * column.count * plan.item_bytes)


def _streamed_time(plan: UpsamplePlan, taps: int) -> BlockTime:
    """Weights of a unit, all tiles of outputs."""
    lines, tiles = plan.machine.partitions, _out_tiles(plan)
    every = lines * taps * set_columns(plan) * plan.shape.c_out * V_BYTES
    return _moved(plan, taps * tiles, lines * taps * tiles, every)


def _kept_weights(plan: UpsamplePlan) -> BlockTime:
    """Weights that stay in SBUF, and constants: what a kernel begins with."""
    lines = plan.machine.partitions
    every = lines * len(tap_sets(plan.shape)) * set_columns(plan) * plan.shape.c_out * V_BYTES
    return _moved(plan, 2, lines, 0.0 if plan.streamed else every)


def _moved(plan: UpsamplePlan, transfers: int, runs: float, every: float) -> BlockTime:
    """Transfers of so many runs and bytes together."""
    timing = plan.timing
    return BlockTime(
        dma=moved_ns(timing, runs, every / runs),
        issue=transfers * issue_ns(timing),
        bytes=every,
        instructions=transfers,
    )


def _out_tiles(plan: UpsamplePlan) -> int:
    return len(channel_tiles(plan.shape.c_out, plan.machine.partitions))


def _begin_ns(plan: UpsamplePlan, row: PairSpan) -> float:
    """What a region, or an iteration, takes besides its units: its first inputs, last store."""
    timing, column = plan.timing, column_spans(plan)[0]
    frames = len(frame_reads(plan.shape)[0])
    prepare = _prepare_time(plan, row, column)
    made = prepare.times(frames)
    loaded = latency_ns(timing, looped=plan.is_looped) + prepare.dma
    if plan.streamed:
        loaded += _streamed_time(plan, frames).dma / _out_tiles(plan)
    store = _store_time(plan, row, column).dma / _out_tiles(plan)
    return loaded + max(made.vector, made.scalar, made.gpsimd) + store + latency_ns(timing)

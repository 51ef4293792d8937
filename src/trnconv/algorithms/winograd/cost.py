"""What a Winograd plan costs, by the cost model: modelled times, bytes and static instructions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import lcm
from typing import NamedTuple

from trnconv.algorithms.algorithm import Cost
from trnconv.algorithms.dma import fence_ns, issue_ns, moved_ns
from trnconv.algorithms.recipe_parts import loop_spans
from trnconv.algorithms.winograd.block_cost import (
    EngineSum,
    InLook,
    OutLook,
    Rates,
    in_look,
    inputs_cost,
    out_look,
    outputs_cost,
    rates_of,
    stores_cost,
    streamed_cost,
    total,
)
from trnconv.algorithms.winograd.blocks import (
    blocks_of_span,
    column_kinds,
    frame_looks,
    frame_starts,
    frames_loaded,
    made_of_block,
    row_kinds,
    stored_units,
)
from trnconv.algorithms.winograd.channels import out_channels
from trnconv.algorithms.winograd.plan import LEAST, V_BYTES, WinogradPlan
from trnconv.algorithms.winograd.sbuf import sbuf_end, with_least_buffers
from trnconv.algorithms.winograd.steady_state import most_frequent
from trnconv.algorithms.winograd.throughput import (
    IterationThroughput,
    iteration_throughput,
    unrolled_throughput,
)

# By schedules of the layers of `benchmarks fast`; good to 30 %, which is enough to look for sizes.
_HIDDEN_SHARE = 0.62
_NOT_HIDDEN = 0.55
# What hides behind the Tensor engine in the model may not on a device. By algorithms/search.py's
# problems: without the first 37 plans are others, 0.6 % faster with 29 % more traffic; without the
# second 4 are, 0.5 % slower.
_CLOSE = 1.02
_TRAFFIC_WEIGHT = 0.06
_VECTOR_WEIGHT = 0.03


@lru_cache(maxsize=30_000)  # every budget of a graph asks again
def cost_of(plan: WinogradPlan) -> Cost:
    """The cost of a plan that its schedule and SBUF allow."""
    sized = _sized_cost(_sized(plan))
    groups = _groups(plan, sized.out_tiles)
    sweeps = len(groups)
    weights = (
        sized.streamed
        if plan.streamed
        else sized.weights._replace(loads=sweeps, instructions=sweeps)
    )
    every = sized.inputs.times(sweeps).plus(sized.outputs).plus(weights)
    busy = _busy(plan, every)
    taken = [_sweep(plan, sized, tiles) for tiles in groups]
    total_ns = sum(sweep.total_ns for sweep in taken)
    if plan.is_fenced:
        outputs = plan.shape.batch * plan.shape.c_out * plan.shape.positions()
        total_ns += fence_ns(plan.timing, outputs * plan.out_bytes)
    return Cost(
        total_ns=total_ns,
        weighed_ns=total_ns + _TRAFFIC_WEIGHT * busy["dma"] + _VECTOR_WEIGHT * busy["vector"],
        busy=tuple(busy.items()),
        hbm_bytes=every.bytes,
        sbuf_bytes=sbuf_end(plan),
        instructions=instructions_of(plan) + plan.is_fenced,
        loops_ns=sum(sweep.loops_ns for sweep in taken),
        columns=every.columns,
        regions=len(trips_of(plan)),
    )


def instructions_of(plan: WinogradPlan) -> int:
    """Static instructions; those of a loop count once."""
    return _instructions(plan, _sized_cost(_sized(plan)), plan.body_blocks)


def least_instructions(plan: WinogradPlan) -> int:
    """Static instructions of any plan with blocks of this size: each kind of block once."""
    kinds = _sized_cost(_sized(plan)).kinds
    return round(sum(kind.inputs + kind.outputs for kind in kinds))


def fewest_iterations(plan: WinogradPlan, budget: int) -> WinogradPlan | None:
    """One loop over spans along rows with the fewest iterations within the budget, if there is one.

    An iteration is a multiple of the blocks after which slots repeat (`body_blocks`), and of those
    of a span.
    """
    sized = _sized_cost(_sized(plan))
    of_span = blocks_of_span(plan)
    step = lcm(plan.body_blocks, of_span) // of_span
    equal = plan.shape.batch * max(count for _, count in row_kinds(plan))
    loop = plan.but(looped=True, spans=1)
    # No iteration has more blocks than the budget has room for, whatever stands beside the loop.
    sweeps = len(_groups(plan, sized.out_tiles))
    most = (budget + 1) / (of_span * _of_block(plan, sized.spans[0], sweeps))
    spans_before = 0
    for iterations in range(2, equal // step + 1):
        spans = equal // iterations // step * step
        if spans > most or spans == spans_before:
            continue
        if _instructions(loop, sized, spans * of_span) <= budget:
            return loop.but(spans=spans, body_blocks=spans * of_span)
        spans_before = spans
    return None


def longest_body(plan: WinogradPlan, bodies: Iterable[int], budget: int) -> int | None:
    """The first of these lengths of an iteration, in blocks, with which loops are short enough."""
    sized = _sized_cost(_sized(plan))
    return next((body for body in bodies if _instructions(plan, sized, body) <= budget), None)


def _instructions(plan: WinogradPlan, sized: _SizeCost, body: int) -> int:
    sweeps = len(_groups(plan, sized.out_tiles))
    static = 0 if plan.streamed else sweeps
    for kind in sized.kinds_of(plan):
        iterations = _iterations(plan, kind, body)
        blocks = kind.blocks - max(0, iterations - 1) * body
        static += round(blocks * _of_block(plan, kind, sweeps))
    return static


def _of_block(plan: WinogradPlan, kind: _BlockCount, sweeps: int) -> float:
    """Static instructions of a block of a kind, in all sweeps."""
    return sweeps * kind.inputs + kind.outputs + (kind.streamed if plan.streamed else 0)


def trips_of(plan: WinogradPlan) -> tuple[int, ...]:
    """Iterations of the hardware loops of a plan's program, in their order."""
    sized = _sized_cost(_sized(plan))
    iterations = (_iterations(plan, kind, plan.body_blocks) for kind in sized.kinds_of(plan))
    loops = (loop_spans(count, plan.machine) for count in iterations if count)
    trips = tuple(end - first for spans in loops for first, end in spans)
    return trips * len(_groups(plan, sized.out_tiles))


def _iterations(plan: WinogradPlan, kind: _BlockCount, body: int) -> int:
    """Of a loop over the blocks of a kind, `body` an iteration; 0 if they are unrolled."""
    iterations = kind.blocks // body if plan.looped and kind.loops else 0
    return iterations if iterations > 1 else 0


def _groups(plan: WinogradPlan, tiles: int) -> list[tuple[int, int]]:
    """Tiles of output channels of each sweep over all blocks, first and end.

    One sweep if weights are streamed. All tiles but the last are alike, so are their groups.
    """
    if plan.streamed:
        return [(0, tiles)]
    before = (tiles - 1) // plan.group
    return [*(before * [(0, plan.group)]), (before * plan.group, tiles)]


class _SweepTime(NamedTuple):
    """Modelled times of a sweep over all blocks, in ns."""

    total_ns: float
    loops_ns: float  # what iterations of loops add


def _sweep(plan: WinogradPlan, sized: _SizeCost, tiles: tuple[int, int]) -> _SweepTime:
    """Blocks one after the other, and loops; kinds of blocks by what engines do for each."""
    if any(_iterations(plan, kind, plan.body_blocks) for kind in sized.kinds_of(plan)):
        return _looped(plan, sized, iteration_throughput(plan, tiles))
    blocks = sum(kind.share * kind.blocks for kind in sized.kinds)
    return _SweepTime(unrolled_throughput(plan, tiles).of_blocks(blocks), 0.0)


def _looped(plan: WinogradPlan, sized: _SizeCost, iteration: IterationThroughput) -> _SweepTime:
    """Loops over blocks of a kind each, and what is left of a kind one after the other."""
    looped = [(kind, _iterations(plan, kind, plan.body_blocks)) for kind in sized.kinds_of(plan)]
    unrolled = sum(
        kind.share * (kind.blocks - iterations * plan.body_blocks) for kind, iterations in looped
    )
    total = (
        iteration.begin_ns + iteration.lost_ns + unrolled * iteration.block_ns if unrolled else 0.0
    )
    loops = 0.0
    for kind, iterations in looped:
        if iterations:
            total += iteration.begin_ns + iterations * (
                iteration.pause_ns + kind.share * iteration.body_ns
            )
            loops += iteration.begin_ns + iterations * (iteration.pause_ns + iteration.lost_ns)
    return _SweepTime(total, loops)


def is_faster_with(plan: WinogradPlan, reference: WinogradPlan) -> bool:
    """Whether loops over other kinds of blocks take less, with iterations as of `reference`."""
    sized, other = _sized_cost(_sized(plan)), _sized_cost(_sized(reference))
    tiles = _groups(reference, other.out_tiles)[0]
    longer = reference.but(body_blocks=plan.body_blocks)
    own = _looped(plan, sized, iteration_throughput(longer, tiles)).total_ns
    return own < _CLOSE * _looped(reference, other, iteration_throughput(reference, tiles)).total_ns


def _busy(plan: WinogradPlan, every: EngineSum) -> dict[str, float]:
    """By resource, in ns."""
    timing = plan.machine.timing
    return {
        "tensor": every.tensor / timing.pe_columns_per_ns,
        "vector": every.vector / timing.vector_ghz,
        "scalar": every.scalar / timing.scalar_ghz,
        "dma": every.moved,
        "dma issue": every.loads * issue_ns(timing),
    }


def least_ns(plan: WinogradPlan) -> float:
    """What plans with blocks of this size are weighed with at least, whatever else they decide."""
    sized = _sized_cost(_sized(plan))
    busy = _busy(plan, sized.inputs.plus(sized.outputs))
    weighed = _TRAFFIC_WEIGHT * busy["dma"] + _VECTOR_WEIGHT * busy["vector"]
    return max(busy.values()) + weighed


def likely_ns(plan: WinogradPlan, budget: int) -> float:
    """About what plans with blocks of this size take within so many static instructions.

    Cheap: it decides which sizes are followed step by step. Both engines work in order, so the
    Tensor engine waits for some of what the Vector engine does beyond a share of its own time.
    """
    sized = _sized_cost(_sized(plan))
    every = sized.inputs.plus(sized.outputs)
    # Inputs are loaded late to make room where weights are streamed: sizes differ in their traffic.
    busy = _busy(plan, every.plus(sized.streamed) if plan.x_tiles else every)
    beyond = max(0.0, busy["vector"] - _HIDDEN_SHARE * busy["tensor"])
    static = sum(kind.blocks * (kind.inputs + kind.outputs) for kind in sized.kinds)
    begin_ns = sized.begin_ns
    if static > budget:
        # Each kind of block is a loop of its own.
        begin_ns += len(sized.kinds) * (sized.begin_ns + sized.weights.moved)
        begin_ns += static / budget * (sized.begin_ns + plan.machine.timing.loop_iteration_ns)
    waited = max(*busy.values(), busy["tensor"] + _NOT_HIDDEN * beyond)
    return waited + begin_ns + _TRAFFIC_WEIGHT * busy["dma"]


class _BlockCount(NamedTuple):
    """Instructions of one block of a kind, or of the mean of some, and how many there are."""

    inputs: float
    outputs: float
    streamed: float
    blocks: int
    share: float  # of the time of a block of the most frequent kind
    loops: bool = True  # whether a hardware loop may go through them


def _mean(kinds: Sequence[_BlockCount]) -> _BlockCount:
    """All of some kinds, as blocks of one."""
    blocks = sum(kind.blocks for kind in kinds)
    sums = [sum(kind.blocks * kind[at] for kind in kinds) for at in (0, 1, 2, 4)]
    inputs, outputs, streamed, share = (total / blocks for total in sums)
    return _BlockCount(inputs, outputs, streamed, blocks, share)


class _SizeCost(NamedTuple):
    """What all plans cost that have blocks of one size, whatever else they decide."""

    inputs: EngineSum  # of one sweep
    outputs: EngineSum
    streamed: EngineSum  # loads of weights, if they are streamed
    weights: EngineSum  # if they stay
    kinds: tuple[_BlockCount, ...]  # the fewest blocks first, as programs have their loops
    spans: tuple[
        _BlockCount, ...
    ]  # those of most frequent spans along rows as one, then the others
    begin_ns: float  # before the first matmul of a sweep, without weights
    out_tiles: int

    def kinds_of(self, plan: WinogradPlan) -> tuple[_BlockCount, ...]:
        """Kinds as loops of a plan go through them."""
        return self.spans if plan.spans else self.kinds


def _sized(plan: WinogradPlan) -> WinogradPlan:
    """The same for all plans that differ only in what a size's costs do not depend on."""
    if plan.group == 1 and plan.streamed == 0:
        return with_least_buffers(plan)
    return plan.but(**LEAST)


@lru_cache(maxsize=15_000)
def _sized_cost(plan: WinogradPlan) -> _SizeCost:
    rates, frames, tiles = rates_of(plan), frames_loaded(plan), made_of_block(plan)
    every = len(frame_starts(plan)) * plan.shape.batch
    every_read, every_written, rows = _alike(plan, rates)
    into = {look: inputs_cost(rates, frames, tiles, look) for look in every_read}
    stored = stored_units(plan)
    out = {
        look: outputs_cost(rates, look)
        .times(plan.units)
        .plus(stores_cost(rates, look).times(stored))
        for look in every_written
    }
    weights = {look: streamed_cost(rates, look).times(plan.units) for look in every_written}
    row, column = most_frequent(plan)
    kind = in_look(rates, row, column), out_look(row, column)
    most = _block_ns(plan, into[kind[0]], out[kind[1]], weights[kind[1]])
    by_row = [
        [
            _BlockCount(
                into[read].instructions,
                out[written].instructions,
                weights[written].instructions,
                plan.shape.batch * alike.blocks * count,
                _block_ns(plan, into[read], out[written], weights[written], alike.share) / most,
            )
            for read, written, count in kinds
            for alike in frame_looks(plan)
        ]
        for kinds in rows
    ]
    longest = max(by_row, key=lambda kinds: sum(kind.blocks for kind in kinds))
    others = [kind for kinds in by_row if kinds is not longest for kind in kinds]
    return _SizeCost(
        total((cost, every * every_read[look]) for look, cost in into.items()),
        total((cost, every * every_written[look]) for look, cost in out.items()),
        total((cost, every * every_written[look]) for look, cost in weights.items()),
        _weight_loads(rates),
        tuple(sorted((kind for kinds in by_row for kind in kinds), key=lambda kind: kind.blocks)),
        (_mean(longest), *(kind._replace(loops=False) for kind in others)),
        _begin_ns(plan, rates),
        len(out_channels(plan)),
    )


def _block_ns(
    plan: WinogradPlan,
    inputs: EngineSum,
    outputs: EngineSum,
    weights: EngineSum,
    share: float = 1.0,
) -> float:
    """What decides how long a block with a share of its products takes beside others.

    With inputs that are loaded late, weights are streamed, and small blocks wait for them.
    """
    if plan.x_tiles:
        busy = _busy(plan, inputs.plus(outputs).plus(weights))
        return max(share * busy["tensor"], busy["dma"])
    busy = _busy(plan, inputs.plus(outputs))
    return share * (busy["tensor"] + busy["vector"])


def _alike(
    plan: WinogradPlan, rates: Rates
) -> tuple[Counter[InLook], Counter[OutLook], list[list[tuple[InLook, OutLook, int]]]]:
    """Kinds of blocks by what their inputs and their outputs cost, for each look of rows."""
    read, written = Counter[InLook](), Counter[OutLook]()
    rows = []
    for row, many in row_kinds(plan):
        kinds = []
        for column, more in column_kinds(plan):
            one, other, count = in_look(rates, row, column), out_look(row, column), many * more
            read[one] += count
            written[other] += count
            kinds.append((one, other, count))
        rows.append(kinds)
    return read, written, rows


def _weight_loads(rates: Rates) -> EngineSum:
    """Weights that stay."""
    row_bytes = rates.weight_columns * V_BYTES
    moved = moved_ns(rates.timing, rates.lines, row_bytes)
    return EngineSum(moved=moved, bytes=rates.lines * row_bytes)


def _begin_ns(plan: WinogradPlan, rates: Rates) -> float:
    """Before the first matmul of a sweep: its loads and the first transforms."""
    timing, frames, tiles = rates.timing, frames_loaded(plan), made_of_block(plan)
    row, column = row_kinds(plan)[0][0], column_kinds(plan)[0][0]
    inputs = inputs_cost(rates, frames, tiles, in_look(rates, row, column))
    share = plan.read_frames * plan.tile_frames / frames
    loads = inputs.loads * share * issue_ns(timing) + inputs.moved * share
    first = plan.read_frames * plan.v_frames
    prepared = inputs.vector / tiles * first / timing.vector_ghz
    out = row.outs * column.outs * rates.y_bytes * rates.lines
    out_ns = out / timing.dma_bytes_per_ns / timing.dma_engines
    return 2 * timing.dma_start_ns + loads + prepared + out_ns

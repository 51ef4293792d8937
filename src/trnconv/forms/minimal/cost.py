"""What a minimal plan costs, in closed form: modelled times, bytes and static instructions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from nkisim.machine import Timing
from trnconv.forms.form import Cost
from trnconv.forms.minimal.block_cost import (
    InLook,
    OutLook,
    Rates,
    Sum,
    in_look,
    inputs_cost,
    moved_ns,
    out_look,
    outputs_cost,
    rates_of,
    streamed_cost,
    total,
)
from trnconv.forms.minimal.blocks import column_kinds, frame_starts, row_kinds
from trnconv.forms.minimal.channels import out_channels
from trnconv.forms.minimal.plan import V_BYTES, MinimalPlan
from trnconv.forms.minimal.sbuf import sbuf_end, with_least_buffers

# How much of the Vector engine's work the Tensor engine waits for, as far as it exceeds a share of
# the latter's own: both work in order, and a chain ends on one before the other goes on. Fitted to
# nkisim's schedules of the layers of `benchmarks fast` (constants 2): F(2,3) within 3 %, F(4,3)
# with a residual or streamed weights up to 27 % off.
_HIDDEN_SHARE = 0.62
_NOT_HIDDEN = 0.55
# What hides behind the Tensor engine in the model may not on a device. By forms/search.py's
# problems: without the first 37 plans are others, 0.6 % faster with 29 % more traffic; without the
# second 4 are, 0.5 % slower.
_TRAFFIC_WEIGHT = 0.06
_VECTOR_WEIGHT = 0.03


@lru_cache(maxsize=30_000)  # every budget of a graph asks again
def cost_of(plan: MinimalPlan) -> Cost:
    """The cost of a plan that its schedule and SBUF allow."""
    sized = _sized_cost(_sized(plan))
    sweeps = 1 if plan.streamed else -(-sized.out_tiles // plan.group)
    loops = turns = static = 0
    for kind in sized.kinds:
        each = sweeps * kind.inputs + kind.outputs + (kind.streamed if plan.streamed else 0)
        in_loop = kind.blocks // plan.body_blocks if plan.rolled else 0
        once = kind.blocks
        if in_loop > 1:
            loops, turns = loops + 1, turns + in_loop * sweeps
            once = kind.blocks - (in_loop - 1) * plan.body_blocks
        static += once * each
    weights = (
        sized.streamed
        if plan.streamed
        else sized.weights._replace(loads=sweeps, instructions=sweeps)
    )
    every = sized.inputs.times(sweeps).plus(sized.outputs).plus(weights)
    kept = 0.0 if plan.streamed else weights.moved
    timing = plan.target.timing
    busy = _busy(plan, every)
    ends = (sized.begin_ns + kept / 2) * (1 + loops) * sweeps
    loops_ns = (turns + loops * sweeps) * _turn_ns(timing)
    bursts = _bursts_ns(plan, sized) if plan.streamed else 0.0
    total_ns = _busiest_ns(busy) + ends + loops_ns + bursts
    return Cost(
        total_ns=total_ns,
        weighed_ns=total_ns + _TRAFFIC_WEIGHT * busy["dma"] + _VECTOR_WEIGHT * busy["vector"],
        busy=tuple(busy.items()),
        hbm_bytes=every.bytes,
        sbuf_bytes=sbuf_end(plan),
        instructions=static + (0 if plan.streamed else sweeps),
        loops_ns=loops_ns,
        columns=every.columns,
    )


def _turn_ns(timing: Timing) -> float:
    """What a turn of a hardware loop adds: the last store drains, the Tensor engine gets cold."""
    last_store = timing.dma_issue_hwdge_ns + timing.dma_start_ns + timing.dma_done_ns
    return timing.loop_turn_ns + last_store + timing.pe_warm_ns * (1 - timing.pe_cold_rate)


def _busy(plan: MinimalPlan, every: Sum) -> dict[str, float]:
    """By resource, in ns."""
    timing = plan.target.timing
    return {
        "tensor": every.tensor / timing.pe_columns_per_ns,
        "vector": every.vector / timing.vector_ghz,
        "scalar": every.scalar / timing.scalar_ghz,
        "dma": every.moved,
        "dma issue": every.loads * timing.dma_issue_hwdge_ns,
    }


def _busiest_ns(busy: dict[str, float]) -> float:
    """The busiest resource; the Tensor engine also waits for the Vector engine."""
    beyond = max(0.0, busy["vector"] - _HIDDEN_SHARE * busy["tensor"])
    return max(*busy.values(), busy["tensor"] + _NOT_HIDDEN * beyond)


def _bursts_ns(plan: MinimalPlan, sized: _Sized) -> float:
    """A unit's inputs are loaded at once; weights that are there already bridge some of that."""
    timing = plan.target.timing
    units = plan.units * sum(kind.blocks for kind in sized.kinds)
    burst = sized.inputs.loads / units * timing.dma_issue_hwdge_ns
    of_load = sized.outputs.tensor / timing.pe_columns_per_ns / sized.streamed.loads
    return units * max(0.0, burst - plan.streamed * of_load)


def least_ns(plan: MinimalPlan) -> float:
    """What plans with blocks of this size are weighed with at least, whatever else they decide."""
    sized = _sized_cost(_sized(plan))
    busy = _busy(plan, sized.inputs.plus(sized.outputs))
    weighed = _TRAFFIC_WEIGHT * busy["dma"] + _VECTOR_WEIGHT * busy["vector"]
    return _busiest_ns(busy) + sized.begin_ns + weighed


def least_rolled_ns(plan: MinimalPlan, budget: int) -> float:
    """The same for plans with at most `budget` static instructions: most begin more than once."""
    sized = _sized_cost(_sized(plan))
    static = sum(kind.blocks * (kind.inputs + kind.outputs) for kind in sized.kinds)
    return least_ns(plan) + (sized.begin_ns if static > budget else 0.0)


class _Kind(NamedTuple):
    """Instructions of one block of a kind, and how many such blocks there are."""

    inputs: int
    outputs: int
    streamed: int
    blocks: int


class _Sized(NamedTuple):
    """What all plans cost that have blocks of one size, whatever else they decide."""

    inputs: Sum  # of one sweep
    outputs: Sum
    streamed: Sum  # loads of weights, if they are streamed
    weights: Sum  # if they stay
    kinds: tuple[_Kind, ...]
    begin_ns: float  # before the first matmul of a sweep, without weights
    out_tiles: int


def _sized(plan: MinimalPlan) -> MinimalPlan:
    """The same for all plans that differ only in what a size's costs do not depend on."""
    if plan.group == 1 and plan.streamed == 0:
        return with_least_buffers(plan)
    return replace(plan, x_slots=1, v_slots=1, group=1, streamed=0, body_blocks=1, rolled=False)


@lru_cache(maxsize=15_000)
def _sized_cost(plan: MinimalPlan) -> _Sized:
    rates, frames = rates_of(plan), plan.block_frames
    every = len(frame_starts(plan)) * plan.shape.batch
    tiles = frames if plan.by_rows else plan.units
    read, written, kinds = _alike(plan, rates)
    into = {look: inputs_cost(rates, frames, tiles, look) for look in read}
    out = {look: outputs_cost(rates, look).times(plan.units) for look in written}
    weights = {look: streamed_cost(rates, look).times(plan.units) for look in written}
    return _Sized(
        total((one, every * read[look]) for look, one in into.items()),
        total((one, every * written[look]) for look, one in out.items()),
        total((one, every * written[look]) for look, one in weights.items()),
        _weight_loads(rates),
        tuple(
            _Kind(
                into[one].instructions,
                out[other].instructions,
                weights[other].instructions,
                every * count,
            )
            for one, other, count in kinds
        ),
        _begin_ns(plan, rates),
        len(out_channels(plan)),
    )


def _alike(
    plan: MinimalPlan, rates: Rates
) -> tuple[Counter[InLook], Counter[OutLook], list[tuple[InLook, OutLook, int]]]:
    """Kinds of blocks by what their inputs and their outputs cost."""
    read, written = Counter[InLook](), Counter[OutLook]()
    kinds = []
    for row, many in row_kinds(plan):
        for column, more in column_kinds(plan):
            one, other, count = in_look(rates, row, column), out_look(row, column), many * more
            read[one] += count
            written[other] += count
            kinds.append((one, other, count))
    return read, written, kinds


def _weight_loads(rates: Rates) -> Sum:
    """Weights that stay."""
    row_bytes = rates.weight_columns * V_BYTES
    moved = moved_ns(rates.timing, rates.lines, row_bytes)
    return Sum(moved=moved, bytes=rates.lines * row_bytes)


def _begin_ns(plan: MinimalPlan, rates: Rates) -> float:
    """Before the first matmul of a sweep: its loads and the first transforms."""
    timing, frames = rates.timing, plan.block_frames
    row, column = row_kinds(plan)[0][0], column_kinds(plan)[0][0]
    tiles = frames if plan.by_rows else plan.units
    inputs = inputs_cost(rates, frames, tiles, in_look(rates, row, column))
    first = plan.read_frames if plan.by_rows else rates.products
    share = first / frames
    loads = inputs.loads * share * timing.dma_issue_hwdge_ns + inputs.moved * share
    prepared = inputs.vector / tiles * plan.read_frames / timing.vector_ghz
    out = row.outs * column.outs * rates.y_bytes * rates.lines
    out_ns = out / timing.dma_bytes_per_ns / timing.dma_engines
    return 2 * timing.dma_start_ns + loads + prepared + out_ns

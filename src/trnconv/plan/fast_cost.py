"""What a fast plan costs, in closed form: modelled times, bytes and static instructions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from trnconv.plan.fast_block_cost import (
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
from trnconv.plan.fast_blocks import column_kinds, frame_starts, row_kinds
from trnconv.plan.fast_channels import out_channels
from trnconv.plan.fast_memory import sbuf_end, with_least_buffers
from trnconv.plan.fast_plan import V_BYTES, FastPlan

# How much of the Vector engine's work the Tensor engine waits for, as far as it exceeds a share of
# the latter's own: both work in order, and a chain ends on one before the other goes on.
_HIDDEN_SHARE = 0.62
_NOT_HIDDEN = 0.55
_TRAFFIC_WEIGHT = 0.06  # what hides behind the Tensor engine in the model may not on a device
_VECTOR_WEIGHT = 0.03


@dataclass(frozen=True)
class FastEstimate:
    """Modelled times in ns on the plan's machine, default reading; bytes; static instructions."""

    tensor_ns: float
    vector_ns: float
    scalar_ns: float
    dma_ns: float
    issue_ns: float
    ends_ns: float  # before the first matmul, after the last, and at the start of every loop
    loops_ns: float
    bursts_ns: float  # while loads of inputs keep those of streamed weights waiting
    hbm_bytes: int
    sbuf_bytes: int
    instructions: int
    columns: int  # matmul columns that stream through the array

    @property
    def waiting_ns(self) -> float:
        """What the Tensor engine waits for the Vector engine."""
        return _waiting_ns(self.tensor_ns, self.vector_ns)

    @property
    def total_ns(self) -> float:
        """The busiest resource, and what nothing hides."""
        computing = self.tensor_ns + self.waiting_ns
        most = max(computing, self.vector_ns, self.scalar_ns, self.dma_ns, self.issue_ns)
        return most + self.ends_ns + self.loops_ns + self.bursts_ns

    @property
    def weighed_ns(self) -> float:
        """What plans are ranked by: where times are close, the one that moves and waits less."""
        return self.total_ns + _TRAFFIC_WEIGHT * self.dma_ns + _VECTOR_WEIGHT * self.vector_ns

    @property
    def bound(self) -> str:
        """The busiest resource."""
        busy = self.busy_ns()
        return max(busy, key=lambda name: busy[name])

    def busy_ns(self) -> dict[str, float]:
        """By resource."""
        return {
            "tensor": self.tensor_ns,
            "vector": self.vector_ns,
            "scalar": self.scalar_ns,
            "dma": self.dma_ns,
            "dma issue": self.issue_ns,
        }


def estimate(plan: FastPlan) -> FastEstimate:
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
    return FastEstimate(
        tensor_ns=every.tensor / timing.pe_ghz,
        vector_ns=every.vector / timing.vector_ghz,
        scalar_ns=every.scalar / timing.scalar_ghz,
        dma_ns=every.moved,
        issue_ns=every.loads * timing.dma_issue_hwdge_ns,
        ends_ns=(sized.begin_ns + kept / 2) * (1 + loops) * sweeps,
        loops_ns=(turns + loops * sweeps) * timing.loop_iteration_ns,
        bursts_ns=_bursts_ns(plan, sized) if plan.streamed else 0.0,
        hbm_bytes=every.bytes,
        sbuf_bytes=sbuf_end(plan),
        instructions=static + (0 if plan.streamed else sweeps),
        columns=every.columns,
    )


def _bursts_ns(plan: FastPlan, sized: _Sized) -> float:
    """A unit's inputs are loaded at once; weights that are there already bridge some of that."""
    timing = plan.target.timing
    units = plan.units * sum(kind.blocks for kind in sized.kinds)
    burst = sized.inputs.loads / units * timing.dma_issue_hwdge_ns
    of_load = sized.outputs.tensor / timing.pe_ghz / sized.streamed.loads
    return units * max(0.0, burst - plan.streamed * of_load)


def least_ns(plan: FastPlan) -> float:
    """What plans with blocks of this size are weighed with at least, whatever else they decide."""
    timing, sized = plan.target.timing, _sized_cost(_sized(plan))
    every = sized.inputs.plus(sized.outputs)
    tensor, vector = every.tensor / timing.pe_ghz, every.vector / timing.vector_ghz
    scalar, issue = every.scalar / timing.scalar_ghz, every.loads * timing.dma_issue_hwdge_ns
    most = max(tensor + _waiting_ns(tensor, vector), vector, scalar, every.moved, issue)
    return most + sized.begin_ns + _TRAFFIC_WEIGHT * every.moved + _VECTOR_WEIGHT * vector


def least_rolled_ns(plan: FastPlan, budget: int) -> float:
    """The same for plans with at most `budget` static instructions: most begin more than once."""
    sized = _sized_cost(_sized(plan))
    static = sum(kind.blocks * (kind.inputs + kind.outputs) for kind in sized.kinds)
    return least_ns(plan) + (sized.begin_ns if static > budget else 0.0)


def _waiting_ns(tensor_ns: float, vector_ns: float) -> float:
    return _NOT_HIDDEN * max(0.0, vector_ns - _HIDDEN_SHARE * tensor_ns)


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


def _sized(plan: FastPlan) -> FastPlan:
    """The same for all plans that differ only in what a size's costs do not depend on."""
    if plan.group == 1 and plan.streamed == 0:
        return with_least_buffers(plan)
    return replace(plan, x_slots=1, v_slots=1, group=1, streamed=0, body_blocks=1, rolled=False)


@lru_cache(maxsize=4096)
def _sized_cost(plan: FastPlan) -> _Sized:
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
    plan: FastPlan, rates: Rates
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


def _begin_ns(plan: FastPlan, rates: Rates) -> float:
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

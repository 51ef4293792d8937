"""What a depthwise plan costs: the steps of one tile of lines, times their number."""

from __future__ import annotations

from nkisim.machine import Timing
from trnconv.algorithms.algorithm import Cost
from trnconv.algorithms.depthwise.actions import (
    Action,
    Transfer,
    end_transfers,
    piece_actions,
    transfers,
)
from trnconv.algorithms.depthwise.plan import WIDE_BYTES, DepthwisePlan
from trnconv.algorithms.depthwise.recipe import ADD, PSUM, SUM, VECTOR_BEGIN, VECTOR_FILL, WIDE
from trnconv.algorithms.dma import issue_ns, latency_ns, moved_ns

_VECTOR, _SCALAR, _GPSIMD = "vector", "scalar", "gpsimd"
_PSUM_PORT = "psum port"  # where Vector and Scalar engine share one


def cost_of(plan: DepthwisePlan) -> Cost:
    """The cost of a plan, legal or not."""
    timing = plan.timing
    on_vector, vector_steps = _pieces(plan, timing, PSUM)
    on_gpsimd, gpsimd_steps = _pieces(plan, timing, WIDE) if plan.gpsimd_pieces else ({}, 0)
    share = plan.vector_pieces / plan.group
    tiles = plan.lines / plan.machine.partitions
    times = {
        engine: plan.line_tiles
        * (share * on_vector.get(engine, 0.0) + (1 - share) * on_gpsimd.get(engine, 0.0))
        for engine in (
            _VECTOR,
            _SCALAR,
            _GPSIMD,
            *([_PSUM_PORT] if timing.psum_port_shared else []),
        )
    }
    moves = transfers(plan)
    moving = sum(count * _dma_ns(plan, timing, transfer) for transfer, count in moves.items())
    dmas = plan.line_tiles * moves.total() + 1
    elems = sum(count * transfer.elems for transfer, count in moves.items())
    filters = plan.filter_columns * WIDE_BYTES * min(plan.lines, plan.machine.partitions)
    issue = issue_ns(timing)
    steps = share * vector_steps + (1 - share) * gpsimd_steps
    moved = tiles * moving + filters / (timing.dma_engines * timing.dma_bytes_per_ns)
    first, last = (_dma_ns(plan, timing, transfer) for transfer in end_transfers(plan))
    ends = 2 * latency_ns(timing)  # of the first load and of the last store
    total = max(max(times.values()) + first + last, moved, dmas * issue - ends) + ends
    return Cost(
        total_ns=total,
        weighed_ns=total,
        busy=(*times.items(), ("dma", moved), ("dma issue", dmas * issue)),
        hbm_bytes=elems * plan.lines * plan.item_bytes + filters,
        sbuf_bytes=plan.sbuf_bytes(),
        instructions=round(plan.line_tiles * steps) + dmas + 1,
    )


def _pieces(plan: DepthwisePlan, timing: Timing, kind: str) -> tuple[dict[str, float], int]:
    """Times by engine of all pieces of a tile of lines, as if all were summed in one kind."""
    times: dict[str, float] = {}
    actions = piece_actions(plan, kind)
    for action, count in actions.items():
        engine, ns = _engine(action), count * _ns(plan, timing, action)
        times[engine] = times.get(engine, 0.0) + ns
        if engine != _GPSIMD and action.on_psum:
            times[_PSUM_PORT] = times.get(_PSUM_PORT, 0.0) + ns
    return times, actions.total()


def _engine(action: Action) -> str:
    on_vector = dict.fromkeys((ADD, VECTOR_BEGIN, VECTOR_FILL), _VECTOR)
    return {**on_vector, SUM: _GPSIMD}.get(action.op, _SCALAR)


def _ns(plan: DepthwisePlan, timing: Timing, action: Action) -> float:
    wide = action.apart * plan.item_bytes > timing.wide_stride_bytes
    elems = float(action.elems * (2 if wide else 1))
    if action.op == SUM:
        cycles = timing.gpsimd_startup_cycles + elems * timing.gpsimd_cycles_per_elem
        return cycles / timing.gpsimd_ghz
    if _engine(action) == _VECTOR:
        alone = plan.vector_pieces == 1  # then every sum waits for the one before
        startup = timing.vector_latency_cycles if alone else timing.vector_startup_cycles
        return max(timing.engine_min_cycles, elems + startup) / timing.vector_ghz
    return max(timing.engine_min_cycles, elems + timing.scalar_startup_cycles) / timing.scalar_ghz


def _dma_ns(plan: DepthwisePlan, timing: Timing, transfer: Transfer) -> float:
    """A transfer of all partitions, on all DMA engines."""
    count = plan.machine.partitions * transfer.elems / transfer.run
    return moved_ns(timing, count, transfer.run * plan.item_bytes)

"""What a depthwise plan costs: the steps of one tile of lines, times their number."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from nkisim.machine import Reading, Timing
from trnconv.forms.depthwise.lower import piece_steps, window_steps
from trnconv.forms.depthwise.plan import WIDE_BYTES, DepthwisePlan
from trnconv.forms.depthwise.recipe import (
    ADD,
    PSUM,
    SUM,
    VECTOR_BEGIN,
    VECTOR_FILL,
    WIDE,
    Place,
    Step,
)
from trnconv.forms.form import Cost

_VECTOR, _SCALAR, _GPSIMD = "vector", "scalar", "gpsimd"
_PSUM_PORT = "psum port"  # where Vector and Scalar engine share one


def cost_of(plan: DepthwisePlan) -> Cost:
    """The cost of a plan, legal or not."""
    timing = plan.target.timing.read(Reading.default)
    on_vector, vector_steps = _pieces(plan, timing, PSUM)
    on_gpsimd, gpsimd_steps = _pieces(plan, timing, WIDE) if plan.gpsimd_pieces else ({}, 0)
    share = plan.vector_pieces / plan.group
    tiles = plan.lines / plan.target.partitions
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
    loads, stores = window_steps(plan)
    moving = [_dma_ns(plan, timing, step.dst, step.data) for step in (*loads, *stores)]
    dmas = plan.line_tiles * len(moving) + 1
    elems = sum(_elems(step.dst) for step in (*loads, *stores))
    filters = plan.filter_columns * WIDE_BYTES * min(plan.lines, plan.target.partitions)
    static = timing.dma_default_mode == "none"
    issue = timing.dma_issue_static_ns if static else timing.dma_issue_hwdge_ns
    steps = share * vector_steps + (1 - share) * gpsimd_steps
    moved = tiles * sum(moving) + filters / (timing.dma_engines * timing.dma_bytes_per_ns)
    ends = _ends_ns(timing, issue, moving[0], moving[-1])
    total = max(max(times.values()) + ends, moved + _latency_ns(timing, issue), dmas * issue)
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
    count = 0
    for step in piece_steps(plan, kind):
        engine, ns = _engine(step), _ns(plan, timing, step)
        times[engine] = times.get(engine, 0.0) + ns
        if engine != _GPSIMD and PSUM in (step.dst.kind, step.data.kind, step.other.kind):
            times[_PSUM_PORT] = times.get(_PSUM_PORT, 0.0) + ns
        count += 1
    return times, count


def _engine(step: Step) -> str:
    on_vector = dict.fromkeys((ADD, VECTOR_BEGIN, VECTOR_FILL), _VECTOR)
    return {**on_vector, SUM: _GPSIMD}.get(step.op, _SCALAR)


def _ns(plan: DepthwisePlan, timing: Timing, step: Step) -> float:
    elems = float(_elems(step.dst))
    wide = step.data.kind not in (PSUM, WIDE) and _too_far(plan, timing, step.data)
    elems *= 2 if wide else 1
    if step.op == SUM:
        cycles = timing.gpsimd_startup_cycles + elems * timing.gpsimd_cycles_per_elem
        return cycles / timing.gpsimd_ghz
    if _engine(step) == _VECTOR:
        alone = plan.vector_pieces == 1  # then every sum waits for the one before
        startup = timing.vector_latency_cycles if alone else timing.vector_startup_cycles
        return max(timing.engine_min_cycles, elems + startup) / timing.vector_ghz
    return max(timing.engine_min_cycles, elems + timing.scalar_startup_cycles) / timing.scalar_ghz


def _too_far(plan: DepthwisePlan, timing: Timing, place: Place) -> bool:
    return place.pattern[-1][0] * plan.item_bytes > timing.wide_stride_bytes


def _elems(place: Place) -> int:
    """Elements of a line."""
    return prod(count for _, count in place.pattern[1:])


def _dma_ns(plan: DepthwisePlan, timing: Timing, dst: Place, src: Place) -> float:
    """A transfer of all partitions, on all DMA engines."""
    run = min(_run(dst.pattern[1:]), _run(src.pattern[1:]))
    each = max(timing.dma_descriptor_floor_ns, run * plan.item_bytes / timing.dma_bytes_per_ns)
    count = plan.target.partitions * _elems(dst) / run
    return count * (each + timing.dma_descriptor_overhead_ns) / timing.dma_engines


def _run(pattern: Iterable[tuple[int, int]]) -> int:
    """Elements that follow each other."""
    run = 1
    for stride, count in reversed(tuple(pattern)):
        if stride != run:
            break
        run *= count
    return run


def _ends_ns(timing: Timing, issue: float, first: float, last: float) -> float:
    """The first window has to come, the last output has to go."""
    return _latency_ns(timing, issue) + first + last


def _latency_ns(timing: Timing, issue: float) -> float:
    """Of the first load and of the last store."""
    return 2 * (issue + timing.dma_start_ns + timing.dma_done_ns)

"""What a depthwise plan costs: the steps of one tile of lines, times their number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from nkisim.machine import Reading, Timing
from trnconv.plan.depthwise import WIDE_BYTES, DepthwisePlan
from trnconv.plan.depthwise_program import (
    ADD,
    PSUM,
    SUM,
    WIDE,
    Place,
    Step,
    piece_steps,
    window_steps,
)

_VECTOR, _SCALAR, _GPSIMD = "vector", "scalar", "gpsimd"


@dataclass(frozen=True)
class DepthwiseEstimate:
    """Modelled times in ns on the plan's machine, default reading; bytes; static instructions."""

    vector_ns: float
    scalar_ns: float
    gpsimd_ns: float
    dma_ns: float
    issue_ns: float
    ends_ns: float  # before the first output is begun and after the last is done
    hbm_bytes: int
    sbuf_bytes: int
    instructions: int

    @property
    def total_ns(self) -> float:
        """The busiest engine and what nothing hides, or all transfers if they take longer."""
        computing = max(self.vector_ns, self.scalar_ns, self.gpsimd_ns)
        return max(computing + self.ends_ns, self.dma_ns, self.issue_ns)

    @property
    def bound(self) -> str:
        """The busiest resource."""
        busy = self.busy_ns()
        return max(busy, key=lambda name: busy[name])

    def busy_ns(self) -> dict[str, float]:
        """Times by resource."""
        return {
            _VECTOR: self.vector_ns,
            _SCALAR: self.scalar_ns,
            _GPSIMD: self.gpsimd_ns,
            "dma": self.dma_ns,
            "dma issue": self.issue_ns,
        }


def estimate(plan: DepthwisePlan) -> DepthwiseEstimate:
    """The cost of a plan, legal or not."""
    timing = plan.target.timing.read(Reading.default)
    on_vector, vector_steps = _pieces(plan, timing, PSUM)
    on_gpsimd, gpsimd_steps = _pieces(plan, timing, WIDE) if plan.gpsimd_pieces else ({}, 0)
    share = plan.vector_pieces / plan.group
    tiles = plan.lines / plan.target.partitions
    times = {
        engine: plan.line_tiles
        * (share * on_vector.get(engine, 0.0) + (1 - share) * on_gpsimd.get(engine, 0.0))
        for engine in (_VECTOR, _SCALAR, _GPSIMD)
    }
    loads, stores = window_steps(plan)
    moving = [_dma_ns(plan, timing, step.dst, step.data) for step in (*loads, *stores)]
    dmas = plan.line_tiles * len(moving) + 1
    elems = sum(_elems(step.dst) for step in (*loads, *stores))
    filters = plan.filter_columns * WIDE_BYTES * min(plan.lines, plan.target.partitions)
    static = timing.dma_default_mode == "none"
    issue = timing.dma_issue_static_ns if static else timing.dma_issue_hwdge_ns
    steps = share * vector_steps + (1 - share) * gpsimd_steps
    return DepthwiseEstimate(
        vector_ns=times[_VECTOR],
        scalar_ns=times[_SCALAR],
        gpsimd_ns=times[_GPSIMD],
        dma_ns=tiles * sum(moving) + filters / (timing.dma_engines * timing.dma_bytes_per_ns),
        issue_ns=dmas * issue,
        ends_ns=_ends_ns(timing, issue, moving[0], moving[-1]),
        hbm_bytes=elems * plan.lines * plan.item_bytes + filters,
        sbuf_bytes=plan.sbuf_bytes(),
        instructions=round(plan.line_tiles * steps) + dmas + 1,
    )


def _pieces(plan: DepthwisePlan, timing: Timing, kind: str) -> tuple[dict[str, float], int]:
    """Times by engine of all pieces of a tile of lines, as if all were summed in one kind."""
    times: dict[str, float] = {}
    count = 0
    for step in piece_steps(plan, kind):
        engine = _engine(step)
        times[engine] = times.get(engine, 0.0) + _ns(plan, timing, step)
        count += 1
    return times, count


def _engine(step: Step) -> str:
    return {ADD: _VECTOR, SUM: _GPSIMD}.get(step.op, _SCALAR)


def _ns(plan: DepthwisePlan, timing: Timing, step: Step) -> float:
    elems = float(_elems(step.dst))
    wide = step.data.kind not in (PSUM, WIDE) and _too_far(plan, timing, step.data)
    elems *= 2 if wide else 1
    if step.op == SUM:
        cycles = timing.gpsimd_startup_cycles + elems * timing.gpsimd_cycles_per_elem
        return cycles / timing.gpsimd_ghz
    if step.op == ADD:
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
    return 2 * (issue + timing.dma_start_ns + timing.dma_done_ns) + first + last

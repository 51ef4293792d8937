"""A timeline as a dictionary that goes into JSON; units are in the names of the keys."""

from __future__ import annotations

from typing import Any, Final

from nkisim.timing.report.gaps import Gap, LaneUse, explain
from nkisim.timing.report.lines import LineUse, busiest_lines, place_text
from nkisim.timing.report.words import title
from nkisim.timing.timeline import Timeline

SCHEMA_VERSION: Final = 1


def json_report(timeline: Timeline, name: str) -> dict[str, Any]:
    """Everything about a modelled run of the kernel called `name`; shares are of the makespan."""
    uses = explain(timeline)
    makespan = timeline.makespan_ns
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "modelled",
        "kernel": name,
        "label": timeline.label,
        "machine": timeline.machine.name,
        "constants_version": timeline.constants_version,
        "reading": timeline.reading.value,
        "makespan_ns": makespan,
        "launch_ns": timeline.launch_ns,
        "latency_ns": timeline.latency_ns,
        "bound": timeline.bound,
        "mfu_share": timeline.mfu,
        "flops": timeline.flops,
        "hbm_bytes": timeline.hbm_bytes,
        "hbm_gb_per_s": timeline.hbm_gb_per_s,
        "memory": _memory(timeline),
        "static_instructions": timeline.static_instructions,
        "compiler_instructions": timeline.compiler_instructions,
        "executed_instructions": timeline.executed_instructions,
        "engines": [_use(use, timeline) for use in uses if not use.is_dma],
        "dma": {
            "data_busy_ns": timeline.busy_ns.get("dma", 0.0),
            "issue_busy_ns": timeline.busy_ns.get("dma issue", 0.0),
            "directions": [_use(use, timeline) for use in uses if use.is_dma],
        },
        "lines": [_line(use, makespan) for use in busiest_lines(timeline)],
        "extrapolated_loops": [
            {
                "at_ns": elision.at_ns,
                "duration_ns": elision.duration_ns,
                "iterations": elision.iterations,
                "ns_per_iteration": elision.ns_per_iteration,
            }
            for elision in timeline.elisions
        ],
    }


def _memory(timeline: Timeline) -> dict[str, int] | None:
    memory, machine = timeline.memory, timeline.machine
    if memory is None:
        return None
    return {
        "sbuf_peak_bytes_per_partition": memory.sbuf_peak_bytes_per_partition,
        "sbuf_usable_bytes_per_partition": machine.sbuf_usable_bytes_per_partition,
        "psum_peak_banks": memory.psum_peak_banks,
        "psum_banks": machine.psum_banks,
    }


def _use(use: LaneUse, timeline: Timeline) -> dict[str, Any]:
    """An engine with its busy time, or a DMA direction with the time something was in flight."""
    time = "in_flight" if use.is_dma else "busy"
    makespan = timeline.makespan_ns
    return {
        "name": use.lane,
        "instructions": use.instructions,
        f"{time}_ns": use.occupied_ns,
        f"{time}_share": use.occupied_ns / makespan if makespan else 0.0,
        "idle_ns": use.idle_ns,
        "idle_ns_by_cause": use.idle_ns_by_cause,
        "longest_waits": [_wait(gap, timeline) for gap in use.largest_waits],
    }


def _line(use: LineUse, makespan_ns: float) -> dict[str, Any]:
    """A line of the kernel's source on one lane; DMA counts what is in flight."""
    return {
        "file": use.place.file,
        "line": use.place.line,
        "function": use.place.function,
        "source": use.place.source,
        "lane": use.lane,
        "instructions": use.instructions,
        "occupied_ns": use.occupied_ns,
        "occupied_share": use.occupied_ns / makespan_ns if makespan_ns else 0.0,
    }


def _wait(gap: Gap, timeline: Timeline) -> dict[str, Any]:
    return {
        "begin_ns": gap.begin_ns,
        "duration_ns": gap.wait_ns,
        "waiting": title(timeline.events, gap.after),
        "waiting_line": place_text(timeline.events.instructions[gap.after]),
        "waited_for": title(timeline.events, gap.cause),
        "waited_for_line": place_text(timeline.events.instructions[gap.cause]),
    }

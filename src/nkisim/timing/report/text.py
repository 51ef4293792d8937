"""A timeline as a table for a terminal, at most 100 columns wide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from nkisim.timing.report.gaps import LaneUse, explain
from nkisim.timing.report.hints import PAGE, hint
from nkisim.timing.report.lines import busiest_lines, place_text
from nkisim.timing.report.words import time_text, title
from nkisim.timing.timeline import Timeline

WIDTH: Final = 100
_NAME_COLUMNS: Final = 14
_MOST_LINES: Final = 10
_DMA_ROWS: Final = (("dma", "dma data"), ("dma issue", "dma issue"))  # key in busy_ns, what to say
_DMA_NOTES: Final = {"dma": "all DMA engines, moving data", "dma issue": "generating descriptors"}


def text_report(timeline: Timeline, name: str) -> str:
    """Everything about a modelled run of the kernel called `name`."""
    uses = explain(timeline)
    sections = (
        _totals(timeline, name),
        _engine_table(timeline, uses),
        _idle(uses),
        _largest(timeline, uses),
        _lines(timeline),
        _loops(timeline),
    )
    return "\n\n".join("\n".join(lines) for section in sections if (lines := list(section)))


def _fit(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 3] + "..."


def _totals(timeline: Timeline, name: str) -> Iterator[str]:
    yield _fit(f"{name}: {timeline.label}")
    yield ""
    makespan = timeline.makespan_ns
    launch, latency = time_text(timeline.launch_ns), time_text(timeline.latency_ns)
    yield _pair("makespan", f"{time_text(makespan)}; latency {latency} with a launch of {launch}")
    busiest = max(timeline.busy_ns.values(), default=0.0)
    share = _percent(busiest, makespan)
    yield _pair("bound", f"{timeline.bound}; the busiest engine is at {share} of the makespan")
    if hint(timeline.bound):
        yield _fit(_pair("hint", hint(timeline.bound)))
        yield _pair("", f"see {PAGE}, What usually helps")
    yield _pair("MFU", f"{100 * timeline.mfu:.1f} %; {timeline.flops / 1e9:,.3f} GFLOP")
    moved = f"{timeline.hbm_bytes / 1e6:,.3f} MB moved"
    yield _pair("HBM", f"{moved}; {timeline.hbm_gb_per_s:,.1f} GB/s")
    yield from _memory(timeline)
    static, executed = timeline.static_instructions, timeline.executed_instructions
    compiled = f"{timeline.compiler_instructions:,} as the compiler counts"
    yield _pair("instructions", f"{static:,} static ({compiled}); {executed:,} executed")


def _memory(timeline: Timeline) -> Iterator[str]:
    memory, machine = timeline.memory, timeline.machine
    if memory is None:
        return
    peak, room = memory.sbuf_peak_bytes_per_partition, machine.sbuf_usable_bytes_per_partition
    share = _percent(peak, room)
    yield _pair("SBUF peak", f"{peak:,} of {room:,} bytes per partition ({share})")
    yield _pair("PSUM peak", f"{memory.psum_peak_banks} of {machine.psum_banks} banks")


def _engine_table(timeline: Timeline, uses: tuple[LaneUse, ...]) -> Iterator[str]:
    makespan = timeline.makespan_ns
    yield _row("engine", "instructions", "busy us", "share", "idle us")
    for use in uses:
        if not use.is_dma:
            yield _use_row(use, makespan)
    for key, label in _DMA_ROWS:
        busy = timeline.busy_ns.get(key, 0.0)
        if busy:
            yield _row(label, "", _us(busy), _percent(busy, makespan), "", _DMA_NOTES[key])
    for use in uses:
        if use.is_dma:
            yield _use_row(use, makespan, "busy: something is in flight")


def _use_row(use: LaneUse, makespan_ns: float, note: str = "") -> str:
    share = _percent(use.occupied_ns, makespan_ns)
    return _row(
        use.lane, f"{use.instructions:,}", _us(use.occupied_ns), share, _us(use.idle_ns), note
    )


def _row(*cells: str) -> str:
    name, count, busy, share, idle, *note = cells
    line = f"{name:<{_NAME_COLUMNS}}{count:>13}{busy:>14}{share:>10}{idle:>14}"
    return " ".join((line, "", *note)).rstrip()


def _idle(uses: tuple[LaneUse, ...]) -> Iterator[str]:
    yield "idle time, and what it was spent on"
    for use in uses:
        yield _fit(_pair(use.lane, use.idle_text))


def _largest(timeline: Timeline, uses: tuple[LaneUse, ...]) -> Iterator[str]:
    if not any(use.largest_waits for use in uses):
        return
    yield "longest waits"
    for use in uses:
        for gap in use.largest_waits:
            waiting, cause = title(timeline.events, gap.after), title(timeline.events, gap.cause)
            what = f"{_us(gap.wait_ns):>9} us at {_us(gap.begin_ns)} us: {waiting} for {cause}"
            yield _fit(_pair(use.lane, what))
            after, before = (timeline.events.instructions[row] for row in (gap.after, gap.cause))
            if after.place and before.place:
                lines = f"{place_text(after)} for {place_text(before)}: {after.place.source}"
                yield _fit(_pair("", f"{'':>12} {lines}"))


def _lines(timeline: Timeline) -> Iterator[str]:
    """The lines of source that took most time."""
    uses = busiest_lines(timeline)
    if not uses:
        return
    yield _row("line", "instructions", "busy us", "share", "", "on, and what it says")
    for use in uses[:_MOST_LINES]:
        share = _percent(use.occupied_ns, timeline.makespan_ns)
        row = _row("", f"{use.instructions:,}", _us(use.occupied_ns), share, "")
        name = use.place.short
        room = len(row) - len(row.lstrip())
        head = f"{name:<{room}}" if len(name) < room else f"{name} "
        yield _fit(f"{head}{row.lstrip()}  {use.lane}: {use.place.source}")
    if len(uses) > _MOST_LINES:
        yield f"... and {len(uses) - _MOST_LINES} more"


def _loops(timeline: Timeline) -> Iterator[str]:
    if not timeline.elisions:
        return
    yield "loops (these iterations were extrapolated from the last one scheduled)"
    for elision in timeline.elisions:
        each, total = time_text(elision.ns_per_iteration), time_text(elision.duration_ns)
        count = f"{elision.iterations:,} iterations of {each}"
        yield _pair("extrapolated", f"{count} from {time_text(elision.at_ns)} on, {total} in all")


def _pair(name: str, what: str) -> str:
    return f"{name:<{_NAME_COLUMNS}}{what}"


def _us(ns: float) -> str:
    return f"{ns / 1e3:,.2f}"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "0.0 %"

"""A timeline as a trace that Perfetto and chrome://tracing open, written as it is made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from heapq import merge
from pathlib import Path
from typing import Any, Final

from nkisim.timing.report.lanes import Block, Lane, lanes_of
from nkisim.timing.report.lines import place_text
from nkisim.timing.report.words import LANES, lane_name, operand, time_text, title
from nkisim.timing.timeline import Timeline
from nkisim.trace import Instruction

_NS_PER_US: Final = 1e3
_DIGITS: Final = 6  # of a time in us: picoseconds
_LOOPS: Final = "extrapolated loop iterations"
_SUB_LANES: Final = 8  # thread numbers kept for each lane; parts of the array run side by side

Event = dict[str, Any]
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


def write_perfetto(timeline: Timeline, file: Path, name: str, core: int = 0) -> None:
    """Write a modelled run of the kernel called `name`: a process per core, a thread per lane."""
    with file.open("w", encoding="utf-8") as out:
        out.writelines(perfetto_pieces(timeline, name, core))


def perfetto_pieces(timeline: Timeline, name: str, core: int = 0) -> Iterator[str]:
    """The text of such a file, piece by piece: it may be long."""
    facts = {
        "kind": "modelled",
        "kernel": name,
        "label": timeline.label,
        "machine": timeline.machine.name,
        "constants_version": timeline.constants_version,
        "reading": timeline.reading.value,
        "makespan_ns": timeline.makespan_ns,
        "launch_ns": timeline.launch_ns,
    }
    yield f'{{"displayTimeUnit":"ns","otherData":{_encode(facts)},"traceEvents":[\n'
    process = f"core {core}: {name} ({timeline.label})"
    yield _encode(_metadata("process_name", core, 0, process))
    for event in _events(timeline, core):
        yield ",\n" + _encode(event)
    yield "\n]}\n"


def _events(timeline: Timeline, core: int) -> Iterator[Event]:
    """Named threads as they appear, and everything that happened in order of time."""
    lanes = lanes_of(timeline)
    spans = [_placed(lane) for lane in lanes]
    named: set[int] = set()
    for block, thread, thread_name in merge(*spans, key=lambda span: span[0].begin_ns):
        if thread not in named:
            named.add(thread)
            yield _metadata("thread_name", core, thread, thread_name)
            yield _metadata("thread_sort_index", core, thread, thread)
        yield {"pid": core, "tid": thread, **_complete(timeline, block)}
    if timeline.elisions:
        thread = len(LANES) * _SUB_LANES
        yield _metadata("thread_name", core, thread, _LOOPS)
        yield _metadata("thread_sort_index", core, thread, thread)
        for event in _iterations(timeline):
            yield {"pid": core, "tid": thread, **event}


def _placed(lane: Lane) -> Iterator[tuple[Block, int, str]]:
    """Blocks with their thread; one that begins before another ends gets a thread beside it."""
    first = LANES.index(lane.name) * _SUB_LANES
    ends = [0.0] * _SUB_LANES
    for block in lane.blocks():
        free = [number for number in range(_SUB_LANES) if ends[number] <= block.begin_ns]
        number = free[0] if free and not lane.is_dma else 0
        ends[number] = block.end_ns
        name = lane.name if number == 0 else f"{lane.name}, beside ({number + 1})"
        yield block, first + number, name


def _complete(timeline: Timeline, block: Block) -> Event:
    events = timeline.events
    instruction = events.instructions[block.row]
    cause = events.cause[block.row]
    arguments = {
        "op": instruction.op,
        "name": instruction.name or "",
        "row": block.row,
        **_source(instruction),
        "writes": [operand(access) for access in instruction.writes],
        "reads": [operand(access) for access in instruction.reads],
        "waited_for": "" if cause < 0 else _cause(timeline, cause),
        "issued_us": _us(events.start_ns[block.row]),
    }
    label = block.op(events) if block.table_load else instruction.name or instruction.op
    return {"ph": "X", "name": label, **_span(block.begin_ns, block.end_ns), "args": arguments}


def _source(instruction: Instruction) -> Event:
    place = instruction.place
    if place is None:
        return {}
    return {"line": place_text(instruction), "function": place.function, "source": place.source}


def _cause(timeline: Timeline, row: int) -> str:
    instruction = timeline.events.instructions[row]
    words = f"{title(timeline.events, row)} on {lane_name(instruction)}"
    return f"{words}, {place_text(instruction)}" if instruction.place else words


def _iterations(timeline: Timeline) -> Iterator[Event]:
    for elision in sorted(timeline.elisions, key=lambda elision: elision.at_ns):
        each = time_text(elision.ns_per_iteration)
        yield {
            "ph": "X",
            "name": f"{elision.iterations:,} iterations of {each}, extrapolated",
            **_span(elision.at_ns, elision.at_ns + elision.duration_ns),
            "args": {
                "iterations": elision.iterations,
                "ns_per_iteration": elision.ns_per_iteration,
                "like_rows": [elision.first_row, elision.end_row - 1],
            },
        }


def _span(begin_ns: float, end_ns: float) -> Event:
    begin = _us(begin_ns)
    return {"ts": begin, "dur": round(_us(end_ns) - begin, _DIGITS)}


def _us(ns: float) -> float:
    return round(ns / _NS_PER_US, _DIGITS)


def _metadata(kind: str, core: int, thread: int, value: str | int) -> Event:
    key = "sort_index" if kind.endswith("sort_index") else "name"
    return {"ph": "M", "name": kind, "pid": core, "tid": thread, "args": {key: value}}

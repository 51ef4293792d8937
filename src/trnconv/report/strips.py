"""Strips: a timeline as how busy each lane is in equal parts of the time, and one window of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from nkisim.timing import Timeline
from nkisim.timing.report import LaneUse, explain
from nkisim.timing.report.lanes import Lane, lanes_of
from trnconv.report.content import BusySpan, LaneStrip

PARTS = 240
_WINDOW_NS = 160_000.0
_SEEN = 600  # what is narrower than this part of a window does not show

Span = tuple[float, float]


def window_of(timeline: Timeline) -> Span:
    """A stretch that was scheduled, not extrapolated, short enough to see single instructions."""
    length = min(_WINDOW_NS, timeline.makespan_ns)
    if timeline.elisions:
        first = timeline.elisions[0]
        middle = first.at_ns - first.ns_per_iteration / 2  # of the iteration that is repeated
        begin = max(0.0, min(middle, first.at_ns - length / 2) - length / 2)
        return begin, begin + length
    begin = (timeline.makespan_ns - length) / 2
    return begin, begin + length


def extrapolated(timeline: Timeline) -> tuple[Span, ...]:
    """Where iterations of loops are only repeated."""
    return tuple(
        (elision.at_ns, elision.at_ns + elision.duration_ns) for elision in timeline.elisions
    )


def strips_of(timeline: Timeline, window: Span) -> tuple[LaneStrip, ...]:
    """Every lane that has work."""
    uses = {use.lane: use for use in explain(timeline)}
    return tuple(_strip(lane, uses[lane.name], timeline, window) for lane in lanes_of(timeline))


def _strip(lane: Lane, use: LaneUse, timeline: Timeline, window: Span) -> LaneStrip:
    makespan = timeline.makespan_ns
    return LaneStrip(
        lane=lane.name,
        is_dma=use.is_dma,
        share=use.occupied_ns / makespan if makespan else 0.0,
        idle=use.idle_text,
        levels=tuple(round(level, 3) for level in _levels(lane, timeline)),
        blocks=tuple(_merged(_inside(lane, timeline, window), (window[1] - window[0]) / _SEEN)),
    )


def _levels(lane: Lane, timeline: Timeline) -> list[float]:
    """The share of each part in which the lane works; repeated iterations as those they repeat."""
    levels = [0.0] * PARTS
    width = timeline.makespan_ns / PARTS
    for block in lane.blocks():
        _fill(levels, (block.begin_ns, block.end_ns), 1.0, width)
    for elision in timeline.elisions:
        rows = range(elision.first_row, elision.end_row)
        busy = sum(block.end_ns - block.begin_ns for block in lane.blocks() if block.row in rows)
        share = min(1.0, busy / elision.ns_per_iteration)
        _fill(levels, (elision.at_ns, elision.at_ns + elision.duration_ns), share, width)
    return [min(1.0, level) for level in levels]


def _fill(levels: list[float], span: Span, share: float, width: float) -> None:
    """Add a stretch of time to the parts it lies in."""
    begin, end = span
    first, last = int(begin / width), min(PARTS - 1, int(end / width))
    for part in range(first, last + 1):
        inside = min(end, (part + 1) * width) - max(begin, part * width)
        levels[part] += share * max(0.0, inside) / width


def _inside(lane: Lane, timeline: Timeline, window: Span) -> Iterator[BusySpan]:
    for block in lane.blocks():
        begin, end = max(block.begin_ns, window[0]), min(block.end_ns, window[1])
        if end > begin:
            yield BusySpan(
                begin_ns=round(begin, 1), end_ns=round(end, 1), op=block.op(timeline.events)
            )


def _merged(blocks: Iterable[BusySpan], least_ns: float) -> Iterator[BusySpan]:
    """Blocks of one op with no gap that shows between them become one."""
    waiting: BusySpan | None = None
    for block in blocks:
        if waiting is None:
            waiting = block
        elif block.op == waiting.op and block.begin_ns - waiting.end_ns < least_ns:
            waiting = replace(waiting, end_ns=max(waiting.end_ns, block.end_ns))
        else:
            yield waiting
            waiting = block
    if waiting is not None:
        yield waiting

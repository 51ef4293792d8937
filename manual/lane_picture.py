"""Engines over time for the gallery: lanes of some timelines, one below the other on one clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from manual.canvas import box, line, text
from nkisim.timing import Timeline
from nkisim.timing.report.lanes import Lane, lanes_of
from nkisim.timing.report.palette import colours
from nkisim.timing.report.words import LANES

LANE, PITCH = 24, 32
_SEAM = 0.5  # what is nearer than that, in pixels, is drawn as one


@dataclass(frozen=True)
class Clock:
    """Nanoseconds on a line of pixels."""

    first_px: float
    last_px: float
    begin_ns: float
    end_ns: float

    def px(self, ns: float) -> float:
        """Where a time is drawn; times outside at the ends."""
        share = (min(max(ns, self.begin_ns), self.end_ns) - self.begin_ns) / (
            self.end_ns - self.begin_ns
        )
        return self.first_px + share * (self.last_px - self.first_px)


class Lanes:
    """The lanes that some timelines have together, in one order and in one set of colours."""

    def __init__(self, timelines: list[Timeline], clock: Clock) -> None:
        used = {lane.name for timeline in timelines for lane in lanes_of(timeline)}
        self._names = [name for name in LANES if name in used]
        self._colours = colours(every_op(timelines))
        self._clock = clock

    @property
    def height(self) -> float:
        """In pixels."""
        return PITCH * len(self._names)

    def empty(self, top: float) -> Iterator[str]:
        """Their names, and where work will be drawn."""
        left, right = self._clock.first_px, self._clock.last_px
        for number, name in enumerate(self._names):
            y = top + number * PITCH
            yield text((left - 10, y + 17), name, 14, text_anchor="end")
            yield box((left, y), (right - left, LANE), "lane")

    def work(self, timeline: Timeline, top: float, shift_ns: float = 0.0) -> Iterator[str]:
        """What a timeline does that begins at `shift_ns` of the clock."""
        for lane in lanes_of(timeline):
            y = top + self._names.index(lane.name) * PITCH
            for left, right, op in _runs(lane, timeline, self._clock, shift_ns):
                yield box((left, y), (max(0.4, right - left), LANE), self._colours[op])


def _runs(
    lane: Lane, timeline: Timeline, clock: Clock, shift_ns: float
) -> Iterator[tuple[float, float, str]]:
    run: tuple[float, float, str] | None = None
    for block in lane.blocks():
        begin, end = block.begin_ns + shift_ns, block.end_ns + shift_ns
        if end <= clock.begin_ns or begin >= clock.end_ns:
            continue
        left, right = clock.px(begin), clock.px(end)
        op = block.op(timeline.events)
        if run and run[2] == op and left - run[1] < _SEAM:
            run = (run[0], max(right, run[1]), op)
            continue
        if run:
            yield run
        run = (left, right, op)
    if run:
        yield run


def every_op(timelines: list[Timeline]) -> list[str]:
    """What the lanes of some timelines do."""
    ops = {
        block.op(timeline.events)
        for timeline in timelines
        for lane in lanes_of(timeline)
        for block in lane.blocks()
    }
    return sorted(ops)


def axis(clock: Clock, y: float, step_ns: float) -> Iterator[str]:
    """Ticks in microseconds."""
    number = -(-clock.begin_ns // step_ns)
    while number * step_ns <= clock.end_ns:
        x = clock.px(number * step_ns)
        last = (number + 1) * step_ns > clock.end_ns
        words = f"{number * step_ns / 1e3:,.0f}{' us' if last else ''}"
        yield line((x, y - 4), (x, y + 2))
        yield text((x, y + 18), words, 13, "faint", text_anchor="middle")
        number += 1


def legend(ops: list[str], left: float, y: float) -> Iterator[str]:
    """A colour for each op, in one row."""
    chosen, x = colours(ops), left
    for op in ops:
        yield box((x, y - 11), (13, 13), chosen[op])
        yield text((x + 19, y), op, 13)
        x += 19 + 8 * len(op) + 20

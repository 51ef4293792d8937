"""Gaps explained: how long each lane was idle, and what it was waiting for."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nlargest
from operator import itemgetter
from typing import Final

from nkisim.timing.report.lanes import Lane, lanes_of, times_run
from nkisim.timing.report.words import waited_for
from nkisim.timing.timeline import OTHER_CORE, Elision, Events, Timeline

BETWEEN: Final = "between instructions"  # own pace: weight loads, gaps between matmuls
LOOP: Final = "loop overhead"
DONE: Final = "nothing left to do"
OTHER: Final = "until the other core came"
OWN: Final = (BETWEEN, LOOP, DONE, OTHER)  # reasons that are not another instruction
_LARGEST: Final = 3
_NS_PER_US: Final = 1e3
_NOTHING_NS: Final = 1e-6  # rounding of sums of times


@dataclass(frozen=True, slots=True)
class Gap:
    """A lane that is idle. `before` and `after` are the rows around it, -1 at the ends.

    `cause` is the row that `after` waited for, or a negative number as in `Events`.
    """

    lane: str
    begin_ns: float
    end_ns: float
    before: int
    after: int
    cause: int
    elided_ns: float = 0.0  # extrapolated iterations in between in which the lane works too
    loop_ns: float = 0.0  # the part in which everything drained at an iteration of a loop

    @property
    def idle_ns(self) -> float:
        """How long nothing happened."""
        return self.end_ns - self.begin_ns - self.elided_ns

    @property
    def wait_ns(self) -> float:
        """How long `after` was kept by more than a loop."""
        return self.idle_ns - self.loop_ns


@dataclass(frozen=True)
class LaneUse:
    """How a lane spent the makespan; extrapolated iterations count like the one they repeat."""

    lane: str
    is_dma: bool
    instructions: int
    occupied_ns: float  # busy; of a DMA direction: something is in flight
    idle_ns: float
    idle_ns_by_cause: dict[str, float]  # longest first; adds up to idle_ns
    largest_waits: tuple[Gap, ...]  # the longest gaps that another instruction caused

    @property
    def idle_text(self) -> str:
        """The idle time in a sentence: "12.30 us: 8.10 for dma loads, 4.20 loop overhead"."""
        if not self.idle_ns_by_cause:
            return "never idle"
        parts = (
            f"{ns / _NS_PER_US:,.2f} {why if why in OWN else f'for {why}'}"
            for why, ns in self.idle_ns_by_cause.items()
        )
        return f"{self.idle_ns / _NS_PER_US:,.2f} us: {', '.join(parts)}"


def explain(timeline: Timeline) -> tuple[LaneUse, ...]:
    """Account for the time of every lane that has instructions."""
    times = times_run(timeline)
    return tuple(_use(lane, timeline, times) for lane in lanes_of(timeline))


def gaps_of(lane: Lane, timeline: Timeline) -> Iterator[Gap]:
    """The idle stretches of a lane in order, the last one up to the end of the run."""
    events = timeline.events
    elisions = [elision for elision in timeline.elisions if lane.works_in(elision)]
    reached, before = 0.0, -1
    for block in lane.blocks():
        row, elided = block.row, _passed(elisions, block.row)
        idle = block.begin_ns - reached - elided
        if idle > _NOTHING_NS:
            looped = max(0.0, min(idle, _drained(events, before, row) - reached - elided))
            ends = (reached, block.begin_ns, before, row)
            yield Gap(lane.name, *ends, events.cause[row], elided, looped)
        reached, before = max(reached, block.end_ns), row
    elided = _passed(elisions, len(timeline.events))
    if timeline.makespan_ns - reached - elided > _NOTHING_NS:
        yield Gap(lane.name, reached, timeline.makespan_ns, before, -1, -1, elided)


def reasons(gap: Gap, events: Events) -> Iterator[tuple[str, float]]:
    """Why a lane was idle, in a few words, and for how long."""
    if gap.loop_ns:
        yield LOOP, gap.loop_ns
    if gap.after < 0:
        yield DONE, gap.wait_ns
    elif gap.wait_ns > _NOTHING_NS:
        yield _reason(gap, events), gap.wait_ns


def _reason(gap: Gap, events: Events) -> str:
    if gap.cause >= 0:
        return waited_for(events, gap.cause)
    return OTHER if gap.cause == OTHER_CORE else BETWEEN


def _drained(events: Events, before: int, after: int) -> float:
    """When the last barrier of a loop between two rows was over; 0 if there is none.

    Rows are in program order: an engine that reorders (before > after) has not looped.
    """
    number = bisect_right(events.barriers, after, key=itemgetter(0)) - 1
    if number < 0:
        return 0.0
    row, when = events.barriers[number]
    return when if before < row else 0.0


def _passed(elisions: list[Elision], row: int) -> float:
    """Take the elisions that lie before a row off the list; their duration."""
    total = 0.0
    while elisions and elisions[0].end_row <= row:
        total += elisions.pop(0).duration_ns
    return total


def _use(lane: Lane, timeline: Timeline, times: array[int]) -> LaneUse:
    occupied = _in_flight(lane, times) if lane.is_dma else timeline.busy_ns[lane.name]
    idle = max(0.0, timeline.makespan_ns - occupied)
    gaps = gaps_of(lane, timeline)
    waits = (gap for gap in gaps if gap.cause >= 0 and gap.wait_ns > _NOTHING_NS)
    return LaneUse(
        lane=lane.name,
        is_dma=lane.is_dma,
        instructions=sum(times[row] for row in lane.rows),
        occupied_ns=occupied,
        idle_ns=idle,
        idle_ns_by_cause=_split(idle, lane, timeline, times),
        largest_waits=tuple(nlargest(_LARGEST, waits, key=lambda gap: gap.wait_ns)),
    )


def _in_flight(lane: Lane, times: array[int]) -> float:
    return sum((block.end_ns - block.begin_ns) * times[block.row] for block in lane.blocks())


def _split(idle_ns: float, lane: Lane, timeline: Timeline, times: array[int]) -> dict[str, float]:
    """Idle time by its reason, longest first."""
    found: dict[str, float] = {}
    for gap in gaps_of(lane, timeline):
        repeats = times[gap.after] if gap.after >= 0 else 1
        for why, ns in reasons(gap, timeline.events):
            found[why] = found.get(why, 0.0) + ns * repeats
    # A loop may repeat only every few iterations; its last one then stands for them roughly.
    total = sum(found.values())
    ordered = sorted(found.items(), key=lambda item: -item[1])
    return {why: ns * idle_ns / total for why, ns in ordered}

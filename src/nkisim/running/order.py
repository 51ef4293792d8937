"""Which events of two cores are ordered: by what a device waits for, and by nothing else.

Inside a core an instruction comes after another one if both run on one engine, which takes its
instructions in turn, or if one touches bytes that the other writes, or if the kernel said so
(`depends_on`). DMA is no such engine: copies overtake each other, and one that is triggered by an
engine starts after what that engine did. Between the cores order comes from meetings alone: what
comes before a core's part in a meeting comes before all that comes after the other core's part.
A core_barrier counts as touching its data, so it orders accesses to them and what depends on them.

A set of meetings is an integer, one bit for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nkisim.memory.storage import Storage
    from nkisim.running.access_log import AccessLog, Event, Touch

Meetings = int

_UNORDERED = "dma"  # the engine whose instructions overtake each other


class Order:
    """Order between the events of a log."""

    def __init__(self, log: AccessLog) -> None:
        self._after = _meetings_before(log)
        self._before: dict[int, Meetings] = {}
        for core in (0, 1):
            self._before |= _meetings_after(log.of_core(core))

    def has(self, first: Event, second: Event) -> bool:
        """Whether one of two events of different cores comes before the other."""
        forth = self._before[first.number] & self._after[second.number]
        back = self._before[second.number] & self._after[first.number]
        return bool(forth or back)


class _Reached:
    """What the events seen so far reach: for every engine, view and index a set of meetings."""

    def __init__(self) -> None:
        self._engines: dict[Any, Meetings] = {}
        self._places: dict[Storage, dict[tuple[Any, ...], _Mark]] = {}

    def of(self, event: Event) -> Meetings:
        """The meetings that the neighbours of an event have reached."""
        engine = event.instruction.engine
        reached = 0 if engine.name == _UNORDERED else self._engines.get(engine, 0)
        for touch in event.reads:
            reached |= self._around(touch, writes=False)
        for touch in event.writes:
            reached |= self._around(touch, writes=True)
        return reached

    def of_engine(self, engine: Any) -> Meetings:
        """What the instructions of an engine have reached."""
        return self._engines.get(engine, 0)

    def note(self, event: Event, meetings: Meetings) -> None:
        """The event has reached these meetings."""
        if not meetings:
            return
        engine = event.instruction.engine
        if engine.name != _UNORDERED:
            self._engines[engine] = self._engines.get(engine, 0) | meetings
        for writes, touches in ((False, event.reads), (True, event.writes)):
            for touch in touches:
                marks = self._places.setdefault(touch.storage, {})
                mark = marks.setdefault(touch.place(), _Mark(touch))
                if writes:
                    mark.writes |= meetings
                else:
                    mark.reads |= meetings

    def _around(self, touch: Touch, *, writes: bool) -> Meetings:
        reached = 0
        for mark in self._places.get(touch.storage, {}).values():
            meetings = mark.writes | mark.reads if writes else mark.writes
            if meetings & ~reached and touch.meets(mark.touch):
                reached |= meetings
        return reached


class _Mark:
    """The meetings reached by the reads and by the writes of one view."""

    __slots__ = ("reads", "touch", "writes")

    def __init__(self, touch: Touch) -> None:
        self.touch = touch
        self.reads: Meetings = 0
        self.writes: Meetings = 0


def _meetings_after(events: list[Event]) -> dict[int, Meetings]:
    """For every event of one core the meetings of this core that come after it."""
    reached, found = _Reached(), {}
    waiting: dict[int, Meetings] = {}  # by instructions that were told to wait for this one
    for event in reversed(events):
        meetings = reached.of(event) | waiting.pop(event.instruction.index, 0)
        if event.meeting >= 0:
            meetings |= 1 << event.meeting
        found[event.number] = meetings
        reached.note(event, meetings)
        for index in event.instruction.after:
            waiting[index] = waiting.get(index, 0) | meetings
    return found


def _meetings_before(log: AccessLog) -> dict[int, Meetings]:
    """For every event the meetings of both cores that come before it, or that it is."""
    cores = _Reached(), _Reached()
    found: dict[int, Meetings] = {}
    by_index: tuple[dict[int, Meetings], dict[int, Meetings]] = ({}, {})
    arrived: dict[int, Event] = {}
    for event in log.events:
        core, instruction = event.core, event.instruction
        meetings = cores[core].of(event) | cores[core].of_engine(instruction.option("trigger"))
        for index in instruction.after:
            meetings |= by_index[core].get(index, 0)
        parts: Iterable[Event] = (event,)
        if event.meeting >= 0:
            meetings |= 1 << event.meeting
            other = arrived.setdefault(event.meeting, event)
            if other is not event:
                meetings |= found[other.number]
                parts = (event, other)
        for part in parts:
            found[part.number] = meetings
            by_index[part.core][part.instruction.index] = meetings
            cores[part.core].note(part, meetings)
    return found

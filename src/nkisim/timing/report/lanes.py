"""Lanes: the rows of a timeline by engine, and DMA by direction, as reports show them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from nkisim.enums import engine
from nkisim.timing.costs import cost_of
from nkisim.timing.report.words import LANES, TABLE_LOAD, lane_name
from nkisim.timing.timeline import Elision, Events, Timeline


class Block(NamedTuple):
    """A stretch of time in which a lane was occupied, and the row it was occupied by.

    `table_load`: the Scalar engine fetched the function table that the row needs.
    """

    begin_ns: float
    end_ns: float
    row: int
    table_load: bool = False

    def op(self, events: Events) -> str:
        """What was going on."""
        return TABLE_LOAD if self.table_load else events.instructions[self.row].op


class Lane:
    """One engine, or DMA in one direction.

    A DMA direction has many transfers in flight: one occupies the lane from its issue, or from the
    end of the one before, to its last byte.
    """

    def __init__(self, name: str, rows: array[int], timeline: Timeline) -> None:
        self.name = name
        self.rows = rows  # in the order they began
        self._timeline = timeline
        self._events = timeline.events

    @property
    def is_dma(self) -> bool:
        """Whether the lane is a direction of DMA."""
        return self._events.instructions[self.rows[0]].engine is engine.dma

    def works_in(self, elision: Elision) -> bool:
        """Whether extrapolated iterations have work for this lane."""
        return any(elision.first_row <= row < elision.end_row for row in self.rows)

    def blocks(self) -> Iterator[Block]:
        """What occupied the lane, in order of beginning."""
        if self.is_dma:
            return self._transfers()
        if self.name == engine.scalar.name:
            return self._with_table_loads()
        return self._plain()

    def _plain(self) -> Iterator[Block]:
        start, end = self._events.start_ns, self._events.busy_end_ns
        for row in self.rows:
            yield Block(start[row], end[row], row)

    def _transfers(self) -> Iterator[Block]:
        start, end = self._events.start_ns, self._events.busy_end_ns
        before = 0.0
        for row in self.rows:
            begin = max(start[row], before)
            before = max(begin, end[row])
            yield Block(begin, before, row)

    def _with_table_loads(self) -> Iterator[Block]:
        """As the Scalar engine does it: a new table is fetched as soon as the engine is free."""
        machine = self._timeline.machine.read(self._timeline.reading)
        table: str | None = None
        before = 0.0
        for block in self._plain():
            wanted = cost_of(self._events.instructions[block.row], machine).table
            if wanted is not None and wanted != table:
                table = wanted
                yield Block(
                    before, before + machine.timing.table_load_ns, block.row, table_load=True
                )
            yield block
            before = block.end_ns


def lanes_of(timeline: Timeline) -> list[Lane]:
    """The lanes that have instructions, in a fixed order."""
    events = timeline.events
    rows: dict[str, list[int]] = {name: [] for name in LANES}
    for row, instruction in enumerate(events.instructions):
        rows[lane_name(instruction)].append(row)
    start = events.start_ns
    for members in rows.values():
        members.sort(key=start.__getitem__)
    return [Lane(name, array("q", members), timeline) for name, members in rows.items() if members]


def times_run(timeline: Timeline) -> array[int]:
    """How often each row ran: once, and once more for each extrapolated iteration like it."""
    times = array("q", [1]) * len(timeline.events)
    for elision in timeline.elisions:
        for row in range(elision.first_row, elision.end_row):
            times[row] *= 1 + elision.iterations
    return times

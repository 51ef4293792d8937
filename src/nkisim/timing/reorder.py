"""A reordering window: an engine may take any ready instruction among its next few.

It stands for what a compiler's scheduler does. The Tensor engine keeps program order. The order
found is greedy: whatever can start first does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from operator import attrgetter

_NEVER = (float("inf"), -1)
_BEST = attrgetter("best")


class WaitingLane:
    """The instructions of one engine or DMA queue that have not run yet, in program order.

    Only the first `window` of them may be chosen. `best` is (start, row) of the one that can start
    first, the earlier one on a tie; row -1 at infinity while none of them is ready.
    """

    __slots__ = ("_by_order", "_by_time", "_entered", "_free", "_next", "_rows", "_window", "best")

    def __init__(self, window: int, free: float) -> None:
        self.best = _NEVER
        self._window = window
        self._free = free  # when the engine is
        self._rows: list[int] = []
        self._next = 0  # rows before it are inside the window, or have run
        self._entered = -1  # the last row inside the window
        self._by_time: list[tuple[float, int]] = []  # ready later than the engine is free
        self._by_order: list[int] = []  # ready before that: program order decides

    def add(self, row: int) -> None:
        """One more instruction at the end of the lane."""
        self._rows.append(row)
        if len(self._rows) <= self._window:
            self._next, self._entered = len(self._rows), row

    def holds(self, row: int) -> bool:
        """Whether a row of this lane is inside the window."""
        return row <= self._entered

    def offer(self, row: int, ready: float) -> None:
        """A row inside the window is ready at a time."""
        if ready <= self._free:
            heappush(self._by_order, row)
        else:
            heappush(self._by_time, (ready, row))
        self._choose()

    def take(self, free: float) -> int | None:
        """The best row has run until its engine is free; returns the row that enters the window."""
        if self._by_order:
            heappop(self._by_order)
        else:
            heappop(self._by_time)
        self._free = free
        while self._by_time and self._by_time[0][0] <= free:
            heappush(self._by_order, heappop(self._by_time)[1])
        self._choose()
        if self._next == len(self._rows):
            return None
        self._entered = self._rows[self._next]
        self._next += 1
        return self._entered

    def _choose(self) -> None:
        if self._by_order:
            self.best = (self._free, self._by_order[0])
        else:
            self.best = self._by_time[0] if self._by_time else _NEVER


class Reordering:
    """Runs rows 0, 1, ... in the order they can start.

    Row r is in `lanes[r]` and waits for the rows `waits_for[r]`. `ready_at` is asked when all of
    those have run; `run` runs a row and returns when its lane is free again.
    """

    def __init__(
        self,
        lanes: Sequence[WaitingLane],
        waits_for: Sequence[set[int]],
        ready_at: Callable[[int], float],
        run: Callable[[int], float],
    ) -> None:
        self._lanes = lanes
        self._ready_at = ready_at
        self._run = run
        self._ready: list[float | None] = [None] * len(lanes)
        self._missing = [len(producers) for producers in waits_for]
        self._followers: dict[int, list[int]] = {}
        for row, producers in enumerate(waits_for):
            lanes[row].add(row)
            for producer in producers:
                self._followers.setdefault(producer, []).append(row)

    def go(self) -> None:
        """Run every row."""
        lanes = list(dict.fromkeys(self._lanes))
        for row, missing in enumerate(self._missing):
            if not missing:
                self._prepare(row)
        for _ in self._lanes:
            first = min(lanes, key=_BEST)
            row = first.best[1]
            assert row >= 0, "some row is always ready: waits point backwards"
            entered = first.take(self._run(row))
            if entered is not None and (when := self._ready[entered]) is not None:
                first.offer(entered, when)
            for follower in self._followers.pop(row, ()):
                self._missing[follower] -= 1
                if not self._missing[follower]:
                    self._prepare(follower)

    def _prepare(self, row: int) -> None:
        """Everything a row waits for has run."""
        self._ready[row] = when = self._ready_at(row)
        lane = self._lanes[row]
        if lane.holds(row):
            lane.offer(row, when)

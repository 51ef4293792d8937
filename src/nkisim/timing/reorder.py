"""A reordering window: an engine may take any ready instruction among its next few.

It stands for what a compiler's scheduler does. The Tensor engine keeps program order. The order
found is greedy: whatever can start first does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence


class Lane:
    """The instructions of one engine or DMA queue that have not run yet, in program order."""

    __slots__ = ("_next", "_rows", "best", "candidates", "stale", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self._rows: list[int] = []
        self._next = 0
        self.candidates: list[int] = []
        self.best: tuple[float, int] | None = None
        self.stale = True

    def add(self, row: int) -> None:
        """One more instruction at the end of the lane."""
        self._rows.append(row)

    def fill(self) -> None:
        """Bring the window up to its size."""
        while len(self.candidates) < self.window and self._next < len(self._rows):
            self.candidates.append(self._rows[self._next])
            self._next += 1
        self.stale = True

    def choose(self, ready: dict[int, float], free: float) -> None:
        """Remember the candidate that can start first; the earlier one on a tie."""
        known = [(max(ready[row], free), row) for row in self.candidates if row in ready]
        self.best = min(known, default=None)
        self.stale = False


def reordered(
    rows: Sequence[int],
    lane_of: Callable[[int], tuple[Hashable, int]],
    waits_for: Callable[[int], set[int]],
    ready_at: Callable[[int], float],
    free_at: Callable[[int], float],
) -> Iterator[int]:
    """Rows in the order they start. The caller commits each row before asking for the next.

    `lane_of` gives a row's lane and its window; `waits_for` the rows it depends on; `ready_at` is
    asked when all of those are committed; `free_at` when the engine of a row is free.
    """
    members = set(rows)
    missing = {row: waits_for(row) & members for row in rows}
    followers: dict[int, list[int]] = {}
    lanes: dict[Hashable, Lane] = {}
    home: dict[int, Lane] = {}
    for row in rows:
        key, window = lane_of(row)
        lane = lanes.setdefault(key, Lane(window))
        lane.add(row)
        home[row] = lane
        for producer in missing[row]:
            followers.setdefault(producer, []).append(row)
    ready = {row: ready_at(row) for row in rows if not missing[row]}
    for lane in lanes.values():
        lane.fill()
    for _ in rows:
        lane = _first_to_start(lanes.values(), ready, free_at)
        assert lane.best is not None, "some instruction is always ready: waits point backwards"
        row = lane.best[1]
        yield row
        lane.candidates.remove(row)
        lane.fill()
        for follower in followers.pop(row, ()):
            missing[follower].discard(row)
            if not missing[follower]:
                ready[follower] = ready_at(follower)
                home[follower].stale = True


def _first_to_start(
    lanes: Iterable[Lane], ready: dict[int, float], free_at: Callable[[int], float]
) -> Lane:
    first: Lane | None = None
    for lane in lanes:
        if lane.stale and lane.candidates:
            lane.choose(ready, free_at(lane.candidates[0]))
        if not lane.candidates:
            lane.best = None
        if lane.best is not None and (
            first is None or first.best is None or lane.best < first.best
        ):
            first = lane
    assert first is not None, "some instruction is always ready: waits point backwards"
    return first

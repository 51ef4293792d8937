"""SharedLimit: what several in-order users get of one thing that they share."""

from __future__ import annotations

from collections.abc import Hashable

_RECENT = 16  # askings after which a user counts as absent


class SharedLimit:
    """Work that ends no earlier than if one server had done all of it in the order of asking.

    Users keep their own order but overtake each other: a load that is asked for after a store may
    run before it. So a user is not held up by another one's waits, only by its work: the server's
    clock follows whichever of the recent users begins first. Time in which nobody asks is lost.

    Every result is a sum, a maximum or a minimum of earlier times: whoever begins later never makes
    anything earlier.
    """

    __slots__ = ("_asked", "_end", "_last")

    def __init__(self) -> None:
        self._end = 0.0
        self._asked = 0
        self._last: dict[Hashable, tuple[int, float]] = {}  # by user: number of asking, begin

    def take(self, user: Hashable, begin: float, work_ns: float) -> float:
        """The earliest end of work that may begin at a time."""
        since = begin
        for other, (number, when) in self._last.items():
            if when < since and other != user and number + _RECENT >= self._asked:
                since = when
        self._last[user] = self._asked, begin
        self._asked += 1
        self._end = max(self._end, since) + work_ns
        return self._end

    def drained(self, when: float) -> None:
        """Everything has ended at a time; nobody looks further back."""
        self._end = max(self._end, when)
        self._last.clear()

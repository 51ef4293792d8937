"""Steady state of a hardware loop: when iterations repeat, the rest need not be scheduled."""

from __future__ import annotations

from itertools import pairwise

_PERIODS = (1, 2, 3, 4, 6, 8)  # buffers rotate: the pattern may repeat only every few iterations
_SAME = 1e-6  # relative difference of two durations that count as equal
_REPEATS = 3  # how often a period has to repeat before it is believed


class SteadyState:
    """Watches where the frontier stands after each iteration."""

    def __init__(self) -> None:
        self._ends: list[float] = []
        self.ns_per_iteration = 0.0

    def add(self, frontier_ns: float) -> None:
        """One more iteration ended."""
        self._ends.append(frontier_ns)

    @property
    def reached(self) -> bool:
        """Whether the last iterations took the same time, in some short period."""
        for period in _PERIODS:
            if len(self._ends) > _REPEATS * period + 1 and self._repeats(period):
                self.ns_per_iteration = (self._ends[-1] - self._ends[-1 - period]) / period
                return True
        return False

    def _repeats(self, period: int) -> bool:
        marks = self._ends[: -_REPEATS * period - 1 - period : -period]
        durations = [later - earlier for later, earlier in pairwise(marks)]
        durations = durations[:_REPEATS]
        return max(durations) - min(durations) <= _SAME * max(durations)

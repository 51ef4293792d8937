"""Steady state of a hardware loop: when iterations repeat, the rest need not be scheduled.

A loop is a deterministic machine. Once all its meters (clocks and totals) gain the same in every
period, and what else it remembers is the same, it goes on like that. One thing is not foreseen: a
view that moves with the loop and only in a later iteration comes upon a place that something else
in the body uses.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import pairwise
from typing import NamedTuple

_PERIODS = (1, 2, 3, 4, 6, 8)  # buffers rotate: the pattern may repeat only every few iterations
_SAME = 1e-6  # relative difference of two gains that count as equal
_ROUNDING = 1e-5  # absolute difference that sums of times may have
_REPEATS = 3  # how often a period has to repeat before it is believed


class Mark(NamedTuple):
    """Where everything stands after an iteration."""

    meters: list[float]
    condition: Hashable
    end_row: int


class SteadyState:
    """Watches the marks of a loop; they are kept for the longest period only."""

    def __init__(self) -> None:
        self._marks: list[Mark] = []
        self._most = _REPEATS * max(_PERIODS) + 1

    def add(self, mark: Mark) -> None:
        """One more iteration ended."""
        self._marks.append(mark)
        del self._marks[: -self._most]

    def period(self) -> int | None:
        """The number of iterations after which everything repeats; None while nothing does."""
        return next((period for period in _PERIODS if self._repeats(period)), None)

    def ago(self, iterations: int) -> Mark:
        """The mark of an earlier iteration."""
        return self._marks[-1 - iterations]

    def gains(self, period: int) -> list[float]:
        """What every meter gained in the last period."""
        return _gains(self.ago(0), self.ago(period))

    def _repeats(self, period: int) -> bool:
        if len(self._marks) <= _REPEATS * period:
            return False
        marks = [self.ago(period * turn) for turn in range(_REPEATS + 1)]
        if any(_shape(mark) != _shape(marks[0]) for mark in marks):
            return False
        rows = [later.end_row - earlier.end_row for later, earlier in pairwise(marks)]
        turns = [_gains(later, earlier) for later, earlier in pairwise(marks)]
        return len(set(rows)) == 1 and all(map(_constant, zip(*turns, strict=True)))


def _constant(gains: tuple[float, ...]) -> bool:
    return nearly_equal(min(gains), max(gains))


def nearly_equal(one: float, two: float) -> bool:
    """Whether two sums of the same times, added up in different places, are the same."""
    return abs(one - two) <= _SAME * max(abs(one), abs(two)) + _ROUNDING


def _shape(mark: Mark) -> tuple[int, Hashable]:
    return len(mark.meters), mark.condition


def _gains(later: Mark, earlier: Mark) -> list[float]:
    return [new - old for new, old in zip(later.meters, earlier.meters, strict=True)]

"""Conflicting HBM accesses of two cores between two meetings of the cores.

A barrier or a sendrecv orders everything before it, on both cores, before everything after it. So
only accesses of the same interval between meetings can conflict.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nkisim.trace import Access


class Touch(NamedTuple):
    """One HBM access of one core: the memory it means, where, and by which instruction."""

    memory: int  # identity of the storage, the same for both cores
    access: Access
    trips: int  # iterations of the loop the access steps with
    writes: bool
    instruction: str


@dataclass(frozen=True)
class Race:
    """Two unordered accesses to the same bytes, at least one of them a write."""

    tensor: str
    first: str
    second: str

    def __str__(self) -> str:
        return f"{self.tensor!r}: core 0 {self.first} and core 1 {self.second}"


def find_races(core0: list[Touch], core1: list[Touch]) -> list[Race]:
    """The conflicts between two cores in one interval, at most one for a pair of instructions."""
    by_memory: dict[int, tuple[list[Touch], list[Touch]]] = defaultdict(lambda: ([], []))
    for touch in core0:
        by_memory[touch.memory][0].append(touch)
    for touch in core1:
        by_memory[touch.memory][1].append(touch)
    races: dict[Race, None] = {}
    for mine, theirs in by_memory.values():
        for one, two in _overlapping_spans(mine, theirs):
            if (one.writes or two.writes) and _share_element(one, two):
                race = Race(one.access.allocation.name, _words(one), _words(two))
                races.setdefault(race)
    return list(races)


def _overlapping_spans(mine: list[Touch], theirs: list[Touch]) -> Iterator[tuple[Touch, Touch]]:
    """Pairs whose byte intervals meet: a sweep over the intervals sorted by start."""
    ordered = sorted(theirs, key=lambda touch: _span(touch)[0])
    starts = [_span(touch)[0] for touch in ordered]
    longest = max((_span(touch)[1] - _span(touch)[0] for touch in ordered), default=0)
    for one in mine:
        low, high = _span(one)
        first = int(np.searchsorted(starts, low - longest, side="left"))
        last = int(np.searchsorted(starts, high, side="left"))
        for two in ordered[first:last]:
            if _span(two)[1] > low:
                yield one, two


def _span(touch: Touch) -> tuple[int, int]:
    low, high = touch.access.byte_interval
    reach = touch.access.step * (touch.trips - 1) * touch.access.layout.itemsize_bytes
    return low + min(reach, 0), high + max(reach, 0)


def _share_element(one: Touch, two: Touch) -> bool:
    return bool(np.intersect1d(_addresses(one), _addresses(two)).size)


def _addresses(touch: Touch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Every byte address of an access, as units of the element size."""
    access = touch.access
    layout = access.layout
    total = np.array([access.offset], np.int64)
    for stride, count in (*layout.free, (access.step, touch.trips)):
        if count > 1:
            total = (total[:, None] + stride * np.arange(count, dtype=np.int64)).ravel()
    return np.unique(total * layout.itemsize_bytes)


def _words(touch: Touch) -> str:
    verb = "writes" if touch.writes else "reads"
    low, high = touch.access.byte_interval
    return f"{verb} bytes {low}..{high - 1} in {touch.instruction}"

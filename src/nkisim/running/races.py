"""Conflicting HBM accesses of two cores between two meetings of the cores.

A barrier or a sendrecv orders everything before it, on both cores, before everything after it. So
only accesses of the same interval between meetings can conflict. Kernels that know nothing of cores
do everything twice when launched on two: writes of equal values do not conflict, nor does reading
such a value after having written it. Without values, equal writes count as writes of equal values.

A tensor is cut at every byte where a run of an access begins or ends. What holds for one byte of
such a piece holds for all of it, so the work grows with the runs of the accesses, not with bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nkisim.memory.storage import Storage
    from nkisim.trace import Access

Ints = np.ndarray[Any, np.dtype[np.int64]]
Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_MOST_RACES = 100  # for one tensor in one interval; nobody reads more
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class Touch(NamedTuple):
    """One HBM access of one core: the memory it means, where, when, and by which instruction."""

    storage: Storage  # the same object for both cores
    access: Access
    trips: int  # iterations of the loop the access steps with
    writes: bool
    instruction: str
    position: int  # among the accesses of its core in the interval

    @property
    def act(self) -> tuple[Any, ...]:
        """What is done, by whatever core and in whatever direction."""
        access = self.access
        return (access.layout, access.offset, access.step, self.trips, self.instruction)

    def __str__(self) -> str:
        low, high = self.access.byte_interval
        verb = "writes" if self.writes else "reads"
        return f"{verb} bytes {low}..{high - 1} in {self.instruction}"


@dataclass(frozen=True)
class Race:
    """Two unordered accesses to the same bytes, at least one of them a write."""

    tensor: str
    first: str
    second: str

    def __str__(self) -> str:
        return f"{self.tensor!r}: core 0 {self.first} and core 1 {self.second}"


class Interval:
    """What one core did in HBM since the last meeting, and what it left there."""

    def __init__(self) -> None:
        self.touches: list[Touch] = []
        self._left: dict[Storage, Bytes] = {}

    def add(self, storage: Storage, access: Access, trips: int, what: str, *, writes: bool) -> None:
        """Note an access."""
        position = len(self.touches)
        self.touches.append(Touch(storage, access, trips, writes, what, position))

    def keep(self) -> None:
        """Remember the tensors this core wrote as they are now, before the other core runs."""
        for storage in {touch.storage for touch in self.touches if touch.writes}:
            if storage.has_values:
                self._left[storage] = storage.host_bytes()

    def left(self, storage: Storage) -> Bytes | None:
        """The bytes of a tensor when this core ended the interval; None without values."""
        return self._left.get(storage)

    def clear(self) -> None:
        """Begin the next interval."""
        self.touches.clear()
        self._left.clear()


def find_races(core0: Interval, core1: Interval) -> list[Race]:
    """The conflicts between two cores in one interval, at most one for a pair of instructions."""
    by_storage: dict[Storage, tuple[list[Touch], list[Touch]]] = {}
    for side, interval in enumerate((core0, core1)):
        for touch in interval.touches:
            by_storage.setdefault(touch.storage, ([], []))[side].append(touch)
    races: dict[Race, None] = {}
    for storage, (mine, theirs) in by_storage.items():
        if mine and theirs and any(touch.writes for touch in (*mine, *theirs)):
            left = core0.left(storage), core1.left(storage)
            races.update(dict.fromkeys(_races_of(storage, mine, theirs, left)))
    return list(races)


def _races_of(
    storage: Storage,
    mine: list[Touch],
    theirs: list[Touch],
    left: tuple[Bytes | None, Bytes | None],
) -> list[Race]:
    edges = np.unique(np.concatenate([_runs(touch).ravel() for touch in (*mine, *theirs)]))
    cores = _Core(mine, edges), _Core(theirs, edges)
    if not ((cores[0].written & cores[1].touched) | (cores[1].written & cores[0].touched)).any():
        return []
    equal = _equal_values(cores, edges, left)
    found: list[Race] = []
    for one, two in _conflicts(cores, equal):
        found.append(Race(storage.allocation.name, str(one), str(two)))
        if len(found) == _MOST_RACES:
            break
    return found


class _Core:
    """The touches of one core on one tensor, and for every piece what they do to it."""

    def __init__(self, touches: list[Touch], edges: Ints) -> None:
        self.pieces = [(touch, _pieces(touch, edges)) for touch in touches]
        count = len(edges)
        self.touched: Flags = np.zeros(count, np.bool_)
        self.written: Flags = np.zeros(count, np.bool_)
        self.writes: Ints = np.zeros(count, np.int64)  # how often; fences do not count
        self.first_write: Ints = np.full(count, touches[-1].position + 1, np.int64)
        self.history: Hashes = np.zeros(count, np.uint64)  # of the writes, in order
        fences = _fences(touches)
        for touch, pieces in self.pieces:
            self.touched[pieces] = True
            if touch.writes:
                self.written[pieces] = True
                if touch.position not in fences:
                    self._note_write(touch, pieces)

    def _note_write(self, touch: Touch, pieces: Ints) -> None:
        self.writes[pieces] += 1
        self.first_write[pieces] = np.minimum(self.first_write[pieces], touch.position)
        act = np.uint64(hash(touch.act) & 0xFFFFFFFFFFFFFFFF)
        self.history[pieces] = self.history[pieces] * _HASH_FACTOR + act


def _fences(touches: list[Touch]) -> set[int]:
    """Positions of copies of a view onto itself: kernels use them as fences, no value changes."""
    pairs = pairwise(touches)
    return {
        after.position
        for before, after in pairs
        if after.writes and not before.writes and before.act == after.act
    }


def _equal_values(
    cores: tuple[_Core, _Core], edges: Ints, left: tuple[Bytes | None, Bytes | None]
) -> Flags:
    """For every piece whether both cores wrote it and left the same values there."""
    both: Flags = cores[0].written & cores[1].written
    if left[0] is None or left[1] is None:
        same: Flags = both & (cores[0].history == cores[1].history)
        return same
    differing = np.concatenate(([0], np.cumsum(left[0] != left[1])))
    ends = np.minimum(np.append(edges[1:], edges[-1]), len(left[0]))
    none: Flags = differing[ends] == differing[np.minimum(edges, len(left[0]))]
    return both & none


def _conflicts(cores: tuple[_Core, _Core], equal: Flags) -> Iterator[tuple[Touch, Touch]]:
    """Pairs of touches (of core 0, of core 1) with a conflict in some piece."""
    differing = cores[0].written & cores[1].written & ~equal
    for one, mine in _restricted(cores[0], differing, writes=True):
        for two, _ in _restricted(cores[1], _only(mine, equal), writes=True):
            yield one, two
    for reader in (0, 1):
        own, other = cores[reader], cores[1 - reader]
        for read, pieces in _restricted(own, other.written, writes=False):
            twice = (own.first_write[pieces] < read.position) & (other.writes[pieces] == 1)
            wrong = pieces[~(twice & equal[pieces])]
            for write, _ in _restricted(other, _only(wrong, equal), writes=True):
                yield (read, write) if reader == 0 else (write, read)


def _restricted(core: _Core, allowed: Flags, *, writes: bool) -> Iterator[tuple[Touch, Ints]]:
    """The reads or writes of a core that touch an allowed piece, with those pieces."""
    if not allowed.any():
        return
    for touch, pieces in core.pieces:
        if touch.writes is writes:
            kept = pieces[allowed[pieces]]
            if kept.size:
                yield touch, kept


def _only(pieces: Ints, like: Flags) -> Flags:
    flags = np.zeros_like(like)
    flags[pieces] = True
    return flags


def _pieces(touch: Touch, edges: Ints) -> Ints:
    """The numbers of the pieces a touch covers; piece i begins at edges[i]."""
    starts, ends = np.searchsorted(edges, _runs(touch))
    if len(starts) == 1:
        return np.arange(starts[0], ends[0])
    counts = ends - starts
    before = np.cumsum(counts) - counts
    return np.unique(np.arange(counts.sum()) + np.repeat(starts - before, counts))


def _runs(touch: Touch) -> Ints:
    """[[first byte of every run], [end of every run]] of a touch, over all trips of its loop."""
    access, size = touch.access, touch.access.layout.itemsize_bytes
    start, length = access.offset * size, size
    steps = [(s * size, n) for s, n in (*access.layout.free, (access.step, touch.trips)) if n > 1]
    starts: Ints = np.zeros(1, np.int64)
    for step, count in sorted(steps, key=lambda pair: abs(pair[0])):
        start += min(step, 0) * (count - 1)
        if len(starts) == 1 and abs(step) <= length:
            length += abs(step) * (count - 1)
        else:
            starts = (starts[:, None] + abs(step) * np.arange(count, dtype=np.int64)).ravel()
    return np.stack((starts + start, starts + start + length))

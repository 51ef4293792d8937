"""Conflicting accesses of two cores to shared HBM: the same bytes, a write, and no order.

What orders two accesses is said in `order.py`: a core_barrier orders accesses to its data, a
sendrecv what its tiles were made from and what is made from them, and nothing clears the rest. One
exception is made, because kernels that know nothing of cores do everything twice when launched on
two: writes of one provenance (`provenance.py`) do not conflict, nor does reading such a value after
having written it. No values are looked at.

A tensor is cut at every byte where a run of an access begins or ends. What holds for one byte of
such a piece holds for all of it, so the work grows with the runs of the accesses, not with bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nkisim.memory.footprint import runs_of
from nkisim.running.access_log import BARRIER, AccessLog, Event, Touch
from nkisim.running.order import Order
from nkisim.running.provenance import Provenance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nkisim.memory.storage import Storage
    from nkisim.source_lines import SourceLine

Ints = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

_MOST_RACES = 100  # for one tensor between two barriers; nobody reads more
_NEVER = 0  # provenances are numbered from 1 on


class Use(NamedTuple):
    """One access of one core to shared HBM. `operand` numbers a write among its event's."""

    event: Event
    touch: Touch
    operand: int  # -1: a read

    @property
    def writes(self) -> bool:
        """Whether it changes bytes."""
        return self.operand >= 0

    def __str__(self) -> str:
        verb = "writes" if self.writes else "reads"
        return f"{verb} {self.touch} in {self.event}"


@dataclass(frozen=True)
class Race:
    """Two unordered accesses to the same bytes, at least one of them a write."""

    tensor: str
    first: str
    second: str
    place: SourceLine | None = field(default=None, compare=False)  # of core 0's access

    def __str__(self) -> str:
        return f"{self.tensor!r}: core 0 {self.first} and core 1 {self.second}"


def find_races(log: AccessLog) -> list[Race]:
    """The conflicts between two cores, at most one for a pair of instructions."""
    judge = _Judge(log)
    races: dict[Race, None] = {}
    for storage, (mine, theirs) in _between_barriers(log):
        if mine and theirs and any(use.writes for use in (*mine, *theirs)):
            races.update(dict.fromkeys(_races_of(storage, (mine, theirs), judge)))
    return list(races)


class _Judge:
    """Order and provenance of a log, worked out when somebody asks."""

    def __init__(self, log: AccessLog) -> None:
        self._log = log
        self._order: Order | None = None
        self._provenance: Provenance | None = None

    def ordered(self, first: Use, second: Use) -> bool:
        """Whether one use comes before the other on every device."""
        if self._order is None:
            self._order = Order(self._log)
        return self._order.has(first.event, second.event)

    def provenance(self, use: Use) -> int:
        """Where the value of a write comes from."""
        if self._provenance is None:
            self._provenance = Provenance(self._log)
        return self._provenance.of(use.event, use.operand)


def _between_barriers(
    log: AccessLog,
) -> Iterator[tuple[Storage, tuple[list[Use], list[Use]]]]:
    """The uses of every tensor by the two cores, cut where both meet in a barrier on all of it."""
    found: dict[tuple[Storage, int], tuple[list[Use], list[Use]]] = {}
    passed: tuple[dict[Storage, int], dict[Storage, int]] = ({}, {})
    for event in log.events:
        barriers = passed[event.core]
        if event.instruction.op == BARRIER:
            data = event.writes[0]
            whole = data.storage.allocation.bytes_per_partition
            if runs_of(data.access.layout).size_bytes == whole:
                barriers[data.storage] = barriers.get(data.storage, 0) + 1
            continue
        for use in _uses(event):
            storage = use.touch.storage
            key = (storage, barriers.get(storage, 0))
            found.setdefault(key, ([], []))[event.core].append(use)
    for (storage, _), uses in found.items():
        yield storage, uses


def _uses(event: Event) -> Iterator[Use]:
    """The accesses of an event to shared HBM whose place is known, reads first."""
    for touch in event.reads:
        if touch.shared and touch.known:
            yield Use(event, touch, -1)
    if event.copies_onto_itself:
        return  # no value changes; what it reads is noted above
    for operand, touch in enumerate(event.writes):
        if touch.shared and touch.known:
            yield Use(event, touch, operand)


def _races_of(storage: Storage, uses: tuple[list[Use], list[Use]], judge: _Judge) -> Iterator[Race]:
    every = [edge for use in (*uses[0], *uses[1]) for edge in use.touch.runs()]
    edges = np.unique(np.concatenate(every))
    cores = _CoreUses(uses[0], edges), _CoreUses(uses[1], edges)
    both = cores[0].written & cores[1].written
    if both.any():
        for core in cores:
            core.follow_values(both, judge)
    unordered = (pair for pair in _conflicts(cores, both) if not judge.ordered(*pair))
    for first, second in islice(unordered, _MOST_RACES):
        name = storage.allocation.name
        yield Race(name, str(first), str(second), first.event.instruction.place)


class _Covered:
    """A use, the pieces it covers, and for a read what the core itself had written there."""

    __slots__ = ("pieces", "seen", "use")

    def __init__(self, use: Use, edges: Ints) -> None:
        self.use = use
        self.pieces = _pieces(use, edges)
        self.seen: Ints | None = None


class _CoreUses:
    """The uses of one tensor by one core, and for every piece what they do to it."""

    def __init__(self, uses: list[Use], edges: Ints) -> None:
        self.uses = [_Covered(use, edges) for use in uses]
        count = len(edges)
        self.touched: Flags = np.zeros(count, np.bool_)
        self.written: Flags = np.zeros(count, np.bool_)
        self.left: Ints = np.full(count, _NEVER, np.int64)  # provenance of the last write
        self.single: Flags = np.ones(count, np.bool_)  # all writes have that provenance
        for covered in self.uses:
            self.touched[covered.pieces] = True
            if covered.use.writes:
                self.written[covered.pieces] = True

    def follow_values(self, both: Flags, judge: _Judge) -> None:
        """Work out which values the core sees and leaves where both cores write."""
        for covered in self.uses:
            pieces = covered.pieces
            before = self.left[pieces]
            if not covered.use.writes:
                covered.seen = before
            elif both[pieces].any():
                number = judge.provenance(covered.use)
                self.single[pieces] &= (before == number) | (before == _NEVER)
                self.left[pieces] = number


def _conflicts(cores: tuple[_CoreUses, _CoreUses], both: Flags) -> Iterator[tuple[Use, Use]]:
    """Pairs of uses (of core 0, of core 1) that meet in a piece, one writing another value."""
    differing = both & (cores[0].left != cores[1].left)
    writers = _Users(cores[1], differing)
    for covered in cores[0].uses:
        if covered.use.writes:
            for use in writers.of(covered.pieces):
                yield covered.use, use
    for reader in (0, 1):
        reading, other = cores[reader], cores[1 - reader]
        writers = _Users(other, reading.touched)
        for covered in reading.uses:
            if not covered.use.writes:
                for write in writers.of(_unlike(covered, other)):
                    pair = (covered.use, write)
                    yield pair if reader == 0 else pair[::-1]


def _unlike(read: _Covered, other: _CoreUses) -> Ints:
    """The pieces of a read in which the other core writes anything but what is read."""
    pieces, seen = read.pieces, read.seen
    if seen is None:
        return pieces
    same = (seen == other.left[pieces]) & other.single[pieces] & (seen != _NEVER)
    unlike: Ints = pieces[~same]
    return unlike


class _Users:
    """By piece, who writes it, for the pieces that are asked about."""

    def __init__(self, core: _CoreUses, pieces: Flags) -> None:
        self._asked: Flags = pieces & core.written
        self._writers: dict[int, list[Use]] = {}
        if self._asked.any():
            for covered in core.uses:
                if covered.use.writes:
                    for piece in covered.pieces[self._asked[covered.pieces]].tolist():
                        self._writers.setdefault(piece, []).append(covered.use)

    def of(self, pieces: Ints) -> list[Use]:
        """The writers of any of the pieces, each once, in program order."""
        written = pieces[self._asked[pieces]].tolist()
        users = {id(use): use for piece in written for use in self._writers[piece]}
        return sorted(users.values(), key=lambda use: (use.event.number, use.operand))


def _pieces(use: Use, edges: Ints) -> Ints:
    """The numbers of the pieces a use covers; piece i begins at edges[i]."""
    starts, ends = (np.searchsorted(edges, side) for side in use.touch.runs())
    if len(starts) == 1:
        return np.arange(starts[0], ends[0])
    counts = ends - starts
    before = np.cumsum(counts) - counts
    pieces: Ints = np.arange(counts.sum()) + np.repeat(starts - before, counts)
    return pieces

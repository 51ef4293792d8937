"""Manual addresses: who owns the bytes that several tensors were placed on.

Placing a tensor over another one is legal, it is how buffers are reused. Reading through a tensor
what another one has overwritten since is not, and is caught here.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import numpy as np

from nkisim.errors import AliasError
from nkisim.memory.footprint import Runs, runs_of, view_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nkisim.memory.allocation import Allocation
    from nkisim.memory.layout import Layout

_MOST_BOXES = 16


class PlacedStorage(Protocol):
    """What this file needs of a storage."""

    neighbours: Neighbours | None

    @property
    def allocation(self) -> Allocation:
        """Which tensor it is, and where it lies."""


P = TypeVar("P", bound=PlacedStorage)


class Box(NamedTuple):
    """Physical partitions [first, end) times bytes [low, high) of each, or some runs of those."""

    first: int
    end: int
    low: int
    high: int
    runs: Runs | None = None  # None: all of the bytes

    def meets(self, other: Box) -> bool:
        """Whether the two share a byte."""
        if self.first >= other.end or other.first >= self.end:
            return False
        if self.low >= other.high or other.low >= self.high:
            return False
        return (self.runs is None and other.runs is None) or self._runs.meets(other._runs)

    def minus(self, other: Box) -> list[Box]:
        """The bytes of this box that are not in `other`, as boxes that share none."""
        if not self.meets(other):
            return [self]
        first, end = max(self.first, other.first), min(self.end, other.end)
        above = Box(self.first, first, self.low, self.high, self.runs)
        below = Box(end, self.end, self.low, self.high, self.runs)
        beside = self._beside(other, first, end)
        return [part for part in (above, below, *beside) if part.first < part.end]

    def _beside(self, other: Box, first: int, end: int) -> list[Box]:
        """What `other` leaves of the partitions that both have."""
        if self.runs is None and other.runs is None:
            sides = Box(first, end, self.low, other.low), Box(first, end, other.high, self.high)
            return [part for part in sides if part.low < part.high]
        left = self._runs.minus(other._runs)
        return boxes_of_runs(left, first, end)

    @property
    def _runs(self) -> Runs:
        if self.runs is not None:
            return self.runs
        return Runs(np.array([self.low]), np.array([self.high]))


def box_of(storage: PlacedStorage) -> Box:
    """All bytes of a manually placed tensor."""
    place = storage.allocation
    low = place.address_bytes or 0
    end = place.start_partition + place.partitions
    return Box(place.start_partition, end, low, low + place.bytes_per_partition)


@functools.lru_cache(maxsize=4096)
def boxes_of_view(whole: Box, layout: Layout, offset: int) -> list[Box]:
    """The bytes of a view of a tensor placed at `whole`."""
    view = view_at(layout, offset, whole.high - whole.low)
    first = whole.first + view.partition
    runs = runs_of(layout).moved(whole.low + view.byte)
    return boxes_of_runs(runs, first, first + layout.partitions)


def boxes_of_runs(runs: Runs, first: int, end: int) -> list[Box]:
    """A box for each of a few runs, which is quicker, or one box that has many."""
    if len(runs.starts) > _MOST_BOXES:
        return [Box(first, end, int(runs.starts[0]), int(runs.ends[-1]), runs)]
    pairs = zip(runs.starts.tolist(), runs.ends.tolist(), strict=True)
    return [Box(first, end, low, high) for low, high in pairs]


class Neighbours:
    """The tensors placed over one storage, and the parts of it they have overwritten."""

    __slots__ = ("_others", "_stale", "_whole")

    def __init__(self, whole: Box) -> None:
        self._whole = whole
        self._others: list[weakref.ref[PlacedStorage]] = []
        self._stale: list[tuple[Box, str]] = []

    def add(self, other: PlacedStorage) -> None:
        """`other` shares bytes with this storage."""
        self._others = [known for known in self._others if known() is not None]
        self._others.append(weakref.ref(other))

    def note_write(self, storage: PlacedStorage, layout: Layout, offset: int) -> None:
        """The view is written: it is fresh here and stale in every tensor below it."""
        boxes = boxes_of_view(self._whole, layout, offset)
        if self._stale:
            self._forget(boxes)
        for reference in self._others:
            other = reference()
            if other is not None and other.neighbours is not None:
                other.neighbours.overwritten(boxes, storage.allocation.name)

    def overwritten(self, boxes: list[Box], by: str) -> None:
        """Another tensor wrote these bytes, some of which may be outside of this one."""
        for box in boxes:
            known = any(stale is box and owner == by for stale, owner in self._stale)
            if not known and box.meets(self._whole):
                self._forget([box])
                self._stale.append((box, by))

    def _forget(self, boxes: list[Box]) -> None:
        for box in boxes:
            self._stale = [(part, by) for stale, by in self._stale for part in stale.minus(box)]

    def check_read(self, storage: PlacedStorage, layout: Layout, offset: int) -> None:
        """Refuse to read bytes that another tensor wrote last."""
        if not self._stale:
            return
        for box in boxes_of_view(self._whole, layout, offset):
            for stale, by in self._stale:
                if box.meets(stale):
                    _refuse_stale(storage, stale, by)


def _refuse_stale(storage: PlacedStorage, stale: Box, by: str) -> None:
    raise AliasError(
        f"read of tensor {storage.allocation.name!r} after tensor {by!r}, placed over it, was"
        " written",
        limit=f"partitions {stale.first}..{stale.end - 1}, bytes {stale.low}..{stale.high - 1}"
        f" belong to {by!r} now",
        remedy="read before the buffer is reused, or place the tensors apart",
    )


def link(storage: P, placed: Sequence[weakref.ref[P]]) -> None:
    """Make a newly placed storage and the live ones it overlaps neighbours of each other."""
    box = box_of(storage)
    region = storage.allocation.region
    for reference in placed:
        other = reference()
        if other is None or other.allocation.region is not region or not box.meets(box_of(other)):
            continue
        for first, second in ((storage, other), (other, storage)):
            if first.neighbours is None:
                first.neighbours = Neighbours(box_of(first))
            first.neighbours.add(second)

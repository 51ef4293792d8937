"""Manual addresses: who owns the bytes that several tensors were placed on.

Placing a tensor over another one is legal, it is how buffers are reused. Reading through a tensor
what another one has overwritten since is not, and is caught here.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, NamedTuple

from nkisim.errors import AliasError

if TYPE_CHECKING:
    from nkisim.layout import Layout
    from nkisim.storage import Storage


class Box(NamedTuple):
    """Physical partitions [first, end) times bytes [low, high) of each."""

    first: int
    end: int
    low: int
    high: int

    def meets(self, other: Box) -> bool:
        """Whether the two share a byte."""
        across = self.first < other.end and other.first < self.end
        return across and self.low < other.high and other.low < self.high

    def covers(self, other: Box) -> bool:
        """Whether every byte of `other` is in this box."""
        across = self.first <= other.first and other.end <= self.end
        return across and self.low <= other.low and other.high <= self.high


def box_of(storage: Storage) -> Box:
    """All bytes of a manually placed tensor."""
    place = storage.allocation
    low = place.address_bytes or 0
    end = place.start_partition + place.partitions
    return Box(place.start_partition, end, low, low + place.bytes_per_partition)


def box_of_view(storage: Storage, layout: Layout, offset: int) -> Box:
    """The bounding box of a view of a manually placed tensor."""
    whole = box_of(storage)
    pitch = (whole.high - whole.low) // layout.itemsize_bytes
    row, start = divmod(offset, pitch)
    first = whole.first + row
    low = whole.low + (start + layout.low) * layout.itemsize_bytes
    high = whole.low + (start + layout.high + 1) * layout.itemsize_bytes
    return Box(first, first + layout.partitions, low, high)


class Neighbours:
    """The tensors placed over one storage, and the parts of it they have overwritten."""

    __slots__ = ("_others", "_stale")

    def __init__(self) -> None:
        self._others: list[weakref.ref[Storage]] = []
        self._stale: list[tuple[Box, str]] = []

    def add(self, other: Storage) -> None:
        """`other` shares bytes with this storage."""
        self._others = [known for known in self._others if known() is not None]
        self._others.append(weakref.ref(other))

    def note_write(self, storage: Storage, layout: Layout, offset: int) -> None:
        """The view is written: it is fresh here and stale in every tensor below it."""
        box = box_of_view(storage, layout, offset)
        if self._stale:
            self._stale = [entry for entry in self._stale if not box.covers(entry[0])]
        for reference in self._others:
            other = reference()
            if other is not None and other.neighbours is not None and box.meets(box_of(other)):
                other.neighbours.overwritten(box, storage.allocation.name)

    def overwritten(self, box: Box, by: str) -> None:
        """Another tensor wrote these bytes."""
        self._stale = [entry for entry in self._stale if not box.covers(entry[0])]
        self._stale.append((box, by))

    def check_read(self, storage: Storage, layout: Layout, offset: int) -> None:
        """Refuse to read bytes that another tensor wrote last."""
        if not self._stale:
            return
        box = box_of_view(storage, layout, offset)
        for stale, by in self._stale:
            if box.meets(stale):
                raise AliasError(
                    f"read of tensor {storage.allocation.name!r} after tensor {by!r}, placed over"
                    f" it, was written",
                    limit=f"partitions {stale.first}..{stale.end - 1}, bytes {stale.low}.."
                    f"{stale.high - 1} belong to {by!r} now",
                    remedy="read before the buffer is reused, or place the tensors apart",
                )


def link(storage: Storage, placed: list[weakref.ref[Storage]]) -> None:
    """Make a newly placed storage and the live ones it overlaps neighbours of each other."""
    box = box_of(storage)
    region = storage.allocation.region
    for reference in placed:
        other = reference()
        if other is None or other.allocation.region is not region or not box.meets(box_of(other)):
            continue
        for one, two in ((storage, other), (other, storage)):
            if one.neighbours is None:
                one.neighbours = Neighbours()
            one.neighbours.add(two)

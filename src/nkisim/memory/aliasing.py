"""Manual addresses: who owns the bytes that several tensors were placed on.

Placing a tensor over another one is legal, it is how buffers are reused. Reading through a tensor
what another one has overwritten since is not, and is caught here.
"""

from __future__ import annotations

import functools
import math
import weakref
from typing import TYPE_CHECKING, NamedTuple

from nkisim.errors import AliasError

if TYPE_CHECKING:
    from nkisim.memory.storage import Storage
    from nkisim.tensors.layout import Layout

_MOST_RUNS = 16


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

    def minus(self, other: Box) -> list[Box]:
        """The bytes of this box that are not in `other`, as boxes that share none."""
        if not self.meets(other):
            return [self]
        first, end = max(self.first, other.first), min(self.end, other.end)
        parts = [
            Box(self.first, first, self.low, self.high),
            Box(end, self.end, self.low, self.high),
            Box(first, end, self.low, other.low),
            Box(first, end, other.high, self.high),
        ]
        return [part for part in parts if part.first < part.end and part.low < part.high]


def box_of(storage: Storage) -> Box:
    """All bytes of a manually placed tensor."""
    place = storage.allocation
    low = place.address_bytes or 0
    end = place.start_partition + place.partitions
    return Box(place.start_partition, end, low, low + place.bytes_per_partition)


def boxes_of_view(whole: Box, layout: Layout, offset: int) -> list[Box]:
    """The bytes of a view of a tensor placed at `whole`.

    A view of more runs than `_MOST_RUNS` counts as one box around it: exact lists would grow with
    every strided write, for the sake of tensors that are interleaved element by element.
    """
    row, start = divmod(offset * layout.itemsize_bytes, whole.high - whole.low)
    first, low = whole.first + row, whole.low + start
    end = first + layout.partitions
    return [Box(first, end, low + begin, low + stop) for begin, stop in _runs(layout)]


@functools.cache
def _runs(layout: Layout) -> list[tuple[int, int]]:
    """[first, end) bytes of the runs of a view inside a partition, from its own first byte."""
    free, size = [pair for pair in layout.free if pair[0]], layout.itemsize_bytes
    length = size
    if free and free[-1][0] == 1:
        length *= free.pop()[1]
    if math.prod([count for _, count in free]) > _MOST_RUNS:
        return [(layout.low * size, (layout.high + 1) * size)]
    starts = [0]
    for stride, count in free:
        starts = [at + stride * size * i for at in starts for i in range(count)]
    return [(at, at + length) for at in starts]


class Neighbours:
    """The tensors placed over one storage, and the parts of it they have overwritten."""

    __slots__ = ("_others", "_stale", "_whole")

    def __init__(self, whole: Box) -> None:
        self._whole = whole
        self._others: list[weakref.ref[Storage]] = []
        self._stale: list[tuple[Box, str]] = []

    def add(self, other: Storage) -> None:
        """`other` shares bytes with this storage."""
        self._others = [known for known in self._others if known() is not None]
        self._others.append(weakref.ref(other))

    def note_write(self, storage: Storage, layout: Layout, offset: int) -> None:
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
            if box.meets(self._whole) and (box, by) not in self._stale:
                self._forget([box])
                self._stale.append((box, by))

    def _forget(self, boxes: list[Box]) -> None:
        for box in boxes:
            self._stale = [(part, by) for stale, by in self._stale for part in stale.minus(box)]

    def check_read(self, storage: Storage, layout: Layout, offset: int) -> None:
        """Refuse to read bytes that another tensor wrote last."""
        if not self._stale:
            return
        for box in boxes_of_view(self._whole, layout, offset):
            for stale, by in self._stale:
                if box.meets(stale):
                    _refuse_stale(storage, stale, by)


def _refuse_stale(storage: Storage, stale: Box, by: str) -> None:
    raise AliasError(
        f"read of tensor {storage.allocation.name!r} after tensor {by!r}, placed over it, was"
        " written",
        limit=f"partitions {stale.first}..{stale.end - 1}, bytes {stale.low}..{stale.high - 1}"
        f" belong to {by!r} now",
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
                one.neighbours = Neighbours(box_of(one))
            one.neighbours.add(two)

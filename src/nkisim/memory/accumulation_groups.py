"""Accumulation groups of one PSUM tensor: which ranges matmuls add up in, and which were read."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from nkisim.memory.layout import Layout


class AccumulationGroup:
    """A view that a matmul overwrote, and that others may have added to since."""

    __slots__ = ("added", "layout", "offset", "read")

    def __init__(self, layout: Layout, offset: int) -> None:
        self.layout = layout
        self.offset = offset
        self.added = False
        self.read = False  # something has taken the sums out

    def same(self, layout: Layout, offset: int) -> bool:
        """Whether this is the group of exactly that view."""
        return self.layout is layout and self.offset == offset


class AccumulationGroups:
    """The groups that one PSUM tensor of `row_bytes` a partition holds now."""

    __slots__ = ("_groups", "_row_bytes")

    def __init__(self, row_bytes: int) -> None:
        self._row_bytes = row_bytes
        self._groups: list[AccumulationGroup] = []

    def begin(self, layout: Layout, offset: int) -> None:
        """A matmul overwrote the view: what was in its place has ended."""
        if len(self._groups) != 1 or not self._groups[0].same(layout, offset):
            self.end(layout, offset)
            self._groups.append(AccumulationGroup(layout, offset))
            return
        self._groups[0] = AccumulationGroup(layout, offset)

    def end(self, layout: Layout, offset: int) -> None:
        """Something else wrote the view."""
        self._groups = [group for group in self._groups if not self._meets(group, layout, offset)]

    def add(self, layout: Layout, offset: int) -> AccumulationGroup:
        """A matmul added to the view: the group it went on with."""
        if len(self._groups) == 1:
            (only,) = self._groups
            if only.layout is layout and only.offset == offset:  # as nearly always
                only.added = True
                return only
        met = [group for group in self._groups if self._meets(group, layout, offset)]
        if not met:
            met = [AccumulationGroup(layout, offset)]
            self._groups += met
        for group in met:
            group.added = True
        return next((group for group in met if group.read), met[0])

    def note_read(self, layout: Layout, offset: int) -> None:
        """Something read the view."""
        for group in self._groups:
            if not group.read and self._meets(group, layout, offset):
                group.read = True

    @property
    def several(self) -> bool:
        """Whether there is more than one group."""
        return len(self._groups) > 1

    def beside(self, group: AccumulationGroup) -> tuple[bool, bool]:
        """Whether another group was added to in other columns; in other partitions."""
        columns = partitions = False
        rows = self._rows(group.layout, group.offset)
        for other in self._groups:
            if other is not group and other.added:
                across = _meet(rows, self._rows(other.layout, other.offset))
                columns, partitions = columns or across, partitions or not across
        return columns, partitions

    def _rows(self, layout: Layout, offset: int) -> tuple[int, int]:
        first = offset * layout.itemsize_bytes // self._row_bytes
        return first, first + layout.partitions

    def _meets(self, group: AccumulationGroup, layout: Layout, offset: int) -> bool:
        if group.same(layout, offset):
            return True
        mine, theirs = self._rows(group.layout, group.offset), self._rows(layout, offset)
        if not _meet(mine, theirs):
            return False
        places = (
            (group.layout, group.offset * group.layout.itemsize_bytes % self._row_bytes),
            (layout, offset * layout.itemsize_bytes % self._row_bytes),
        )
        return _share_bytes(*places)


def _meet(first: tuple[int, int], second: tuple[int, int]) -> bool:
    return first[0] < second[1] and second[0] < first[1]


@functools.lru_cache(maxsize=4096)
def _share_bytes(first: tuple[Layout, int], second: tuple[Layout, int]) -> bool:
    """Whether two views have a byte of a partition in common; each with its first byte there."""
    spans = [
        (at + layout.low * layout.itemsize_bytes, at + (layout.high + 1) * layout.itemsize_bytes)
        for layout, at in (first, second)
    ]
    if not _meet(*spans):
        return False
    if all(layout.contiguous for layout, _ in (first, second)):
        return True
    return bool(np.intersect1d(_bytes(*first), _bytes(*second)).size)


def _bytes(layout: Layout, first: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The bytes of a partition that a view touches."""
    places = np.zeros(1, np.int64)
    for stride, count in layout.free:
        places = np.add.outer(places, stride * np.arange(count)).reshape(-1)
    size = layout.itemsize_bytes
    return np.add.outer(first + places * size, np.arange(size)).reshape(-1)

"""Which bytes a view covers: its runs, whether two views meet, whether one meets itself."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from nkisim.memory.layout import Layout

Ints = np.ndarray[Any, np.dtype[np.int64]]
Steps = tuple[tuple[int, int], ...]  # (bytes, count)

_REMEMBERED = 4096  # layouts, and pairs of layouts


class Runs(NamedTuple):
    """Sorted runs of bytes that neither meet nor touch each other: [starts[i], ends[i])."""

    starts: Ints
    ends: Ints

    def moved(self, by: int) -> Runs:
        """The same runs, `by` bytes further on."""
        return Runs(self.starts + by, self.ends + by)

    def meets(self, other: Runs) -> bool:
        """Whether a byte is in both."""
        if not self.starts.size or not other.starts.size:
            return False
        if self.starts[0] >= other.ends[-1] or other.starts[0] >= self.ends[-1]:
            return False
        few, many = (self, other) if len(self.starts) <= len(other.starts) else (other, self)
        candidate = np.searchsorted(many.ends, few.starts, side="right")
        inside = candidate < len(many.ends)
        return bool((many.starts[candidate[inside]] < few.ends[inside]).any())

    def minus(self, other: Runs) -> Runs:
        """The bytes of this that are not in `other`; may be no run at all."""
        edges = np.unique(np.concatenate((*self, *other)))
        low, high = edges[:-1], edges[1:]
        kept = self.holds(low) & ~other.holds(low)
        return joined(low[kept], high[kept])

    def holds(self, positions: Ints) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """For every position whether it is in a run."""
        run = np.searchsorted(self.starts, positions, side="right") - 1
        held: np.ndarray[Any, np.dtype[np.bool_]] = (run >= 0) & (positions < self.ends[run])
        return held

    @property
    def size_bytes(self) -> int:
        """Bytes of all runs."""
        return int((self.ends - self.starts).sum())


def joined(starts: Ints, ends: Ints) -> Runs:
    """Any runs as sorted ones, those that meet or touch made one."""
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    first = np.ones(len(starts), np.bool_)
    first[1:] = starts[1:] > ends[:-1]
    last = np.append(first[1:], True)[: len(first)]
    return Runs(starts[first], ends[last])


@functools.lru_cache(maxsize=_REMEMBERED)
def runs_of(layout: Layout, step: int = 0, trips: int = 1) -> Runs:
    """The runs of a view inside one partition (HBM: of all of it), from its own first byte.

    With `trips` the view is met again and again, `step` elements further each time.
    """
    size = layout.itemsize_bytes
    steps = tuple((s * size, n) for s, n in (*layout.free, (step, trips)) if n > 1)
    return _runs(steps, size)


def _runs(steps: Steps, length: int) -> Runs:
    first = 0
    starts: Ints = np.zeros(1, np.int64)
    for step, count in sorted(steps, key=lambda pair: abs(pair[0])):
        first += min(step, 0) * (count - 1)
        if len(starts) == 1 and abs(step) <= length:
            length += abs(step) * (count - 1)
        else:
            starts = (starts[:, None] + abs(step) * np.arange(count, dtype=np.int64)).ravel()
    return joined(starts + first, starts + first + length)


@functools.lru_cache(maxsize=_REMEMBERED)
def repeats_elements(layout: Layout, *, but_for_strides_of_0: bool = False) -> bool:
    """Whether some element of one partition stands in the view more than once."""
    steps = [pair for pair in layout.free if pair[0] or not but_for_strides_of_0]
    span, elems = 1, 1
    apart = True  # every stride is longer than all that lies inside of it
    for stride, count in sorted(steps, key=lambda pair: abs(pair[0])):
        apart = apart and abs(stride) >= span
        span += abs(stride) * (count - 1)
        elems *= count
    return not apart and runs_of(layout).size_bytes < elems * layout.itemsize_bytes


class View(NamedTuple):
    """A layout at a place: its first partition (HBM: 0), and its first byte in there."""

    layout: Layout
    partition: int
    byte: int


def view_at(layout: Layout, offset: int, row_bytes: int) -> View:
    """A view `offset` elements into a storage whose partitions hold `row_bytes` (HBM: one row)."""
    start = offset * layout.itemsize_bytes
    return View(layout, *divmod(start, row_bytes)) if layout.on_chip else View(layout, 0, start)


def views_meet(first: View, second: View) -> bool:
    """Whether two views of one memory have a byte in common."""
    if first.partition >= second.partition + second.layout.partitions:
        return False
    if second.partition >= first.partition + first.layout.partitions:
        return False
    return _meet(first.layout, second.layout, second.byte - first.byte)


@functools.lru_cache(maxsize=_REMEMBERED)
def _meet(first: Layout, second: Layout, by: int) -> bool:
    return runs_of(first).meets(runs_of(second).moved(by))


def same_elements_in_order(first: View, second: View) -> bool:
    """Whether element i of one view is element i of the other."""
    a, b = first.layout, second.layout
    if (first.partition, first.byte) != (second.partition, second.byte):
        return False
    same_items = a.itemsize_bytes == b.itemsize_bytes and a.partitions == b.partitions
    return a is b or (same_items and a.free == b.free)

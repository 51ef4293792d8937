"""Boxes: which rows and bytes an access touches, so that two accesses can be told to overlap.

On chip a row is a partition. In HBM a row is one step of the tensor's outermost stride, so that
column blocks of a matrix do not seem to overlap. Strided patterns are taken by their bounding box:
a box may claim more than is touched, never less.
"""

from __future__ import annotations

from typing import NamedTuple

from nkisim.trace import Access


class Box(NamedTuple):
    """Rows [row, row_end) times bytes [byte, byte_end) of each."""

    row: int
    row_end: int
    byte: int
    byte_end: int


def overlap(one: Box, two: Box) -> bool:
    """Whether two boxes share a byte."""
    return one[2] < two[3] and two[2] < one[3] and one[0] < two[1] and two[0] < one[1]


def covers(outer: Box, inner: Box) -> bool:
    """Whether the first box holds the second one."""
    return (
        outer[0] <= inner[0]
        and inner[1] <= outer[1]
        and outer[2] <= inner[2]
        and inner[3] <= outer[3]
    )


def on_chip_box(access: Access, shift: int) -> Box:
    """Partitions and bytes of an SBUF or PSUM access, absolute for manual placement."""
    allocation, layout = access.allocation, access.layout
    size = layout.itemsize_bytes
    pitch = allocation.bytes_per_partition // size
    row, start = divmod(access.offset + shift, pitch)
    first = allocation.start_partition + row
    base = allocation.address_bytes or 0
    return Box(
        first,
        first + layout.partitions,
        base + (start + layout.low) * size,
        base + (start + layout.high + 1) * size,
    )


def outer_pitch_bytes(access: Access) -> int:
    """The outermost stride of an HBM access, or the size of what it touches in one run."""
    layout = access.layout
    if len(layout.free) > 1 and layout.free[0][0] > 0:
        return layout.free[0][0] * layout.itemsize_bytes
    return max(1, (layout.high - layout.low + 1) * layout.itemsize_bytes)


def hbm_box(access: Access, shift: int, pitch: int) -> Box:
    """Rows of `pitch` bytes and bytes within them."""
    layout = access.layout
    size = layout.itemsize_bytes
    low = (access.offset + shift + layout.low) * size
    high = (access.offset + shift + layout.high + 1) * size
    row, column = divmod(low, pitch)
    last = (high - 1) // pitch
    if last == row:
        return Box(row, row + 1, column, high - row * pitch)
    if layout.free and layout.free[0][0] * size % pitch == 0:
        stride, count = layout.free[0]
        inner = high - low - abs(stride) * (count - 1) * size
        if column + inner <= pitch:
            return Box(row, last + 1, column, column + inner)
    return Box(row, last + 1, 0, pitch)

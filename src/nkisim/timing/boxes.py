"""Boxes: which rows and bytes an access touches, so that two accesses can be told to overlap.

A box is (row, row_end, byte, byte_end): rows [row, row_end) times bytes [byte, byte_end) of each.
On chip a row is a partition. In HBM a row is one step of the tensor's outermost stride, so that
column blocks of a matrix do not seem to overlap. Strided patterns are taken by their bounding box:
a box may claim more than is touched, never less.
"""

from __future__ import annotations

from nkisim.trace import Access

Box = tuple[int, int, int, int]


def overlap(first: Box, second: Box) -> bool:
    """Whether two boxes share a byte."""
    return (
        first[2] < second[3]
        and second[2] < first[3]
        and first[0] < second[1]
        and second[0] < first[1]
    )


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
    row, start = divmod((access.offset + shift) * size, allocation.bytes_per_partition)
    row += allocation.start_partition
    if allocation.address_bytes is not None:
        start += allocation.address_bytes
    return (
        row,
        row + layout.partitions,
        start + layout.low * size,
        start + (layout.high + 1) * size,
    )


def outer_pitch_bytes(access: Access) -> int:
    """The outermost stride of an HBM access, or the size of what it touches in one run."""
    layout = access.layout
    if len(layout.free) > 1 and layout.free[0][0] > 0:
        return layout.free[0][0] * layout.itemsize_bytes
    return (layout.high - layout.low + 1) * layout.itemsize_bytes


def hbm_box(access: Access, shift: int, pitch: int) -> Box:
    """Rows of `pitch` bytes and bytes within them."""
    layout = access.layout
    size = layout.itemsize_bytes
    low = (access.offset + shift + layout.low) * size
    high = (access.offset + shift + layout.high + 1) * size
    row, column = divmod(low, pitch)
    last = (high - 1) // pitch
    if last == row:
        return (row, row + 1, column, high - row * pitch)
    if layout.free and layout.free[0][0] * size % pitch == 0:
        stride, count = layout.free[0]
        inner = high - low - abs(stride) * (count - 1) * size
        if column + inner <= pitch:
            return (row, last + 1, column, column + inner)
    return (row, last + 1, 0, pitch)


def whole_box(access: Access, pitch: int) -> Box:
    """All of the tensor an access belongs to; `pitch` as for `hbm_box`."""
    allocation = access.allocation
    size = allocation.bytes_per_partition
    if not access.layout.on_chip:
        return (0, -(-size // pitch), 0, pitch)
    first, base = allocation.start_partition, allocation.address_bytes or 0
    return (first, first + allocation.partitions, base, base + size)

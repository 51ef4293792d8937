"""Which elements of a tensor an access touches, and in which order, as runs on a grid.

The grid is the tensor as a picture shows it: on chip a row per partition, in HBM a row per line of
the last dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product
from math import prod
from typing import Final, NamedTuple

from nkisim.numerics import dtypes
from nkisim.trace import Access

MOST_RUNS: Final = 20_000  # more are too many to draw


class Grid(NamedTuple):
    """Rows and columns of a tensor, in elements of the type it is accessed with."""

    rows: int
    columns: int


class ElementRun(NamedTuple):
    """Elements side by side: row, first column, how many, and the order of the first of them.

    Partitions work side by side, so on chip the order is that of one partition.
    """

    row: int
    column: int
    elems: int
    order: int  # counted in elements, from 0


def grid_of(access: Access) -> Grid:
    """The whole tensor behind an access."""
    allocation, layout = access.allocation, access.layout
    size = layout.itemsize_bytes
    if layout.on_chip:
        return Grid(allocation.partitions, max(1, allocation.bytes_per_partition // size))
    total = max(1, allocation.bytes_per_partition // size)
    if not allocation.shape or len(allocation.shape) == 1:
        return Grid(1, total)
    stored = dtypes.itemsize_bytes(allocation.dtype)
    columns = max(1, allocation.shape[-1] * stored // size)
    return Grid(max(1, total // columns), columns)


def length_of(access: Access) -> int:
    """How many elements an access goes through one after the other, repeats included."""
    return prod(access.layout.shape[1:] if access.layout.on_chip else access.layout.shape)


def runs_of(access: Access) -> list[ElementRun]:
    """The runs of an access in the order of its pattern, at most MOST_RUNS of them."""
    grid, layout = grid_of(access), access.layout
    pitch = access.allocation.bytes_per_partition // layout.itemsize_bytes
    stride, count = (layout.strides[-1], layout.shape[-1]) if layout.shape else (1, 1)
    inner, repeats = (count, 1) if stride == 1 else (1, count)
    outer = list(zip(layout.shape[:-1], layout.strides[:-1], strict=True))
    if repeats > 1 or inner == 1:
        outer.append((repeats, stride))
    found: list[ElementRun] = []
    length = length_of(access)
    for order, start in enumerate(islice(_starts(outer, access.offset), MOST_RUNS)):
        if layout.on_chip:
            partition, column = divmod(start, pitch)
            found.append(ElementRun(partition, column, inner, order * inner % length))
        else:
            found.extend(_split(start, inner, order * inner, grid.columns))
    return found


def _starts(outer: list[tuple[int, int]], offset: int) -> Iterator[int]:
    """Offsets of the runs, the last dimension running fastest."""
    for indices in product(*(range(size) for size, _ in outer)):
        steps = zip(indices, outer, strict=True)
        yield offset + sum(index * stride for index, (_, stride) in steps)


def _split(start: int, count: int, order: int, columns: int) -> Iterator[ElementRun]:
    """A run of HBM, cut where the lines of the last dimension end."""
    while count > 0:
        row, column = divmod(start, columns)
        part = min(count, columns - column)
        yield ElementRun(row, column, part, order)
        start, count, order = start + part, count - part, order + part

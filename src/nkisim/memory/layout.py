"""Layout: shape, strides and type of a view, without its place. Equal layouts are one object."""

from __future__ import annotations

from enum import Enum

from nkisim.numerics import dtypes


class MemoryRegion(Enum):
    """Where a tensor lives (`nl.sbuf`, `nl.psum`, `nl.private_hbm` = `nl.hbm`, `nl.shared_hbm`)."""

    sbuf = "sbuf"
    psum = "psum"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"

    __hash__ = object.__hash__  # members are singletons; Enum's own hash runs in Python


ON_CHIP = (MemoryRegion.sbuf, MemoryRegion.psum)
HBM = (MemoryRegion.private_hbm, MemoryRegion.shared_hbm)


class Layout:
    """An interned (region, dtype, shape, strides); strides and spans count elements.

    On chip, dimension 0 runs over partitions and `free` is the pattern inside one partition; in
    HBM everything is `free`. `low` and `high` bound the element offsets the free pattern reaches.
    """

    __slots__ = (
        "dtype",
        "elems",
        "free",
        "held_strides_bytes",
        "high",
        "itemsize_bytes",
        "low",
        "on_chip",
        "partition_stride",
        "partitions",
        "region",
        "shape",
        "strides",
    )

    def __init__(
        self,
        region: MemoryRegion,
        dtype: str,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
    ) -> None:
        self.region = region
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.itemsize_bytes = dtypes.itemsize_bytes(dtype)
        held_bytes = dtypes.held_dtype(dtype).itemsize
        self.held_strides_bytes = tuple(stride * held_bytes for stride in strides)
        self.on_chip = region in ON_CHIP
        first_free = 1 if self.on_chip else 0
        self.partitions = shape[0] if self.on_chip else 1
        self.partition_stride = strides[0] if self.on_chip else 0
        self.free = coalesce(shape[first_free:], strides[first_free:])
        self.elems = 1
        self.low = self.high = 0
        for stride, count in self.free:
            self.elems *= count
            self.high += max(stride, 0) * (count - 1)
            self.low += min(stride, 0) * (count - 1)

    @property
    def contiguous(self) -> bool:
        """Whether the elements of one partition (of the whole view in HBM) are one run."""
        return not self.free or (len(self.free) == 1 and self.free[0][0] == 1)

    def __repr__(self) -> str:
        pattern = ",".join(f"[{stride},{count}]" for stride, count in self.free)
        return f"Layout({self.region.value} {self.dtype} {self.shape} free={pattern or '[]'})"


def coalesce(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """The fewest (stride, count) pairs, outermost first, that enumerate the same addresses."""
    merged: list[tuple[int, int]] = []
    for count, stride in zip(shape, strides, strict=True):
        if count == 1:
            continue
        if merged and merged[-1][0] == stride * count:
            merged[-1] = (stride, merged[-1][1] * count)
        else:
            merged.append((stride, count))
    return tuple(merged)


_interned: dict[tuple[MemoryRegion, str, tuple[int, ...], tuple[int, ...]], Layout] = {}


def layout_of(
    region: MemoryRegion, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]
) -> Layout:
    """The one Layout with these fields."""
    key = (region, dtype, shape, strides)
    found = _interned.get(key)
    if found is None:
        found = _interned[key] = Layout(region, dtype, shape, strides)
    return found

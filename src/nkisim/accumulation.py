"""Which elements of a PSUM tensor a matmul has written: first write overwrites, later ones add.

The rule holds per element, because matmuls may write overlapping sub-rectangles of one tile. To
stay cheap the state is a set of whole views while it can be; a mask appears when a view arrives
that was not written as such, and one row of it serves while all views use the same partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from nkisim.layout import Layout

Mask = np.ndarray[Any, np.dtype[np.bool_]]


class Accumulation:
    """Per-element matmul history of one PSUM allocation of `partitions` x `free_elems`."""

    __slots__ = ("_band", "_covered", "_free_elems", "_mask", "_partitions", "foreign_writes")

    def __init__(self, partitions: int, free_elems: int) -> None:
        self._partitions = partitions
        self._free_elems = free_elems
        self._covered: set[tuple[Layout, int]] = set()  # views written completely
        self._band: tuple[int, int] | None = None  # (start, count) the one-row mask stands for
        self._mask: Mask | None = None  # [1, free] while there is a band, else [partitions, free]
        self.foreign_writes = False  # something other than a matmul has written here

    def written(self, layout: Layout, offset: int) -> Mask | bool:
        """True/False when all/none of the view is matmul-written, else a mask for its shape."""
        if (layout, offset) in self._covered:
            return True
        if not self._covered and self._mask is None:
            return False
        picked = self._view(layout, offset)
        if picked.all():
            return True
        return picked.copy() if picked.any() else False

    def mark(self, layout: Layout, offset: int) -> None:
        """A matmul wrote the view."""
        key = (layout, offset)
        if key in self._covered:
            return
        if self._covered or self._mask is not None:
            self._view(layout, offset)[...] = True
        self._covered.add(key)

    def clear(self, layout: Layout, offset: int) -> None:
        """Something other than a matmul wrote the view: its history starts again."""
        self.foreign_writes = True
        if not self._covered and self._mask is None:
            return
        self._view(layout, offset)[...] = False
        self._covered.clear()

    def _view(self, layout: Layout, offset: int) -> Mask:
        """The part of the mask that belongs to a view, after making the mask fit for it."""
        band = (offset // self._free_elems, layout.partitions)
        if self._mask is None:
            self._start_mask(band)
        elif self._band is not None and self._band != band:
            self._widen_mask(self._band)
        return self._pick(layout, offset)

    def _pick(self, layout: Layout, offset: int) -> Mask:
        mask = self._mask
        assert mask is not None, "callers make the mask first"
        if self._band is None:
            return np.ndarray(layout.shape, mask.dtype, mask, offset, layout.strides)
        shape, strides = (1, *layout.shape[1:]), (0, *layout.strides[1:])
        return np.ndarray(shape, mask.dtype, mask, offset % self._free_elems, strides)

    def _start_mask(self, band: tuple[int, int]) -> None:
        bands = {(offset // self._free_elems, known.partitions) for known, offset in self._covered}
        self._band = band if bands <= {band} else None
        rows = self._partitions if self._band is None else 1
        self._mask = np.zeros((rows, self._free_elems), np.bool_)
        for known, offset in self._covered:
            self._pick(known, offset)[...] = True

    def _widen_mask(self, band: tuple[int, int]) -> None:
        row = self._mask
        self._mask = np.zeros((self._partitions, self._free_elems), np.bool_)
        self._mask[band[0] : band[0] + band[1]] = row
        self._band = None

"""Which elements of a PSUM tensor a matmul has written: first write overwrites, later ones add.

The rule holds per element, because matmuls may write overlapping sub-rectangles of one tile. To
stay cheap the state is a set of whole views while it can be; a mask appears when a view arrives
that was not written as such, and one row of it serves while all views use the same partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nkisim.memory.accumulation_groups import AccumulationGroups

if TYPE_CHECKING:
    from nkisim.memory.layout import Layout

Mask = np.ndarray[Any, np.dtype[np.bool_]]
Band = tuple[int, int]


class Accumulation:
    """Per-element matmul history of one PSUM allocation of `partitions` x `free_elems`.

    The mask has a cell for every `_cell_bytes` of a partition: for an element of the tensor, or of
    the smallest type it was looked at with.
    """

    __slots__ = (
        "_band",
        "_cell_bytes",
        "_covered",
        "_mask",
        "_partitions",
        "_row_bytes",
        "foreign_writes",
        "groups",
    )

    def __init__(self, partitions: int, free_elems: int, itemsize_bytes: int) -> None:
        self._partitions = partitions
        self._row_bytes = free_elems * itemsize_bytes
        self._cell_bytes = itemsize_bytes
        self._covered: set[tuple[Layout, int]] = set()  # views written completely
        self._band: Band | None = None  # (start, count) the one-row mask stands for
        self._mask: Mask | None = None  # [1, cells] while there is a band, else [partitions, cells]
        self.groups = AccumulationGroups(self._row_bytes)
        self.foreign_writes = False  # something other than a matmul has written here

    def written(self, layout: Layout, offset: int) -> Mask | bool:
        """True/False when all/none of the view is matmul-written, else a mask for its shape."""
        if (layout, offset) in self._covered:
            return True
        if not self._covered and self._mask is None:
            return False
        picked = self._view(layout, offset)
        if picked.ndim > len(layout.shape):
            picked = np.asarray(picked.all(axis=-1))
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
        self.groups.end(layout, offset)
        if not self._covered and self._mask is None:
            return
        self._view(layout, offset)[...] = False
        self._covered.clear()

    def _view(self, layout: Layout, offset: int) -> Mask:
        """The part of the mask that belongs to a view, after making the mask fit for it."""
        band = self._band_of(layout, offset)
        if self._mask is None:
            self._start_mask(band)
        elif self._band is not None and self._band != band:
            self._widen_mask(self._band)
        if layout.itemsize_bytes < self._cell_bytes:
            self._refine_mask(layout.itemsize_bytes)
        return self._pick(layout, offset)

    def _band_of(self, layout: Layout, offset: int) -> Band:
        return offset * layout.itemsize_bytes // self._row_bytes, layout.partitions

    def _pick(self, layout: Layout, offset: int) -> Mask:
        """The cells of a view; elements of several cells have them along a last axis."""
        mask = self._mask
        assert mask is not None, "callers make the mask first"
        cells = layout.itemsize_bytes // self._cell_bytes
        shape, strides, start = layout.shape, layout.strides, offset * cells
        if self._band is not None:
            shape, strides = (1, *shape[1:]), (0, *strides[1:])
            start %= self._row_bytes // self._cell_bytes
        if cells > 1:
            shape, strides = (*shape, cells), (*[stride * cells for stride in strides], 1)
        return np.ndarray(shape, mask.dtype, mask, start, strides)

    def _start_mask(self, band: Band) -> None:
        for known, _ in self._covered:
            self._cell_bytes = min(self._cell_bytes, known.itemsize_bytes)
        bands = {self._band_of(known, offset) for known, offset in self._covered}
        self._band = band if bands <= {band} else None
        rows = self._partitions if self._band is None else 1
        self._mask = np.zeros((rows, self._row_bytes // self._cell_bytes), np.bool_)
        for known, offset in self._covered:
            self._pick(known, offset)[...] = True

    def _widen_mask(self, band: Band) -> None:
        row = self._mask
        self._mask = np.zeros((self._partitions, self._row_bytes // self._cell_bytes), np.bool_)
        self._mask[band[0] : band[0] + band[1]] = row
        self._band = None

    def _refine_mask(self, cell_bytes: int) -> None:
        assert self._mask is not None, "callers make the mask first"
        self._mask = np.repeat(self._mask, self._cell_bytes // cell_bytes, axis=1)
        self._cell_bytes = cell_bytes

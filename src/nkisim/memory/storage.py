"""Storage: the bytes behind tensors, as NumPy arrays of already rounded values.

Floats of every width are held as float32 whose values are exact in the tensor's type, so that a
matmul is one BLAS call and rounding happens at writes only. A storage that is looked at through
another type is turned, once, into plain bytes. A shape-only storage holds nothing at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nkisim.errors import UnsupportedError
from nkisim.memory.layout import ON_CHIP
from nkisim.numerics import dtypes

if TYPE_CHECKING:
    from nkisim.memory.accumulation import Accumulation
    from nkisim.memory.aliasing import Neighbours
    from nkisim.memory.allocation import Allocation
    from nkisim.memory.layout import Layout

Array = np.ndarray[Any, Any]


class Storage:
    """Data of one allocation. `free_elems` is the pitch between partitions (HBM: everything)."""

    __slots__ = (
        "__weakref__",
        "accumulation",
        "allocation",
        "data",
        "dtype",
        "free_elems",
        "given",
        "iteration",
        "neighbours",
        "precise",
        "raw",
        "shape",
        "size",
        "written",
    )

    def __init__(
        self,
        allocation: Allocation,
        shape: tuple[int, ...],
        dtype: str,
        *,
        with_values: bool,
        precise: bool = True,
    ) -> None:
        self.allocation = allocation
        self.shape = allocation.shape = shape
        self.dtype = allocation.dtype = dtype
        self.precise = precise
        self.size = int(np.prod(shape, dtype=np.int64))
        on_chip = allocation.region in ON_CHIP
        self.free_elems = self.size // shape[0] if on_chip else self.size
        self.written = False  # by an instruction; tells which kernel arguments were changed
        self.given = False  # it holds an argument or a constant, not what a fresh tensor does
        self.iteration: object | None = None  # of a dynamic loop, that allocated it and ends it
        self.data: Array | None = None
        self.raw: Array | None = None
        self.accumulation: Accumulation | None = None
        self.neighbours: Neighbours | None = None
        if with_values:
            self.data = np.full(self.size, dtypes.poison(dtype), dtypes.held_dtype(dtype))

    def size_in(self, dtype: str) -> int:
        """Elements of `dtype` that the whole tensor holds."""
        if dtype == self.dtype:
            return self.size
        return self.size * dtypes.itemsize_bytes(self.dtype) // dtypes.itemsize_bytes(dtype)

    def adopt(self, held: Array) -> None:
        """Take over a flat held array instead of poison (kernel arguments)."""
        self.data = held

    def read(self, layout: Layout, offset: int) -> Array:
        """The elements of a view as held values, in the view's shape; may share memory."""
        if layout.dtype == self.dtype and self.raw is None:
            return self._held_view(layout, offset)
        return dtypes.from_bits(self._bits_view(layout, offset), layout.dtype)

    def write(self, layout: Layout, offset: int, held: Array) -> None:
        """Set the elements of a view to held values of the same element count."""
        values = held.reshape(layout.shape)
        if layout.dtype == self.dtype and self.raw is None:
            self._held_view(layout, offset)[...] = values
        else:
            self._bits_view(layout, offset)[...] = dtypes.bits_of(values, layout.dtype)

    def host_array(self) -> Array:
        """The contents in the native dtype and the allocated shape; may share memory."""
        if self.raw is None:
            held = self._values()
        else:
            held = dtypes.from_bits(self.raw.view(_bits_dtype(self.dtype)), self.dtype)
        return dtypes.to_host(held, self.dtype).reshape(self.shape)

    @property
    def has_values(self) -> bool:
        """Whether there is data: not in shape-only runs."""
        return self.data is not None or self.raw is not None

    def host_bytes(self) -> Array:
        """A copy of the contents, byte by byte."""
        return self.host_array().reshape(-1).copy().view(np.uint8)

    def _values(self) -> Array:
        if self.data is None:
            raise UnsupportedError(
                f"tensor {self.allocation.name!r} has no values",
                limit="shape-only runs compute no data",
                remedy="run with values=True",
            )
        return self.data

    def _held_view(self, layout: Layout, offset: int) -> Array:
        data = self._values()
        return np.ndarray(
            layout.shape, data.dtype, data, offset * data.itemsize, layout.held_strides_bytes
        )

    def _bits_view(self, layout: Layout, offset: int) -> Array:
        if self.raw is None:
            self.raw = self._to_bytes()
            self.data = None
        bits = _bits_dtype(layout.dtype)
        strides = tuple(stride * bits.itemsize for stride in layout.strides)
        return np.ndarray(layout.shape, bits, self.raw, offset * bits.itemsize, strides)

    def _to_bytes(self) -> Array:
        bits = np.ascontiguousarray(dtypes.bits_of(self._values(), self.dtype))
        return bits.view(np.uint8).copy()


def _bits_dtype(dtype: str) -> np.dtype[Any]:
    return np.dtype(f"uint{8 * dtypes.itemsize_bytes(dtype)}")

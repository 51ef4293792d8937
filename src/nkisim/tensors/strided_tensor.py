"""StridedTensor: a strided view of a storage, and the views of it that strides alone describe."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from nkisim.errors import refuse
from nkisim.memory.layout import ON_CHIP, Layout, MemoryRegion, layout_of
from nkisim.numerics import dtypes
from nkisim.tensors import reshape
from nkisim.tensors.arithmetic import TensorOperators
from nkisim.tensors.registers import NKIObject
from nkisim.tensors.reshape import Dims, Shape, row_major_strides

if TYPE_CHECKING:
    from typing_extensions import Self

    from nkisim.memory.storage import Storage

_new = object.__new__


class StridedTensor(TensorOperators, NKIObject):
    """Element (i0, i1, ...) is storage element `offset + sum(strides[k] * ik)`.

    `shape` and `strides` are tuples of element counts. Views share storage; nothing here copies.
    `indirection` is the run-time offset that takes part in the address, if one does.
    """

    __slots__ = ("_layout", "dtype", "indirection", "offset", "shape", "storage", "strides")

    def __init__(
        self,
        shape: Shape,
        dtype: str,
        storage: Storage,
        buffer: MemoryRegion = MemoryRegion.sbuf,
        name: str = "",
    ) -> None:
        if buffer is not storage.allocation.region or (name and name != storage.allocation.name):
            refuse(
                "NkiTensor",
                f"buffer {buffer} and name {name!r} for storage {storage.allocation}",
                "a tensor lives where its storage lives",
                "create tensors with nl.ndarray",
            )
        self.storage = storage
        self.shape = tuple(shape)
        self.strides = row_major_strides(self.shape)
        self.offset = 0
        self.dtype = dtype
        self.indirection: Any = None
        self._layout: Layout | None = None
        if self.shape != storage.shape or dtype != storage.dtype:
            self._require_same_bytes()

    @property
    def buffer(self) -> MemoryRegion:
        """The memory region the tensor lives in."""
        return self.storage.allocation.region

    @property
    def name(self) -> str:
        """The allocation's name."""
        return self.storage.allocation.name

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def layout(self) -> Layout:
        """The interned layout of this view."""
        layout = self._layout
        if layout is None:
            region = self.storage.allocation.region
            layout = self._layout = layout_of(region, self.dtype, self.shape, self.strides)
        return layout

    @property
    def pitch_elems(self) -> int:
        """Elements from one partition to the next, in units of this view's dtype."""
        storage = self.storage
        if storage.dtype == self.dtype:
            return storage.free_elems
        row_bytes = storage.free_elems * dtypes.itemsize_bytes(storage.dtype)
        return row_bytes // dtypes.itemsize_bytes(self.dtype)

    @property
    def start_partition(self) -> int:
        """Physical partition of the first row of an on-chip view."""
        return self.storage.allocation.start_partition + self.offset // self.pitch_elems

    def __repr__(self) -> str:
        return f"NkiTensor({self.name!r} {self.buffer.value} {self.dtype} {self.shape})"

    def is_contiguous(self) -> bool:
        """Row-major without gaps; on chip the partition dimension does not count."""
        first = 1 if self._on_chip() else 0
        expected = 1
        for dim in range(self.ndim - 1, first - 1, -1):
            if self.shape[dim] != 1 and self.strides[dim] != expected:
                return False
            expected *= self.shape[dim]
        return True

    def get_pattern(self) -> list[list[int]]:
        """[[stride, count], ...], outermost first."""
        return [[stride, count] for stride, count in zip(self.strides, self.shape, strict=True)]

    def is_indirect(self) -> bool:
        """Whether a run-time offset takes part in the address."""
        return self.indirection is not None

    def permute(self, dims: Shape) -> Self:
        """Reorder dimensions; on chip the partition dimension stays first."""
        return self._with(reshape.permuted(self._dims, dims, self._pinned))

    def broadcast(self, dim: int, size: int) -> Self:
        """Repeat a dimension of size 1 with stride 0."""
        return self._with(reshape.repeated(self._dims, dim, size, self._pinned))

    def expand_dim(self, dim: int) -> Self:
        """Insert a dimension of size 1."""
        return self._with(reshape.expanded(self._dims, dim, self._pinned))

    def squeeze_dim(self, dim: int) -> Self:
        """Remove a dimension of size 1."""
        return self._with(reshape.squeezed(self._dims, dim, self._pinned))

    def reshape_dim(self, dim: int, shape: Shape) -> Self:
        """Split one dimension; one size may be -1."""
        return self._with(reshape.split(self._dims, dim, shape, self._pinned))

    def flatten_dims(self, start_dim: int, end_dim: int) -> Self:
        """Merge the dimensions start_dim..end_dim (inclusive) into one."""
        return self._with(reshape.merged(self._dims, start_dim, end_dim, self._pinned))

    def reshape(self, shape: Shape) -> Self:
        """Another shape over the same elements, where strides allow it without a copy."""
        return self._with(reshape.reshaped(self._dims, shape, self._pinned))

    def rearrange(
        self,
        src_pattern: tuple[Any, ...],
        dst_pattern: tuple[Any, ...],
        fixed_sizes: dict[str, int] | None = None,
    ) -> Self:
        """einops by tuples of names: split groups of `src_pattern`, permute, merge groups."""
        parts, order, groups = reshape.regroup(
            self.shape, src_pattern, dst_pattern, fixed_sizes or {}
        )
        view = self
        for dim in range(self.ndim - 1, -1, -1):
            if not parts[dim]:
                view = view.squeeze_dim(dim)
            elif parts[dim] != (self.shape[dim],):
                view = view.reshape_dim(dim, parts[dim])
        view = view.permute(order)
        for first, last in reversed(groups):
            if first > last:
                view = view.expand_dim(first)
            elif last > first:
                view = view.flatten_dims(first, last)
        return view

    def _view(self, shape: Shape, strides: Shape, offset: int) -> Self:
        view = _new(type(self))
        view.storage = self.storage
        view.shape = shape
        view.strides = strides
        view.offset = offset
        view.dtype = self.dtype
        indirection = self.indirection
        view.indirection = indirection
        view._layout = None  # noqa: SLF001 (own class)
        if indirection is not None and not indirection.takes_views:
            refuse(
                "tensor view",
                "a view of a view made by .indirect()",
                "an indirect view goes into an instruction as it is",
                "slice the index tensor, or the tensor before .indirect()",
            )
        return view

    def _with(self, dims: Dims) -> Self:
        return self._view(dims.shape, dims.strides, self.offset)

    @property
    def _dims(self) -> Dims:
        return Dims(self.shape, self.strides)

    @property
    def _pinned(self) -> str | None:
        """Why dimension 0 stays as it is, if it has to."""
        if self._on_chip():
            return f"in {self.buffer.value}"
        gathered = self.indirection is not None and self.indirection.gathers_rows
        return "gathered by rows" if gathered else None

    def _on_chip(self) -> bool:
        return self.storage.allocation.region in ON_CHIP

    def _require_same_bytes(self) -> None:
        storage = self.storage
        asked = self.size * dtypes.itemsize_bytes(self.dtype)
        held = storage.size * dtypes.itemsize_bytes(storage.dtype)
        if asked != held or (self._on_chip() and self.shape[0] != storage.shape[0]):
            refuse(
                "NkiTensor",
                f"{self.dtype} {self.shape} for storage of {storage.dtype} {storage.shape}",
                f"{held} bytes, and on chip the partitions of the storage",
                "make views with .reshape() and .view()",
            )

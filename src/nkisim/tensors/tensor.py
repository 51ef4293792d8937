"""NkiTensor: a strided view of a storage, and every way to make another view of it."""

from __future__ import annotations

from operator import index as as_int
from typing import TYPE_CHECKING, Any, Union

from nkisim.errors import refuse
from nkisim.numerics import dtypes
from nkisim.tensors import reshaping
from nkisim.tensors.arithmetic import TensorOperators
from nkisim.tensors.indexing import dynamic_room, select_key
from nkisim.tensors.layout import ON_CHIP, Layout, MemoryRegion, layout_of
from nkisim.tensors.offsets import (
    FreeIndex,
    Indirection,
    VectorOffset,
    require_free_index,
    require_row_numbers,
    require_scalar,
    scalar_offset,
)
from nkisim.tensors.registers import NKIObject, RunTimeValue
from nkisim.tensors.reshaping import Dims, Shape, product, row_major_strides

if TYPE_CHECKING:
    from collections.abc import Callable

    from nkisim.memory.storage import Storage

Register = Union["NkiTensor", RunTimeValue]


class NkiTensor(TensorOperators, NKIObject):
    """Element (i0, i1, ...) is storage element `offset + sum(strides[k] * ik)`.

    `shape` and `strides` are tuples of element counts. Views share storage; nothing here copies.
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
        self.indirection: Indirection | None = None
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
        return product(self.shape)

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

    def __getitem__(self, key: Any) -> NkiTensor:
        on_chip = self.storage.allocation.region in ON_CHIP
        shape, strides, offset, dynamic = select_key(self.shape, self.strides, key, on_chip=on_chip)
        view = self._view(shape, strides, self.offset + offset)
        if dynamic is not None:
            require_scalar("tensor index", dynamic[0], self.buffer)
            limit = dynamic_room(self.shape, key)
            view.indirection = self._only_indirection(scalar_offset(*dynamic, limit))
        elif self.indirection is not None:
            self._require_rows_whole(shape, strides)
        return view

    def __setitem__(self, key: Any, value: NkiTensor) -> None:
        _assignment[0](self[key], value)

    def slice(self, dim: int, start: int, end: int, step: int = 1) -> NkiTensor:
        """A strided window of one dimension; the end is not clamped."""
        self._refuse_indirected("slice", dim)
        start, end, step = as_int(start), as_int(end), as_int(step)
        if step < 1 or not 0 <= start < end <= self.shape[dim]:
            refuse(
                "slice",
                f"{start}:{end}:{step} on dimension {dim}",
                f"0 <= start < end <= {self.shape[dim]} elements and step >= 1; no clamping",
                "cut the slice to the dimension",
            )
        stride = self.strides[dim]
        count = -((start - end) // step)
        view = self._with(self._dims.replace(dim, (count,), (stride * step,)))
        view.offset += start * stride
        return view

    def select(self, dim: int, index: int | Register) -> NkiTensor:
        """Fix one index and drop the dimension (an on-chip partition stays as size 1)."""
        self._refuse_indirected("select", dim)
        if isinstance(index, (NkiTensor, RunTimeValue)):
            return self._select_dynamic(dim, index)
        if not 0 <= as_int(index) < self.shape[dim]:
            refuse(
                "select",
                f"index {index} on dimension {dim}",
                f"0 <= index < {self.shape[dim]} elements",
                "fix the index",
            )
        key: list[Any] = [slice(None)] * self.ndim
        key[dim] = index
        return self[tuple(key)]

    def permute(self, dims: Shape) -> NkiTensor:
        """Reorder dimensions; on chip the partition dimension stays first."""
        return self._with(reshaping.permuted(self._dims, dims, self._pinned))

    def broadcast(self, dim: int, size: int) -> NkiTensor:
        """Repeat a dimension of size 1 with stride 0."""
        return self._with(reshaping.repeated(self._dims, dim, size, self._pinned))

    def expand_dim(self, dim: int) -> NkiTensor:
        """Insert a dimension of size 1."""
        return self._with(reshaping.expanded(self._dims, dim, self._pinned))

    def squeeze_dim(self, dim: int) -> NkiTensor:
        """Remove a dimension of size 1."""
        return self._with(reshaping.squeezed(self._dims, dim, self._pinned))

    def reshape_dim(self, dim: int, shape: Shape) -> NkiTensor:
        """Split one dimension; one size may be -1."""
        return self._with(reshaping.split(self._dims, dim, shape, self._pinned))

    def flatten_dims(self, start_dim: int, end_dim: int) -> NkiTensor:
        """Merge the dimensions start_dim..end_dim (inclusive) into one."""
        return self._with(reshaping.merged(self._dims, start_dim, end_dim, self._pinned))

    def reshape(self, shape: Shape) -> NkiTensor:
        """Another shape over the same elements, where strides allow it without a copy."""
        return self._with(reshaping.reshaped(self._dims, shape, self._pinned))

    def rearrange(
        self,
        src_pattern: tuple[Any, ...],
        dst_pattern: tuple[Any, ...],
        fixed_sizes: dict[str, int] | None = None,
    ) -> NkiTensor:
        """einops by tuples of names: split groups of `src_pattern`, permute, merge groups."""
        parts, order, groups = reshaping.regroup(
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

    def vector_select(self, dim: int, vector_offset: NkiTensor) -> NkiTensor:
        """Gather HBM rows: row p of the result is row `vector_offset[p]`."""
        if dim != 0 or self._on_chip():
            refuse(
                "vector_select",
                f"dimension {dim} of a tensor in {self.buffer.value}",
                "dimension 0 of an HBM tensor",
                "use nisa.nc_n_gather or nisa.local_gather on chip",
            )
        require_row_numbers("vector_select", vector_offset, vector_offset.shape[0])
        gather = VectorOffset(vector_offset, self.strides[0], self.shape[0])
        view = self._view((vector_offset.shape[0], *self.shape[1:]), self.strides, self.offset)
        view.indirection = self._only_indirection(gather)
        return view

    def ap(
        self,
        pattern: list[list[int]],
        offset: int | None = None,
        scalar_offset: Register | None = None,
        vector_offset: NkiTensor | None = None,
        indirect_dim: int = 0,
        dtype: str | None = None,
    ) -> NkiTensor:
        """A raw access pattern on the underlying storage: [[step, count], ...], outermost first.

        `offset` is absolute in the storage (None: the receiver's). The receiver's own shape and
        strides do not matter, except that run-time offsets step by its stride of `indirect_dim`.
        """
        from nkisim.tensors.access_pattern import make_pattern_view, run_time_offset  # noqa: PLC0415 (cycle)

        view_dtype = self.dtype if dtype is None else dtypes.canonical(dtype)
        moving = run_time_offset(self, scalar_offset, vector_offset, indirect_dim, view_dtype)
        return make_pattern_view(self, pattern, offset, view_dtype, moving)

    def view(self, dtype: str) -> NkiTensor:
        """The same bits as another type; the last dimension scales with the element size."""
        from nkisim.tensors.access_pattern import reinterpret  # noqa: PLC0415 (cycle)

        return reinterpret(self, dtypes.canonical(dtype))

    reinterpret_cast = view

    def indirect(self, index: NkiTensor, num_elem: int | None = None) -> NkiTensor:
        """Tensor indirection along the free dimension (trn3): offset i is index[i % G, i // G]."""
        elems = index.size if num_elem is None else num_elem
        require_free_index(self, index, elems)
        gather = self._only_indirection(FreeIndex(index, elems))
        view = self._view((self.shape[0], elems), (self.strides[0], 1), self.offset)
        view.indirection = gather
        return view

    def _view(self, shape: Shape, strides: Shape, offset: int) -> NkiTensor:
        view = _new(NkiTensor)
        view.storage = self.storage
        view.shape = shape
        view.strides = strides
        view.offset = offset
        view.dtype = self.dtype
        indirection = self.indirection
        view.indirection = indirection
        view._layout = None  # noqa: SLF001 (own class)
        if indirection is not None and type(indirection) is FreeIndex:
            refuse(
                "tensor view",
                "a view of a view made by .indirect()",
                "an indirect view goes into an instruction as it is",
                "slice the index tensor, or the tensor before .indirect()",
            )
        return view

    def _with(self, dims: Dims) -> NkiTensor:
        return self._view(dims.shape, dims.strides, self.offset)

    @property
    def _dims(self) -> Dims:
        return Dims(self.shape, self.strides)

    @property
    def _pinned(self) -> str | None:
        """Why dimension 0 stays as it is, if it has to."""
        if self._on_chip():
            return f"in {self.buffer.value}"
        return "gathered by rows" if isinstance(self.indirection, VectorOffset) else None

    def _select_dynamic(self, dim: int, index: Register) -> NkiTensor:
        require_scalar("select", index, self.buffer)
        if self._on_chip() and dim == 0:
            refuse(
                "select",
                f"a run-time index on dimension 0 of a tensor in {self.buffer.value}",
                "partitions are selected at compile time",
                "use an integer index",
            )
        least = 2 if self._on_chip() else 1
        kept = () if self.ndim > least else (1,)
        offset = scalar_offset(index, self.strides[dim], self.shape[dim])
        view = self._with(self._dims.replace(dim, kept, kept and self.strides[dim : dim + 1]))
        view.indirection = self._only_indirection(offset)
        return view

    def _only_indirection(self, indirection: Indirection) -> Indirection:
        if self.indirection is not None:
            refuse(
                "tensor view",
                "a second run-time offset",
                "one per view",
                "combine the offsets into one register",
            )
        return indirection

    def _on_chip(self) -> bool:
        return self.storage.allocation.region in ON_CHIP

    def _refuse_indirected(self, method: str, dim: int) -> None:
        reshaping.require_dim(method, dim, self.ndim)
        if dim == 0 and isinstance(self.indirection, VectorOffset):
            _refuse_part_of_rows(method)

    def _require_rows_whole(self, shape: Shape, strides: Shape) -> None:
        """An index leaves the rows of a gathered view alone."""
        if not isinstance(self.indirection, VectorOffset):
            return
        if (shape[0], strides[0]) != (self.shape[0], self.strides[0]):
            _refuse_part_of_rows("tensor index")

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


def _refuse_part_of_rows(method: str) -> None:
    refuse(
        method,
        "dimension 0 of a gathered view",
        "the gathered dimension is taken whole",
        "slice the index tensor instead",
    )


_new = object.__new__


def _no_assignment(_dst: NkiTensor, _src: NkiTensor) -> None:
    refuse("tensor", "assignment without instructions", "nkisim.isa is not imported", "import it")


_assignment: list[Callable[[NkiTensor, NkiTensor], None]] = [_no_assignment]


def define_assignment(assign: Callable[[NkiTensor, NkiTensor], None]) -> None:
    """Say what `tensor[...] = value` issues; instructions build on tensors, so they tell us."""
    _assignment[0] = assign

"""NkiTensor: a strided view of a storage, and every way to make another view of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Union

from nkisim import dtypes
from nkisim.errors import refuse
from nkisim.indexing import DynamicSlice, select_key
from nkisim.layout import ON_CHIP, Layout, MemoryRegion, layout_of
from nkisim.offsets import FreeIndex, Indirection, ScalarOffset, VectorOffset
from nkisim.registers import NKIObject, VirtualRegister
from nkisim.reshaping import (
    fill_minus_one,
    product,
    regroup,
    reshape_strides,
    row_major_strides,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from nkisim.storage import Storage

Shape = tuple[int, ...]
Register = Union["NkiTensor", VirtualRegister]


class NkiTensor(NKIObject):
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
        total = 1
        for count in self.shape:
            total *= count
        return total

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
        scale = dtypes.itemsize_bytes(storage.dtype) / dtypes.itemsize_bytes(self.dtype)
        return int(storage.free_elems * scale)

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
        for count, stride in zip(self.shape[:first:-1], self.strides[:first:-1], strict=True):
            if count != 1 and stride != expected:
                return False
            expected *= count
        at = self.shape[first], self.strides[first]
        return at[0] == 1 or at[1] == expected

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
            view.indirection = self._only_indirection(ScalarOffset(*dynamic))
        return view

    def __setitem__(self, key: Any, value: NkiTensor) -> None:
        _assignment[0](self[key], value)

    def slice(self, dim: int, start: int, end: int, step: int = 1) -> NkiTensor:
        """A strided window of one dimension; the end is not clamped."""
        self._refuse_indirected(dim, "slice")
        key = [slice(None)] * self.ndim
        key[dim] = slice(start, end, step)
        return self[tuple(key)]

    def select(self, dim: int, index: int | Register) -> NkiTensor:
        """Fix one index and drop the dimension (an on-chip partition stays as size 1)."""
        self._refuse_indirected(dim, "select")
        if isinstance(index, (NkiTensor, VirtualRegister)):
            return self._select_dynamic(dim, index)
        key: list[Any] = [slice(None)] * self.ndim
        key[dim] = index
        return self[tuple(key)]

    def permute(self, dims: Shape) -> NkiTensor:
        """Reorder dimensions; on chip the partition dimension stays first."""
        if sorted(dims) != list(range(self.ndim)):
            refuse("permute", f"dims {dims}", f"a permutation of 0..{self.ndim - 1}", "fix the dims")
        if self._partition_fixed() and dims[0] != 0:
            self._refuse_partition("permute", f"dims {dims}")
        shape = tuple(self.shape[dim] for dim in dims)
        return self._view(shape, tuple(self.strides[dim] for dim in dims), self.offset)

    def broadcast(self, dim: int, size: int) -> NkiTensor:
        """Repeat a dimension of size 1 with stride 0."""
        if self.shape[dim] != 1:
            refuse(
                "broadcast",
                f"dimension {dim} of size {self.shape[dim]}",
                "only a dimension of size 1 can be repeated",
                "insert one with expand_dim",
            )
        if self._on_chip() and dim == 0:
            self._refuse_partition("broadcast", "dimension 0")
        return self._replace_dim(dim, (size,), (0,))

    def expand_dim(self, dim: int) -> NkiTensor:
        """Insert a dimension of size 1."""
        if self._partition_fixed() and dim == 0:
            self._refuse_partition("expand_dim", "dimension 0")
        shape = (*self.shape[:dim], 1, *self.shape[dim:])
        return self._view(shape, (*self.strides[:dim], 0, *self.strides[dim:]), self.offset)

    def squeeze_dim(self, dim: int) -> NkiTensor:
        """Remove a dimension of size 1."""
        if self._partition_fixed() and dim == 0:
            self._refuse_partition("squeeze_dim", "dimension 0")
        if self.shape[dim] != 1:
            refuse(
                "squeeze_dim",
                f"dimension {dim} of size {self.shape[dim]}",
                "only a dimension of size 1 can be removed",
                "use select to fix an index",
            )
        return self._replace_dim(dim, (), ())

    def reshape_dim(self, dim: int, shape: Shape) -> NkiTensor:
        """Split one dimension; one size may be -1."""
        sizes = fill_minus_one(tuple(shape), self.shape[dim], "reshape_dim")
        if self._partition_fixed() and dim == 0 and sizes != (self.shape[0],):
            self._refuse_partition("reshape_dim", f"split of dimension 0 into {sizes}")
        inner = row_major_strides(sizes)
        return self._replace_dim(dim, sizes, tuple(s * self.strides[dim] for s in inner))

    def flatten_dims(self, start_dim: int, end_dim: int) -> NkiTensor:
        """Merge the dimensions start_dim..end_dim (inclusive) into one."""
        if self._partition_fixed() and start_dim == 0 and end_dim > 0:
            self._refuse_partition("flatten_dims", f"dimensions 0..{end_dim}")
        shape = self.shape[start_dim : end_dim + 1]
        merged = reshape_strides(shape, self.strides[start_dim : end_dim + 1], (product(shape),))
        if merged is None:
            refuse(
                "flatten_dims",
                f"dimensions {start_dim}..{end_dim} of shape {self.shape}, strides {self.strides}",
                "merged dimensions must follow each other without gaps",
                "copy into a fresh tile, or keep the dimensions apart",
            )
        new_shape = (*self.shape[:start_dim], product(shape), *self.shape[end_dim + 1 :])
        strides = (*self.strides[:start_dim], *merged, *self.strides[end_dim + 1 :])
        return self._view(new_shape, strides, self.offset)

    def reshape(self, shape: Shape) -> NkiTensor:
        """Another shape over the same elements, where strides allow it without a copy."""
        sizes = fill_minus_one(tuple(shape), self.size, "reshape")
        if self._partition_fixed() and sizes[0] != self.shape[0]:
            self._refuse_partition("reshape", f"shape {sizes} from {self.shape}")
        strides = reshape_strides(self.shape, self.strides, sizes)
        if strides is None:
            refuse(
                "reshape",
                f"shape {sizes} from {self.shape} with strides {self.strides}",
                "a view cannot gather scattered elements into one dimension",
                "copy into a fresh tile first",
            )
        return self._view(sizes, strides, self.offset)

    def rearrange(
        self,
        src_pattern: tuple[Any, ...],
        dst_pattern: tuple[Any, ...],
        fixed_sizes: dict[str, int] | None = None,
    ) -> NkiTensor:
        """einops by tuples of names: split groups of `src_pattern`, permute, merge groups."""
        split, order, groups = regroup(self.shape, src_pattern, dst_pattern, fixed_sizes or {})
        view = self
        for dim in range(self.ndim - 1, -1, -1):
            if split[dim] != (self.shape[dim],):
                view = view.reshape_dim(dim, split[dim])
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
        _require_row_index("vector_select", vector_offset)
        shape = (vector_offset.shape[0], *self.shape[1:])
        view = self._view(shape, self.strides, self.offset)
        view.indirection = self._only_indirection(VectorOffset(vector_offset, self.strides[0]))
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
        strides do not matter, except that run-time offsets step by the base tensor's rows.
        """
        from nkisim.access_pattern import make_pattern_view  # noqa: PLC0415 (needs NkiTensor)

        view_dtype = self.dtype if dtype is None else dtypes.canonical(dtype)
        view = make_pattern_view(self, pattern, offset, view_dtype)
        if scalar_offset is not None and vector_offset is not None:
            refuse(
                "ap",
                "scalar_offset together with vector_offset",
                "one kind of run-time offset per view",
                "choose one",
            )
        unit = product(self.storage.shape[indirect_dim + 1 :])
        if scalar_offset is not None:
            view.indirection = ScalarOffset(scalar_offset, unit)
        if vector_offset is not None:
            _require_row_index("ap", vector_offset)
            if indirect_dim != 0 or self._on_chip():
                refuse(
                    "ap",
                    f"vector_offset with indirect_dim={indirect_dim} in {self.buffer.value}",
                    "dimension 0 of an HBM tensor",
                    "gather rows of an HBM tensor",
                )
            view.indirection = VectorOffset(vector_offset, unit)
        return view

    def view(self, dtype: str) -> NkiTensor:
        """The same bits as another type; the last dimension scales with the element size."""
        from nkisim.access_pattern import reinterpret  # noqa: PLC0415 (needs NkiTensor)

        return reinterpret(self, dtypes.canonical(dtype))

    reinterpret_cast = view

    def indirect(self, index: NkiTensor, num_elem: int | None = None) -> NkiTensor:
        """Tensor indirection along the free dimension (trn3): offset i is index[i % G, i // G]."""
        if not self._on_chip() or index.shape[0] != self.shape[0]:
            refuse(
                "indirect",
                f"index {index.shape} on a tensor {self.shape} in {self.buffer.value}",
                "an on-chip tensor and an index with as many partitions",
                "load the tensor, and give the index one row per partition",
            )
        elems = index.size if num_elem is None else num_elem
        view = self._view((self.shape[0], elems), (self.strides[0], 1), self.offset)
        view.indirection = self._only_indirection(FreeIndex(index, elems))
        return view

    def _view(self, shape: Shape, strides: Shape, offset: int) -> NkiTensor:
        view = _new(NkiTensor)
        view.storage = self.storage
        view.shape = shape
        view.strides = strides
        view.offset = offset
        view.dtype = self.dtype
        view.indirection = self.indirection
        view._layout = None  # noqa: SLF001 (own class)
        return view

    def _replace_dim(self, dim: int, sizes: Shape, strides: Shape) -> NkiTensor:
        new_shape = (*self.shape[:dim], *sizes, *self.shape[dim + 1 :])
        new_strides = (*self.strides[:dim], *strides, *self.strides[dim + 1 :])
        return self._view(new_shape, new_strides, self.offset)

    def _select_dynamic(self, dim: int, index: Register) -> NkiTensor:
        if self._on_chip() and dim == 0:
            self._refuse_partition("select", "a run-time index on dimension 0")
        view = self._replace_dim(dim, (), ())
        view.indirection = self._only_indirection(ScalarOffset(index, self.strides[dim]))
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

    def _partition_fixed(self) -> bool:
        return self._on_chip() or isinstance(self.indirection, VectorOffset)

    def _refuse_partition(self, method: str, what: str) -> None:
        refuse(
            method,
            f"{what} on a tensor in {self.buffer.value}",
            "the partition dimension (0) of an on-chip or gathered tensor stays as it is",
            "move data between partitions with nc_transpose, dma_copy or nc_stream_shuffle",
        )

    def _refuse_indirected(self, dim: int, method: str) -> None:
        if dim == 0 and isinstance(self.indirection, VectorOffset):
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


def dynamic_slice(start: int | VirtualRegister, size: int) -> slice | DynamicSlice:
    """`nl.ds(start, size)`."""
    if isinstance(start, VirtualRegister):
        return DynamicSlice(start, size)
    return slice(start, start + size)


def _require_row_index(method: str, rows: NkiTensor) -> None:
    ok = rows.buffer is MemoryRegion.sbuf and rows.ndim == 2 and dtypes.is_integer(rows.dtype)  # noqa: PLR2004
    if not ok:
        refuse(
            method,
            f"offsets {rows.dtype} {rows.shape} in {rows.buffer.value}",
            "an integer tile (P, 1) in SBUF, one row number per partition",
            "load the row numbers into SBUF",
        )

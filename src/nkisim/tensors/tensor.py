"""NkiTensor: a strided view of a storage that may be at a run-time offset, and those offsets."""

from __future__ import annotations

from dataclasses import dataclass
from operator import index as as_int
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from nkisim.errors import refuse
from nkisim.memory.layout import ON_CHIP
from nkisim.numerics import dtypes
from nkisim.tensors import reshape
from nkisim.tensors.access_pattern import make_pattern_view, reinterpret, rescale
from nkisim.tensors.indexing import dynamic_room, select_key
from nkisim.tensors.offsets import require_free_index, require_row_numbers, require_scalar
from nkisim.tensors.registers import RunTimeValue
from nkisim.tensors.reshape import Shape, require_dim
from nkisim.tensors.strided_tensor import StridedTensor

if TYPE_CHECKING:
    from collections.abc import Callable

Register = Union["NkiTensor", RunTimeValue]


class ScalarOffset(NamedTuple):
    """One run-time offset for the whole view: `source` times `unit_elems` is added.

    Values are 0 <= value < `limit`; None where only the tensor's end bounds them. `dimension` is
    the size of the one that `.ap(indirect_dim=)` names, which devices go by.
    """

    source: NkiTensor | RunTimeValue
    unit_elems: int
    limit: int | None = None
    dimension: int | None = None

    @property
    def takes_views(self) -> bool:
        """Whether a view with it may be looked at through another view."""
        return True

    @property
    def gathers_rows(self) -> bool:
        """Whether it places every row by itself."""
        return False


def scalar_offset(source: NkiTensor | RunTimeValue, unit_elems: int, limit: int) -> ScalarOffset:
    """An offset below `limit`; where only 0 is, the view stays where it is.

    The stride of a dimension of size 1 says nothing: it may equal that of the partitions.
    """
    return ScalarOffset(source, 0 if limit == 1 else unit_elems, limit)


class VectorOffset(NamedTuple):
    """A gather along HBM rows: row p of the view is row `rows[p]` of `unit_elems` elements.

    Row numbers are 0 <= row < `limit`; None where only the tensor's end bounds them.
    """

    rows: NkiTensor
    unit_elems: int
    limit: int | None = None

    @property
    def takes_views(self) -> bool:
        """Whether a view with it may be looked at through another view."""
        return True

    @property
    def gathers_rows(self) -> bool:
        """Whether it places every row by itself."""
        return True


@dataclass(frozen=True)
class FreeIndex:
    """Tensor indirection along the free dimension (trn3): `.indirect(index)`."""

    index: NkiTensor
    elems: int

    @property
    def takes_views(self) -> bool:
        """Whether a view with it may be looked at through another view."""
        return False

    @property
    def gathers_rows(self) -> bool:
        """Whether it places every row by itself."""
        return False


Indirection = ScalarOffset | VectorOffset | FreeIndex


class NkiTensor(StridedTensor):
    """A tensor as kernels have it: strided views, and views at run-time offsets."""

    __slots__ = ()

    indirection: Indirection | None

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
        view_dtype = self.dtype if dtype is None else dtypes.canonical(dtype)
        moving = _run_time_offset(self, scalar_offset, vector_offset, indirect_dim, view_dtype)
        return make_pattern_view(self, pattern, offset, view_dtype, moving)

    def view(self, dtype: str) -> NkiTensor:
        """The same bits as another type; the last dimension scales with the element size."""
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

    def _refuse_indirected(self, method: str, dim: int) -> None:
        reshape.require_dim(method, dim, self.ndim)
        if dim == 0 and isinstance(self.indirection, VectorOffset):
            _refuse_part_of_rows(method)

    def _require_rows_whole(self, shape: Shape, strides: Shape) -> None:
        """An index leaves the rows of a gathered view alone."""
        if not isinstance(self.indirection, VectorOffset):
            return
        if (shape[0], strides[0]) != (self.shape[0], self.strides[0]):
            _refuse_part_of_rows("tensor index")


def _run_time_offset(
    tensor: NkiTensor,
    scalar: NkiTensor | RunTimeValue | None,
    rows: NkiTensor | None,
    dim: int,
    dtype: str,
) -> Indirection | None:
    """What `.ap(scalar_offset=, vector_offset=, indirect_dim=)` adds to a pattern, if anything."""
    if scalar is None and rows is None:
        return None
    if scalar is not None and rows is not None:
        refuse(
            "ap",
            "scalar_offset together with vector_offset",
            "one kind of run-time offset per view",
            "choose one",
        )
    require_dim("ap indirect_dim", dim, tensor.ndim)
    unit = rescale(f"stride of dimension {dim}", tensor.strides[dim], tensor.dtype, dtype)
    if scalar is not None:
        require_scalar("ap", scalar, tensor.buffer)
        return ScalarOffset(scalar, unit, dimension=tensor.shape[dim])
    assert rows is not None, "one of the two is given"
    if dim != 0 or tensor.buffer in ON_CHIP:
        refuse(
            "ap",
            f"vector_offset with indirect_dim={dim} in {tensor.buffer.value}",
            "dimension 0 of an HBM tensor",
            "gather rows of an HBM tensor",
        )
    return VectorOffset(rows, unit)


def _refuse_part_of_rows(method: str) -> None:
    refuse(
        method,
        "dimension 0 of a gathered view",
        "the gathered dimension is taken whole",
        "slice the index tensor instead",
    )


def _no_assignment(_dst: NkiTensor, _src: NkiTensor) -> None:
    refuse("tensor", "assignment without instructions", "nkisim.isa is not imported", "import it")


_assignment: list[Callable[[NkiTensor, NkiTensor], None]] = [_no_assignment]


def define_assignment(assign: Callable[[NkiTensor, NkiTensor], None]) -> None:
    """Say what `tensor[...] = value` issues; instructions build on tensors, so they tell us."""
    _assignment[0] = assign

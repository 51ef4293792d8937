"""Run-time offsets: finding their values, checking them, and reading or writing through them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nkisim.errors import NkiValidationError
from nkisim.machine import Machine
from nkisim.memory.layout import Layout, layout_of
from nkisim.numerics import dtypes
from nkisim.tensors.registers import RunTimeValue
from nkisim.tensors.tensor import FreeIndex, ScalarOffset, VectorOffset

if TYPE_CHECKING:
    from nkisim.tensors.tensor import NkiTensor

_REACH_BYTES = Machine.run_time_offset_reach_bytes
_GROUP = Machine.gather_group_partitions  # of the Vector, Scalar and GpSimd engines

Array = np.ndarray[Any, Any]
Rows = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


def scalar_value(source: NkiTensor | RunTimeValue) -> int | None:
    """The value of a register or one-element tensor; None where a shape-only run has none."""
    if isinstance(source, RunTimeValue):
        return source.state
    if source.storage.data is None and source.storage.raw is None:
        return None
    return int(source.storage.read(source.layout, source.offset).reshape(-1)[0])


def current_offset(tensor: NkiTensor) -> int:
    """The storage element a view begins at now; an offset that has no value yet counts as 0."""
    indirection = tensor.indirection
    if not isinstance(indirection, ScalarOffset):
        return tensor.offset
    return tensor.offset + (scalar_value(indirection.source) or 0) * indirection.unit_elems


def read_held(tensor: NkiTensor, group: int = _GROUP) -> Array:
    """Held values of a view, run-time offsets resolved; `group` partitions share a free index."""
    indirection = tensor.indirection
    if indirection is None:
        return tensor.storage.read(tensor.layout, tensor.offset)
    if isinstance(indirection, ScalarOffset):
        return tensor.storage.read(tensor.layout, _shifted(tensor, indirection))
    if isinstance(indirection, VectorOffset):
        rows, inside = row_numbers(tensor, indirection)
        _refuse_rows_outside(tensor, indirection, rows, inside)
        return np.stack([read_row(tensor, indirection, int(row)) for row in rows])
    return _gather_free(tensor, indirection, group)


def write_held(tensor: NkiTensor, held: Array, group: int = _GROUP) -> None:
    """Set a view to held values, run-time offsets resolved; `group` as for `read_held`."""
    indirection = tensor.indirection
    storage = tensor.storage
    if indirection is None:
        storage.write(tensor.layout, tensor.offset, held)
    elif isinstance(indirection, ScalarOffset):
        storage.write(tensor.layout, _shifted(tensor, indirection), held)
    elif isinstance(indirection, VectorOffset):
        rows, inside = row_numbers(tensor, indirection)
        _refuse_rows_outside(tensor, indirection, rows, inside)
        values = held.reshape(tensor.shape)
        for position, row in enumerate(rows):
            write_row(tensor, indirection, int(row), values[position])
    else:
        _scatter_free(tensor, indirection, held.reshape(tensor.shape), group)


def row_numbers(tensor: NkiTensor, indirection: VectorOffset) -> tuple[Rows, Mask]:
    """The row numbers of a gathered view, and for each whether it lies inside the tensor."""
    held = indirection.rows.storage.read(indirection.rows.layout, indirection.rows.offset)
    rows = held.T.reshape(-1)[: tensor.shape[0]].astype(np.int64)
    if indirection.limit is not None:
        return rows, (rows >= 0) & (rows < indirection.limit)
    layout, _ = _row_place(tensor, indirection, 0)
    first = tensor.offset + rows * indirection.unit_elems
    end = tensor.storage.size_in(tensor.dtype)
    return rows, (rows >= 0) & (first + layout.low >= 0) & (first + layout.high < end)


def row_places(tensor: NkiTensor, indirection: VectorOffset) -> list[tuple[Layout, int]]:
    """Layout and storage element of every row of a gathered view that lies inside the tensor."""
    rows, inside = row_numbers(tensor, indirection)
    return [_row_place(tensor, indirection, int(row)) for row in rows[inside]]


def read_row(tensor: NkiTensor, indirection: VectorOffset, row: int) -> Array:
    """One row of a gathered view."""
    layout, offset = _row_place(tensor, indirection, row)
    return tensor.storage.read(layout, offset)


def write_row(tensor: NkiTensor, indirection: VectorOffset, row: int, held: Array) -> None:
    """Set one row of a gathered view."""
    layout, offset = _row_place(tensor, indirection, row)
    tensor.storage.write(layout, offset, held)


def scalar_is_inside(tensor: NkiTensor) -> bool:
    """Whether a view with a scalar offset stays inside its tensor at every value it can take."""
    indirection = tensor.indirection
    if not isinstance(indirection, ScalarOffset):
        return True
    source = indirection.source
    value = scalar_value(source)
    bounds = source.bounds if isinstance(source, RunTimeValue) else None
    values = bounds or (value, value)
    return all(v is None or _inside(tensor, indirection, v) for v in values)


def require_reach(tensor: NkiTensor) -> None:
    """Refuse an offset beyond what 32 bits of bytes reach, unless its scalar has 64."""
    indirection = tensor.indirection
    if not isinstance(indirection, ScalarOffset):
        return
    source = indirection.source
    if isinstance(source, RunTimeValue) and getattr(source, "dtype", None) != "int64":
        greatest = source.bounds[1] if source.bounds else source.state or 0
        offset_bytes = greatest * indirection.unit_elems * dtypes.itemsize_bytes(tensor.dtype)
        if offset_bytes >= _REACH_BYTES:
            raise NkiValidationError(
                f"run-time offset {greatest} x {indirection.unit_elems} elements, {offset_bytes} B,"
                f" on tensor {tensor.name!r} {tensor.storage.shape}",
                limit=f"32 bits of bytes: offsets below {_REACH_BYTES} B",
                remedy="load the offset as an int64 scalar (nisa.scalar_load), or cut the tensor",
            )


def value_outside_dimension(tensor: NkiTensor) -> tuple[int, int] | None:
    """A value of a scalar offset that the dimension it is named for has not, and its size."""
    indirection = tensor.indirection
    if not isinstance(indirection, ScalarOffset) or indirection.dimension is None:
        return None
    source = indirection.source
    value = scalar_value(source)
    bounds = source.bounds if isinstance(source, RunTimeValue) else None
    for offset in bounds or (value,):
        if offset is not None and not 0 <= offset < indirection.dimension:
            return offset, indirection.dimension
    return None


def leaves(tensor: NkiTensor) -> bool:
    """Whether a DMA that may skip does so: devices go by the named dimension, not by the end."""
    return not scalar_is_inside(tensor) or value_outside_dimension(tensor) is not None


def _inside(tensor: NkiTensor, indirection: ScalarOffset, value: int) -> bool:
    if indirection.limit is not None:
        return 0 <= value < indirection.limit
    layout, start = tensor.layout, tensor.offset
    shift = value * indirection.unit_elems
    limit = tensor.storage.size_in(tensor.dtype)
    if layout.on_chip:
        row, start = divmod(start, tensor.pitch_elems)
        limit = tensor.pitch_elems
        if indirection.unit_elems == limit:  # the offset counts partitions
            return 0 <= row + value <= tensor.storage.shape[0] - layout.partitions
    return start + shift + layout.low >= 0 and start + shift + layout.high < limit


def _shifted(tensor: NkiTensor, indirection: ScalarOffset) -> int:
    value = scalar_value(indirection.source)
    if value is None:
        raise NkiValidationError(
            "a run-time offset without a value",
            limit="the register or tensor that holds it was never written",
            remedy="load the offset before using the view",
        )
    if not _inside(tensor, indirection, value):
        raise NkiValidationError(
            f"run-time offset {value} (x {indirection.unit_elems} elements) on tensor"
            f" {tensor.name!r} {tensor.storage.shape}",
            limit=f"the view {tensor.shape} must stay inside the tensor",
            remedy="bound the offset, or pass oob_mode.skip where the instruction takes it",
        )
    return tensor.offset + value * indirection.unit_elems


def _row_place(tensor: NkiTensor, indirection: VectorOffset, row: int) -> tuple[Layout, int]:
    shape = tensor.shape[1:] or (1,)
    strides = tensor.strides[1:] or (1,)
    layout = layout_of(tensor.buffer, tensor.dtype, shape, strides)
    return layout, tensor.offset + row * indirection.unit_elems


def _refuse_rows_outside(
    tensor: NkiTensor, indirection: VectorOffset, rows: Rows, inside: Mask
) -> None:
    if inside.all():
        return
    first = int(np.flatnonzero(~inside)[0])
    raise NkiValidationError(
        f"row {int(rows[first])} of tensor {tensor.name!r} at position {first} of the index",
        limit=f"a row inside the tensor {tensor.storage.shape}"
        if indirection.limit is None
        else f"rows 0..{indirection.limit - 1}",
        remedy="fix the index, or pass oob_mode.skip",
    )


def _free_positions(tensor: NkiTensor, indirection: FreeIndex, group: int) -> Rows:
    """[partitions, elems] free offsets: offset i of a group of G is index[i % G, i // G]."""
    index = indirection.index
    held = index.storage.read(index.layout, index.offset).astype(np.int64)
    partitions = tensor.shape[0]
    result = np.empty((partitions, indirection.elems), np.int64)
    for start in range(0, partitions, group):
        rows = held[start : start + group].reshape(min(group, partitions - start), -1)
        flat = rows.T.reshape(-1)[: indirection.elems]
        result[start : start + group] = flat
    _refuse_positions_outside(tensor, result)
    return result


def _refuse_positions_outside(tensor: NkiTensor, positions: Rows) -> None:
    width = _row_width(tensor)
    outside = positions[(positions < 0) | (positions >= width)]
    if outside.size:
        raise NkiValidationError(
            f"free offset {int(outside[0])} in the index of a view of tensor {tensor.name!r}",
            limit=f"a partition has {width} elements from the start of the view on",
            remedy="fix the index",
        )


def _row_width(tensor: NkiTensor) -> int:
    return tensor.pitch_elems - tensor.offset % tensor.pitch_elems


def whole_rows(tensor: NkiTensor) -> tuple[Layout, int]:
    """The partitions of a free-indexed view, from its first element to the end of the row."""
    pitch, dtype = tensor.pitch_elems, tensor.dtype
    layout = layout_of(tensor.buffer, dtype, (tensor.shape[0], _row_width(tensor)), (pitch, 1))
    return layout, tensor.offset


def _gather_free(tensor: NkiTensor, indirection: FreeIndex, group: int) -> Array:
    rows = tensor.storage.read(*whole_rows(tensor))
    return np.take_along_axis(rows, _free_positions(tensor, indirection, group), axis=1)


def _scatter_free(tensor: NkiTensor, indirection: FreeIndex, held: Array, group: int) -> None:
    layout, offset = whole_rows(tensor)
    rows = tensor.storage.read(layout, offset).copy()
    np.put_along_axis(rows, _free_positions(tensor, indirection, group), held, axis=1)
    tensor.storage.write(layout, offset, rows)

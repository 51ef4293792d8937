"""Run-time offsets: finding their values, checking them, and reading or writing through them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nkisim import dtypes
from nkisim.errors import NkiValidationError
from nkisim.layout import layout_of
from nkisim.offsets import FreeIndex, ScalarOffset, VectorOffset
from nkisim.registers import VirtualRegister

if TYPE_CHECKING:
    from nkisim.tensor import NkiTensor

Array = np.ndarray[Any, Any]
Rows = np.ndarray[Any, np.dtype[np.int64]]


def scalar_value(source: NkiTensor | VirtualRegister) -> int | None:
    """The value of a register or one-element tensor; None where a shape-only run has none."""
    if isinstance(source, VirtualRegister):
        return source.state
    if source.storage.data is None and source.storage.raw is None:
        return None
    return int(source.storage.read(source.layout, source.offset).reshape(-1)[0])


def read_held(tensor: NkiTensor) -> Array:
    """Held values of a view, run-time offsets resolved."""
    indirection = tensor.indirection
    if indirection is None:
        return tensor.storage.read(tensor.layout, tensor.offset)
    if isinstance(indirection, ScalarOffset):
        return tensor.storage.read(tensor.layout, _shifted(tensor, indirection))
    if isinstance(indirection, VectorOffset):
        rows, inside = row_numbers(tensor, indirection)
        _refuse_rows_outside(tensor, rows, inside)
        return np.stack([_row(tensor, indirection, int(row)) for row in rows])
    return _gather_free(tensor, indirection)


def write_held(tensor: NkiTensor, held: Array) -> None:
    """Set a view to held values, run-time offsets resolved."""
    indirection = tensor.indirection
    storage = tensor.storage
    if indirection is None:
        storage.write(tensor.layout, tensor.offset, held)
    elif isinstance(indirection, ScalarOffset):
        storage.write(tensor.layout, _shifted(tensor, indirection), held)
    elif isinstance(indirection, VectorOffset):
        rows, inside = row_numbers(tensor, indirection)
        _refuse_rows_outside(tensor, rows, inside)
        values = held.reshape(tensor.shape)
        for position, row in enumerate(rows):
            write_row(tensor, indirection, int(row), values[position])
    else:
        _scatter_free(tensor, indirection, held.reshape(tensor.shape))


def row_numbers(tensor: NkiTensor, indirection: VectorOffset) -> tuple[Rows, Rows]:
    """The row numbers of a gathered view, and for each whether it lies inside the tensor."""
    held = indirection.rows.storage.read(indirection.rows.layout, indirection.rows.offset)
    rows = held.T.reshape(-1)[: tensor.shape[0]].astype(np.int64)
    limit = tensor.storage.size // indirection.unit_elems
    return rows, (rows >= 0) & (rows < limit)


def read_row(tensor: NkiTensor, indirection: VectorOffset, row: int) -> Array:
    """One row of a gathered view."""
    return _row(tensor, indirection, row)


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
    bounds = source.bounds if isinstance(source, VirtualRegister) else None
    values = bounds or (value, value)
    return all(v is None or _inside(tensor, v * indirection.unit_elems) for v in values)


def _inside(tensor: NkiTensor, shift: int) -> bool:
    layout = tensor.layout
    ratio = dtypes.itemsize_bytes(tensor.storage.dtype) / layout.itemsize_bytes
    low = high = tensor.offset + shift
    limit = int(tensor.storage.size * ratio)
    if layout.on_chip:
        low = high = tensor.offset % tensor.pitch_elems + shift
        limit = tensor.pitch_elems
    return low + layout.low >= 0 and high + layout.high < limit


def _shifted(tensor: NkiTensor, indirection: ScalarOffset) -> int:
    value = scalar_value(indirection.source)
    if value is None:
        msg = "a run-time offset without a value"
        raise NkiValidationError(
            msg,
            limit="the register or tensor that holds it was never written",
            remedy="load the offset before using the view",
        )
    if not _inside(tensor, value * indirection.unit_elems):
        raise NkiValidationError(
            f"run-time offset {value} (x {indirection.unit_elems} elements) on tensor"
            f" {tensor.name!r} {tensor.storage.shape}",
            limit=f"the view {tensor.shape} must stay inside the tensor",
            remedy="bound the offset, or pass oob_mode.skip where the instruction takes it",
        )
    return tensor.offset + value * indirection.unit_elems


def _row_place(tensor: NkiTensor, indirection: VectorOffset, row: int) -> tuple[Any, int]:
    shape = tensor.shape[1:] or (1,)
    strides = tensor.strides[1:] or (1,)
    layout = layout_of(tensor.buffer, tensor.dtype, shape, strides)
    return layout, tensor.offset + row * indirection.unit_elems


def _row(tensor: NkiTensor, indirection: VectorOffset, row: int) -> Array:
    layout, offset = _row_place(tensor, indirection, row)
    return tensor.storage.read(layout, offset)


def _refuse_rows_outside(tensor: NkiTensor, rows: Rows, inside: Rows) -> None:
    if inside.all():
        return
    first = int(np.flatnonzero(~inside)[0])
    raise NkiValidationError(
        f"row {int(rows[first])} of tensor {tensor.name!r} at position {first} of the index",
        limit=f"the tensor has {tensor.storage.size // _unit(tensor)} rows",
        remedy="fix the index, or pass oob_mode.skip",
    )


def _unit(tensor: NkiTensor) -> int:
    assert isinstance(tensor.indirection, VectorOffset)
    return tensor.indirection.unit_elems


def _free_positions(tensor: NkiTensor, indirection: FreeIndex, group: int) -> Rows:
    """[partitions, elems] free offsets: offset i of a group of partitions is index[i % G, i // G]."""
    index = indirection.index
    held = index.storage.read(index.layout, index.offset).astype(np.int64)
    partitions = tensor.shape[0]
    result = np.empty((partitions, indirection.elems), np.int64)
    for start in range(0, partitions, group):
        rows = held[start : start + group].reshape(min(group, partitions - start), -1)
        flat = rows.T.reshape(-1)[: indirection.elems]
        result[start : start + group] = flat
    return result


def _whole_rows(tensor: NkiTensor) -> NkiTensor:
    """The partitions of a free-indexed view, from its first element to the end of the row."""
    pitch = tensor.pitch_elems
    width = pitch - tensor.offset % pitch
    view = tensor._view((tensor.shape[0], width), (pitch, 1), tensor.offset)  # noqa: SLF001
    view.indirection = None
    return view


def _gather_free(tensor: NkiTensor, indirection: FreeIndex, group: int = 16) -> Array:
    rows = read_held(_whole_rows(tensor))
    return np.take_along_axis(rows, _free_positions(tensor, indirection, group), axis=1)


def _scatter_free(
    tensor: NkiTensor, indirection: FreeIndex, held: Array, group: int = 16
) -> None:
    whole = _whole_rows(tensor)
    rows = read_held(whole).copy()
    np.put_along_axis(rows, _free_positions(tensor, indirection, group), held, axis=1)
    write_held(whole, rows)

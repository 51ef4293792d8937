"""What may be a run-time offset: of a whole view, of its rows, or of its elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nkisim.errors import refuse
from nkisim.memory.layout import ON_CHIP, MemoryRegion
from nkisim.numerics import dtypes
from nkisim.tensors.registers import RunTimeValue
from nkisim.tensors.scalars import NkiScalar

if TYPE_CHECKING:
    from nkisim.tensors.strided_tensor import StridedTensor


def require_scalar(method: str, source: StridedTensor | RunTimeValue, region: MemoryRegion) -> None:
    """Refuse anything but a register, a scalar or one integer in SBUF; int64 reaches HBM only."""
    if isinstance(source, NkiScalar):
        _require_addressing(method, source, region)
    if isinstance(source, RunTimeValue):
        return
    if not _is_integer_tile(source) or source.size != 1:
        refuse(
            method,
            f"run-time offset {source!r}",
            "a register, a scalar, or an integer tile of 1 element in SBUF",
            "load the offset into SBUF, into a register, or with nisa.scalar_load",
        )


def _require_addressing(method: str, scalar: NkiScalar, region: MemoryRegion) -> None:
    scalar.require_usable(method)
    if scalar.dtype == "int64" and region in ON_CHIP:
        refuse(
            method,
            f"an int64 scalar as offset into {region.value}",
            "on chip the offset is int32",
            "load the offset from an int32 tile",
        )


def require_row_numbers(method: str, rows: StridedTensor, count: int) -> None:
    """Refuse anything but an integer tile in SBUF that holds `count` row numbers."""
    if not _is_integer_tile(rows) or not _has_two_dims(rows) or rows.size < count:
        refuse(
            method,
            f"row numbers {rows!r} for {count} rows",
            "an integer tile (P, 1) in SBUF, one row number for each row",
            "load the row numbers into SBUF",
        )


def require_free_index(tensor: StridedTensor, index: StridedTensor, elems: int) -> None:
    """Refuse an index that does not belong to the partitions of an on-chip tensor."""
    fits = tensor.layout.on_chip and index.layout.on_chip and index.shape[0] == tensor.shape[0]
    if not fits or not dtypes.is_integer(index.dtype) or not tensor.is_contiguous() or elems < 1:
        refuse(
            "indirect",
            f"{elems} elements of {tensor!r}, strides {tensor.strides}, by index {index!r}",
            "an on-chip tensor whose free elements are one run, and an integer index with as many"
            " partitions",
            "load the tensor, and give the index one row per partition",
        )


def _has_two_dims(tile: StridedTensor) -> bool:
    """Two dimensions, or more of which only the first two are longer than 1."""
    return tile.ndim >= 2 and max(tile.shape[2:], default=1) == 1


def _is_integer_tile(value: StridedTensor) -> bool:
    layout = getattr(value, "layout", None)
    if layout is None or layout.region is not MemoryRegion.sbuf:
        return False
    return dtypes.is_integer(value.dtype) and value.dtype != "bool"

"""dma_compute: sums of tensors inside the DMA engines, and adding to gathered or scattered rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nkisim import enums
from nkisim.errors import UnsupportedError, refuse
from nkisim.isa.call import Call
from nkisim.isa.contract import DMA_REACH, Contract, Operand
from nkisim.isa.dma import check_modes, no_free_index
from nkisim.isa.element_types import NUMBERS
from nkisim.isa.operands import (
    NkiInstruction,
    floats,
    held,
    index_tensors,
    store_floats,
    store_held,
)
from nkisim.machine import Machine
from nkisim.memory.layout import HBM, MemoryRegion
from nkisim.numerics import dtypes, operators
from nkisim.numerics.operators.operator import Operator
from nkisim.running.session import current
from nkisim.tensors.indirection import read_row, row_numbers, write_row
from nkisim.tensors.tensor import ScalarOffset, VectorOffset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nkisim.isa.operands import Array
    from nkisim.tensors.tensor import NkiTensor

_NAMES = tuple(f"srcs[{i}]" for i in range(Machine.dma_compute_max_sources))


def _same_count(call: Call) -> None:
    counts = {name: tensor.size for name, tensor in call.tensors.items()}
    if len(set(counts.values())) > 1:
        call.refuse(f"element counts {counts}", "all are equal", "slice or broadcast the tensors")


def _static_addresses(call: Call) -> None:
    for name, tensor in call.tensors.items():
        if isinstance(tensor.indirection, ScalarOffset):
            call.refuse(
                f"{name} has a scalar_offset",
                "addresses are known at compile time, or rows by vector_offset",
                "copy with dma_copy first",
            )


def _one_gathered_source(call: Call) -> None:
    """Scatter: dst and one source are the same HBM rows. Gather: dst and one source are in SBUF."""
    dst = call["dst"]
    sources = [call[name] for name in _NAMES if name in call]
    gathered = [s for s in sources if isinstance(s.indirection, VectorOffset)]
    scatters = isinstance(dst.indirection, VectorOffset)
    if not gathered and not scatters:
        return
    if len(sources) != 2 or len(gathered) != 1:
        call.refuse(
            f"{len(gathered)} of {len(sources)} sources with vector_offset",
            "one of exactly two sources",
            "add the other sources first",
        )
    plain = next(s for s in sources if s is not gathered[0])
    if plain.buffer is not MemoryRegion.sbuf or gathered[0].buffer not in HBM:
        call.refuse(
            f"vector_offset on {gathered[0].buffer.value} beside a source in {plain.buffer.value}",
            "rows of an HBM tensor, and a source in SBUF",
            "load the other source into SBUF",
        )
    if not scatters and dst.buffer is not MemoryRegion.sbuf:
        call.refuse(
            f"rows added to dst in {dst.buffer.value} without vector_offset",
            "a dst in SBUF, or the gathered HBM rows themselves",
            "give dst the vector_offset of the source",
        )


DMA_COMPUTE = Contract(
    "dma_compute",
    (enums.engine.dma,),
    (
        Operand("dst", DMA_REACH, NUMBERS, writes=True),
        *(Operand(name, DMA_REACH, NUMBERS, optional=True) for name in _NAMES),
    ),
    (check_modes, no_free_index, _same_count, _static_addresses, _one_gathered_source),
)


def dma_compute(
    dst: NkiTensor,
    srcs: Sequence[NkiTensor],
    reduce_op: Operator,
    scales: Sequence[float] | None = None,
    unique_indices: bool = True,
    oob_mode: enums.oob_mode = enums.oob_mode.error,
    name: str | None = None,
) -> NkiInstruction:
    """dst = the sum of srcs in float32, cast once.

    With vector_offset on one of two srcs: dst (SBUF) += rows of HBM, or, if dst is the same view
    of the same rows, rows of HBM += the other source.
    """
    _require_plain_sum(srcs, reduce_op, scales)
    core = current()
    skip = oob_mode is enums.oob_mode.skip
    padded = (dst, *srcs, *(None for _ in range(len(_NAMES) - len(srcs))))
    facts = (("oob_mode", oob_mode),)
    where = DMA_COMPUTE.check(core, enums.engine.unknown, padded, facts)
    gathered = [src for src in srcs if isinstance(src.indirection, VectorOffset)]
    if gathered:
        _require_read_modify_write(dst, srcs, unique_indices=unique_indices)
    reads = (*srcs, *index_tensors(dst, *gathered))
    options = (("indirect", bool(gathered)),)
    handle = core.issue("dma_compute", where, (dst,), reads, options, name)
    if core.values:
        _compute(dst, tuple(srcs), skip=skip)
    return NkiInstruction(handle)


def _require_plain_sum(
    srcs: Sequence[NkiTensor], reduce_op: object, scales: Sequence[float] | None
) -> None:
    who, most = "dma_compute", len(_NAMES)
    if not isinstance(srcs, (list, tuple)) or not 1 <= len(srcs) <= most:
        count = len(srcs) if isinstance(srcs, (list, tuple)) else type(srcs).__name__
        refuse(who, f"srcs: {count}", f"a list of 1..{most} tensors", "sum in several steps")
    if reduce_op is not operators.add:
        refuse(who, f"reduce_op={reduce_op!r}", "nl.add", "combine with tensor_tensor in SBUF")
    if scales is not None and (len(scales) != len(srcs) or any(scale != 1 for scale in scales)):
        refuse(who, f"scales={scales}", "None, or 1.0 for every source", "scale in SBUF")


def _require_read_modify_write(
    dst: NkiTensor, srcs: Sequence[NkiTensor], *, unique_indices: bool
) -> None:
    if unique_indices is not True:
        raise UnsupportedError(
            f"unique_indices={unique_indices!r} with vector_offset",
            instruction="dma_compute",
            limit="repeated row numbers are not supported by NKI 0.6",
            remedy="make the row numbers unique and pass unique_indices=True",
        )
    if not any(_same_view(dst, src) and _same_rows(dst, src) for src in srcs):
        refuse(
            "dma_compute",
            f"dst {dst!r} beside sources {list(srcs)}",
            "with vector_offset, one source is the very view that dst is",
            "pass dst among the sources",
        )


def _same_rows(first: NkiTensor, second: NkiTensor) -> bool:
    rows, others = first.indirection, second.indirection
    if not (isinstance(rows, VectorOffset) and isinstance(others, VectorOffset)):
        return rows is None and others is None
    return rows.unit_elems == others.unit_elems and _same_view(rows.rows, others.rows)


def _same_view(first: NkiTensor, second: NkiTensor) -> bool:
    return (
        first.storage is second.storage
        and first.layout is second.layout
        and first.offset == second.offset
    )


def _compute(dst: NkiTensor, srcs: tuple[NkiTensor, ...], *, skip: bool) -> None:
    gathered = [src for src in srcs if isinstance(src.indirection, VectorOffset)]
    if not gathered:
        store_floats(dst, _total([floats(src).reshape(dst.shape) for src in srcs]))
    elif isinstance(dst.indirection, VectorOffset):
        plain = next(src for src in srcs if src is not gathered[0])
        _scatter_add(dst, dst.indirection, floats(plain).reshape(dst.shape), skip=skip)
    else:
        _gather_add(dst, gathered[0], skip=skip)


def _total(values: list[Array]) -> Array:
    total = values[0]
    with np.errstate(all="ignore"):
        for value in values[1:]:
            total = total + value
    return total


def _scatter_add(dst: NkiTensor, rows: VectorOffset, added: Array, *, skip: bool) -> None:
    """dst[number] += its row of `added`, for every row number."""
    numbers, inside = row_numbers(dst, rows)
    _require_inside(numbers, inside, skip=skip)
    _require_unique(numbers[inside])
    for position in np.flatnonzero(inside):
        number = int(numbers[position])
        old = dtypes.to_float32(read_row(dst, rows, number), dst.dtype)
        write_row(dst, rows, number, _cast(_total([old, added[position].reshape(old.shape)]), dst))


def _gather_add(dst: NkiTensor, source: NkiTensor, *, skip: bool) -> None:
    """dst += the numbered rows of `source`; rows that are skipped keep their bits."""
    rows = source.indirection
    assert isinstance(rows, VectorOffset), "picked for it"
    numbers, inside = row_numbers(source, rows)
    _require_inside(numbers, inside, skip=skip)
    values = np.array(held(dst)).reshape(source.shape[0], -1)
    for position in np.flatnonzero(inside):
        row = dtypes.to_float32(read_row(source, rows, int(numbers[position])), source.dtype)
        old = dtypes.to_float32(values[position], dst.dtype)
        values[position] = _cast(_total([old, row.reshape(-1)]), dst)
    store_held(dst, values)


def _cast(values: Array, like: NkiTensor) -> Array:
    return dtypes.from_float32(values, like.dtype, precise=like.storage.precise)


def _require_inside(numbers: Array, inside: Array, *, skip: bool) -> None:
    if not skip and not inside.all():
        refuse(
            "dma_compute",
            f"row number {int(numbers[~inside][0])}",
            "rows inside the tensor",
            "fix the row numbers, or pass oob_mode.skip",
        )


def _require_unique(numbers: Array) -> None:
    values, counts = np.unique(numbers, return_counts=True)
    if (counts > 1).any():
        refuse(
            "dma_compute",
            f"row number {int(values[counts > 1][0])} twice in one scatter",
            "unique_indices=True promises that every row occurs once",
            "split the scatter so that no call repeats a row",
        )

"""DMA: dma_copy between HBM and SBUF, with run-time offsets and gathers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nkisim import enums
from nkisim.device_rules.instruction_rules import SKIP_IN_LOOP
from nkisim.isa.call import Call
from nkisim.isa.contract import DMA_REACH, Contract, Operand
from nkisim.isa.move import castable, copy_elements
from nkisim.isa.operands import NkiInstruction, held, index_tensors, store_held
from nkisim.machine import V3, V4
from nkisim.numerics import dtypes
from nkisim.running.session import current
from nkisim.tensors.indirection import leaves, read_row, row_numbers, write_row
from nkisim.tensors.tensor import FreeIndex, VectorOffset

if TYPE_CHECKING:
    from nkisim.isa.operands import Array
    from nkisim.tensors.tensor import NkiTensor

__all__ = [
    "DMA_COPY",
    "check_modes",
    "check_priority",
    "dma_copy",
    "index_tensors",
    "no_free_index",
]


def _same_count(call: Call) -> None:
    dst, src = call["dst"], call["src"]
    if dst.size != src.size:
        call.refuse(
            f"dst {dst.shape} has {dst.size} elements, src {src.shape} has {src.size}",
            "both sides have the same number of elements",
            "slice or broadcast one side",
        )


def _scalar_types(call: Call) -> None:
    """int64 is copied bit by bit: nothing casts it."""
    types = {call["dst"].dtype, call["src"].dtype}
    if len(types) > 1 and types.intersection(dtypes.SCALAR_ONLY):
        call.refuse(
            f"a copy of {call['src'].dtype} to {call['dst'].dtype}",
            "int64 is copied to int64 only; no engine casts it",
            "read it with nisa.scalar_load, or make it int32 on the host",
        )


def _descriptor_mode(call: Call) -> None:
    mode, machine = call.facts["dge_mode"], call.machine
    gathered = any(isinstance(t.indirection, VectorOffset) for t in call.tensors.values())
    if mode is enums.dge_mode.hwdge:
        if machine.generation < V3:
            call.refuse(
                f"dge_mode.hwdge on {machine.name}",
                "hardware descriptor generation exists from NeuronCore-v3 on",
                "use dge_mode.swdge or none",
            )
        if call["dst"].dtype != call["src"].dtype:
            call.refuse(
                f"dge_mode.hwdge from {call['src'].dtype} to {call['dst'].dtype}",
                "hardware descriptor generation does not cast",
                "use equal dtypes, or dge_mode.unknown",
            )
    if gathered and mode not in (enums.dge_mode.unknown, enums.dge_mode.swdge):
        call.refuse(
            f"vector_offset with dge_mode.{mode.name}",
            "gathers need software descriptor generation",
            "use dge_mode.unknown or swdge",
        )


def _row_numbers(call: Call) -> None:
    """A gather or a scatter has one row number a row, in one column of an SBUF tile."""
    gathered = [n for n, t in call.tensors.items() if isinstance(t.indirection, VectorOffset)]
    if len(gathered) > 1:
        call.refuse(
            "vector_offset on dst and on src", "one side is gathered or scattered", "use two copies"
        )
    for name in gathered:
        indirection = call[name].indirection
        assert isinstance(indirection, VectorOffset), "picked above"
        wanted = (call[name].shape[0], 1)
        if indirection.rows.shape[:2] != wanted:
            call.refuse(
                f"{name} {call[name].shape} with row numbers {indirection.rows.shape}",
                f"{wanted}: one row number per row",
                "slice the tile of row numbers",
            )


def _trigger_engine(call: Call) -> None:
    trigger, mode = call.facts["trigger"], call.facts["dge_mode"]
    if not isinstance(trigger, enums.engine):
        call.refuse(f"engine={trigger!r}", "a member of nisa.engine", "use nisa.engine.sync ...")
    if trigger is enums.engine.unknown:
        return
    if mode is not enums.dge_mode.hwdge or trigger not in (enums.engine.sync, enums.engine.scalar):
        call.refuse(
            f"engine.{trigger.name} with dge_mode.{mode.name}",
            "engine.sync or engine.scalar, with dge_mode.hwdge",
            "leave the engine out, or use hwdge",
        )


def check_priority(call: Call) -> None:
    """priority is 0..3 and exists from NeuronCore-v4 on."""
    priority = call.facts["priority"]
    if priority is None:
        return
    if call.machine.generation < V4 or priority not in range(4):
        call.refuse(
            f"priority={priority} on {call.machine.name}",
            "0..3, from NeuronCore-v4 on",
            "leave the priority out",
        )


def no_free_index(call: Call) -> None:
    """`.indirect()` views belong to compute engines."""
    for name, tensor in call.tensors.items():
        if isinstance(tensor.indirection, FreeIndex):
            call.refuse(
                f"{name} is a view made by .indirect()",
                "DMA gathers by vector_offset",
                "use tensor_copy with .indirect(), or .ap(vector_offset=...)",
            )


def check_modes(call: Call) -> None:
    """Enum arguments are enum members."""
    for name, kind in (("dge_mode", enums.dge_mode), ("oob_mode", enums.oob_mode)):
        if name in call.facts and not isinstance(call.facts[name], kind):
            call.refuse(
                f"{name}={call.facts[name]!r}", f"a member of nisa.{name}", f"use nisa.{name}.…"
            )


DMA_COPY = Contract(
    "dma_copy",
    (enums.engine.dma,),
    (Operand("dst", DMA_REACH, writes=True), Operand("src", DMA_REACH)),
    (
        check_modes,
        _same_count,
        castable,
        _scalar_types,
        _descriptor_mode,
        _row_numbers,
        _trigger_engine,
        check_priority,
        no_free_index,
    ),
)


def dma_copy(
    dst: NkiTensor,
    src: NkiTensor,
    priority: int | None = None,
    oob_mode: enums.oob_mode = enums.oob_mode.error,
    dge_mode: enums.dge_mode = enums.dge_mode.unknown,
    engine: enums.engine = enums.engine.unknown,
    name: str | None = None,
) -> NkiInstruction:
    """dst = src in row-major order of both views; differing dtypes are cast through float32."""
    core = current()
    skip = oob_mode is enums.oob_mode.skip
    facts = (
        ("dge_mode", dge_mode),
        ("trigger", engine),
        ("priority", priority),
        ("oob_mode", oob_mode),
    )
    if skip:
        core.in_loop_breaks(SKIP_IN_LOOP, "oob_mode.skip in a device loop", "dma_copy")
    where = DMA_COPY.check(core, enums.engine.unknown, (dst, src), facts, may_leave=skip)
    handle = core.issue("dma_copy", where, (dst,), (src, *index_tensors(dst, src)), facts[:3], name)
    if core.values:
        _copy(dst, src, skip=skip)
    return NkiInstruction(handle)


def _copy(dst: NkiTensor, src: NkiTensor, *, skip: bool) -> None:
    if not skip:
        copy_elements(dst, src)
    elif not leaves(dst) and not leaves(src):
        _copy_inside(dst, src)


def _copy_inside(dst: NkiTensor, src: NkiTensor) -> None:
    """Rows whose number lies outside of the tensor are not read, and leave dst as it is."""
    gather, scatter = src.indirection, dst.indirection
    if isinstance(gather, VectorOffset):
        numbers, inside = row_numbers(src, gather)
        values = np.array(held(dst)).reshape(src.shape)
        for position in np.flatnonzero(inside):
            row = read_row(src, gather, int(numbers[position]))
            values[position] = _cast(row, src.dtype, dst)
        store_held(dst, values)
    elif isinstance(scatter, VectorOffset):
        numbers, inside = row_numbers(dst, scatter)
        values = _cast(held(src), src.dtype, dst).reshape(dst.shape)
        for position in np.flatnonzero(inside):
            write_row(dst, scatter, int(numbers[position]), values[position])
    else:
        copy_elements(dst, src)


def _cast(values: Array, dtype: str, like: NkiTensor) -> Array:
    """Held values of `dtype` as held values of the type of `like`."""
    if dtype == like.dtype:
        return values
    return dtypes.from_float32(
        dtypes.to_float32(values, dtype), like.dtype, precise=like.storage.precise
    )

"""Transposes: nc_transpose on the Tensor and Vector engines, dma_transpose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nkisim import enums
from nkisim.device_rules.instruction_rules import BF16_TRANSPOSE, SKIP_IN_LOOP, TRANSPOSE_SKIP
from nkisim.isa.call import Call
from nkisim.isa.contract import CHIP, DMA_REACH, SBUF, Contract, Operand
from nkisim.isa.dma import check_modes, check_priority, no_free_index
from nkisim.isa.indirect_views import not_indirect
from nkisim.isa.matmul_rules import one_bank, refuse_fp8_transpose
from nkisim.isa.operands import (
    NkiInstruction,
    floats,
    held,
    index_tensors,
    rows,
    store_floats,
    store_held,
)
from nkisim.isa.rules import same_dtype
from nkisim.machine import V3
from nkisim.memory.layout import HBM, MemoryRegion
from nkisim.numerics import dtypes
from nkisim.running.session import Session, current
from nkisim.tensors.indirection import leaves, read_row, row_numbers
from nkisim.tensors.tensor import VectorOffset

if TYPE_CHECKING:
    from nkisim.tensors.tensor import NkiTensor

_HALVES = frozenset({"bfloat16", "float16"})
_AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}


def _engine_by_place(call: Call) -> enums.engine:
    into_psum = "dst" in call and call["dst"].buffer is MemoryRegion.psum
    from_sbuf = "data" in call and call["data"].buffer is MemoryRegion.sbuf
    return enums.engine.tensor if into_psum and from_sbuf else enums.engine.vector


def _reach_and_size(call: Call) -> None:
    data, machine = call["data"], call.machine
    on_tensor = call.engine is enums.engine.tensor
    if on_tensor and _engine_by_place(call) is not enums.engine.tensor:
        call.refuse(
            f"data in {data.buffer.value} and dst in {call['dst'].buffer.value} on engine.tensor",
            "the Tensor engine reads SBUF and writes PSUM",
            "use engine.vector, or place the tiles there",
        )
    most = machine.partitions if on_tensor else machine.vector_transpose_max
    if max(data.shape[0], data.layout.elems) > most:
        call.refuse(
            f"data of {data.shape[0]} x {data.layout.elems} on engine.{call.engine.name}",
            f"{most} partitions x {most} elements",
            "transpose in blocks" + ("" if on_tensor else ", or into PSUM by the Tensor engine"),
        )
    if on_tensor:
        refuse_fp8_transpose(call, data)


def _swapped(call: Call) -> None:
    dst, data = call["dst"], call["data"]
    if (dst.shape[0], dst.layout.elems) != (data.layout.elems, data.shape[0]):
        call.refuse(
            f"dst is {dst.shape[0]} x {dst.layout.elems}",
            f"{data.layout.elems} partitions x {data.shape[0]} elements for this data",
            "swap partitions and elements",
        )


def _type_of_dst(call: Call) -> None:
    """dst has the type of data; the Tensor engine of NeuronCore-v2 also writes 16-bit as fp32."""
    dst, data = call["dst"], call["data"]
    multiplies = call.engine is enums.engine.tensor and call.machine.generation < V3
    if not multiplies or data.dtype not in _HALVES:
        same_dtype("dst", "data")(call)
    elif dst.dtype != "float32":
        same_dtype("dst", "data")(call)
        call.breaks(BF16_TRANSPOSE, f"dst is {dst.dtype} in psum")


NC_TRANSPOSE = Contract(
    "nc_transpose",
    (enums.engine.tensor, enums.engine.vector),
    (Operand("dst", CHIP, writes=True), Operand("data", CHIP)),
    (_reach_and_size, _swapped, _type_of_dst, one_bank, not_indirect),
    choose=_engine_by_place,
)


def nc_transpose(
    dst: NkiTensor,
    data: NkiTensor,
    engine: enums.engine = enums.engine.unknown,
    name: str | None = None,
) -> NkiInstruction:
    """dst = data with partitions and (flattened) free elements swapped.

    Bit for bit, but for the Tensor engine of NeuronCore-v2: it multiplies by an identity matrix,
    which spreads NaN and infinity over their row of dst.
    """
    core = current()
    where = NC_TRANSPOSE.check(core, engine, (dst, data))
    reads = (data, *index_tensors(dst, data))
    handle = core.issue("nc_transpose", where, (dst,), reads, (), name)
    if core.values:
        _swap(core, where, dst, data)
    return NkiInstruction(handle)


def _swap(core: Session, where: enums.engine, dst: NkiTensor, data: NkiTensor) -> None:
    multiplies = where is enums.engine.tensor and core.machine.generation < V3
    if multiplies and dtypes.is_float(data.dtype) and not np.isfinite(floats(data)).all():
        with np.errstate(all="ignore"):
            store_floats(dst, rows(data).T @ np.eye(data.shape[0], dtype=np.float32))
    else:
        store_held(dst, np.array(held(data)).reshape(data.shape[0], -1).T)


def _permutation(call: Call) -> None:
    src, dst, axes = call["src"], call["dst"], call.facts["axes"]
    wanted = _AXES.get(src.ndim)
    if wanted is None or axes not in (None, wanted):
        call.refuse(
            f"axes={axes} of a {src.ndim}-dimensional src",
            f"one of {', '.join(str(known) for known in _AXES.values())}",
            "reshape src, and leave axes out",
        )
    shape = tuple(src.shape[axis] for axis in wanted)
    if dst.shape != shape:
        call.refuse(
            f"dst {dst.shape} for src {src.shape}",
            f"dst is exactly {shape}, the permuted shape of src",
            "reshape dst",
        )


def _element_size(call: Call) -> None:
    size, indirect = call["src"].layout.itemsize_bytes, _indices(call) is not None
    restricted = indirect or call.facts["dge_mode"] is enums.dge_mode.hwdge
    legal = (2,) if restricted else (2, 4)
    if size not in legal:
        call.refuse(
            f"elements of {size} bytes ({call['src'].dtype})",
            f"{' or '.join(str(legal_size) for legal_size in legal)} bytes",
            "view the tensor as a type of that size, or use nc_transpose",
        )


def _indices(call: Call) -> NkiTensor | None:
    indirection = call["src"].indirection
    return indirection.rows if isinstance(indirection, VectorOffset) else None


def _mode(call: Call) -> None:
    mode, indirect = call.facts["dge_mode"], _indices(call) is not None
    other = enums.dge_mode.swdge if indirect else enums.dge_mode.hwdge
    if mode not in (enums.dge_mode.unknown, other):
        call.refuse(
            f"dge_mode.{mode.name} with{'' if indirect else 'out'} vector_offset",
            f"dge_mode.unknown or {other.name}",
            "leave dge_mode out",
        )
    if mode is not enums.dge_mode.unknown or indirect:
        _require_v3(call, f"dge_mode.{mode.name}" if mode is other else "vector_offset")
    if call.facts["oob_mode"] is enums.oob_mode.skip and call["src"].indirection is None:
        call.refuse(
            "oob_mode.skip on a static src", "src has a run-time offset", "leave oob_mode out"
        )


def _require_v3(call: Call, what: str) -> None:
    if call.machine.generation < V3:
        call.refuse(
            f"{what} on {call.machine.name}", "exists from NeuronCore-v3 on", "leave it out"
        )


def _hardware_descriptors(call: Call) -> None:
    if call.facts["dge_mode"] is not enums.dge_mode.hwdge:
        return
    shape, unit = call["src"].shape, call.machine.dma_transpose_rows
    if len(shape) == 2:
        legal, limit = shape[0] == unit, f"src.shape[0] is {unit}"
    else:
        legal = unit % shape[0] == 0 and shape[0] * shape[-2] % unit == 0
        limit = f"src.shape[0] divides {unit}, and {unit} divides src.shape[0] * src.shape[-2]"
    if not legal:
        call.refuse(f"dge_mode.hwdge with src {shape}", limit, "leave dge_mode out")


def _gathered_rows(call: Call) -> None:
    indices = _indices(call)
    if indices is None:
        return
    if call.facts["oob_mode"] is enums.oob_mode.skip:
        call.breaks(TRANSPOSE_SKIP, "vector_offset with oob_mode.skip")
    src, unit, most = call["src"], call.machine.dma_transpose_rows, call.machine.partitions
    height, width = indices.shape
    broken = (
        (src.buffer not in HBM, f"src in {src.buffer.value}", "src in HBM"),
        (src.ndim == 4 and 1 not in src.shape[1:3], f"src {src.shape}", "dimension 1 or 2 is 1"),
        (src.shape[0] % unit != 0, f"{src.shape[0]} rows", f"a multiple of {unit} rows"),
        (indices.dtype != "uint32", f"row numbers of {indices.dtype}", "uint32"),
        (
            height % unit != 0 or (width > 1 and height != most),
            f"row numbers {indices.shape}",
            f"a multiple of {unit} partitions, and {most} if there is more than one column",
        ),
    )
    for is_broken, what, limit in broken:
        if is_broken:
            call.refuse(f"vector_offset: {what}", limit, "gather with dma_copy, then transpose")


DMA_TRANSPOSE = Contract(
    "dma_transpose",
    (enums.engine.dma,),
    (Operand("dst", SBUF, writes=True), Operand("src", DMA_REACH)),
    (
        check_modes,
        no_free_index,
        same_dtype("dst", "src"),
        _permutation,
        _mode,
        _element_size,
        _hardware_descriptors,
        _gathered_rows,
        check_priority,
    ),
)


def dma_transpose(
    dst: NkiTensor,
    src: NkiTensor,
    axes: tuple[int, ...] | None = None,
    priority: int | None = None,
    dge_mode: enums.dge_mode = enums.dge_mode.unknown,
    oob_mode: enums.oob_mode = enums.oob_mode.error,
    name: str | None = None,
) -> NkiInstruction:
    """dst = src transposed by (1, 0), (2, 1, 0) or (3, 1, 2, 0), after its number of dimensions.

    Rows gathered by vector_offset are numbered column by column of the tile of row numbers.
    """
    core = current()
    skip = oob_mode is enums.oob_mode.skip
    facts = (
        ("dge_mode", dge_mode),
        ("priority", priority),
        ("oob_mode", oob_mode),
        ("axes", None if axes is None else tuple(axes)),
    )
    if skip:
        core.in_loop_breaks(SKIP_IN_LOOP, "oob_mode.skip in a device loop", "dma_transpose")
    where = DMA_TRANSPOSE.check(core, enums.engine.unknown, (dst, src), facts, may_leave=skip)
    reads = (src, *index_tensors(dst, src))
    handle = core.issue("dma_transpose", where, (dst,), reads, facts[:2], name)
    if core.values:
        _transpose(dst, src, skip=skip)
    return NkiInstruction(handle)


def _transpose(dst: NkiTensor, src: NkiTensor, *, skip: bool) -> None:
    axes = _AXES[src.ndim]  # each of them is its own inverse
    if skip and isinstance(src.indirection, VectorOffset):
        numbers, inside = row_numbers(src, src.indirection)
        values = np.array(held(dst)).transpose(axes)
        for position in np.flatnonzero(inside):
            values[position] = read_row(src, src.indirection, int(numbers[position]))
        store_held(dst, values.transpose(axes))
    elif not skip or not (leaves(src) or leaves(dst)):
        store_held(dst, np.array(held(src)).transpose(axes))

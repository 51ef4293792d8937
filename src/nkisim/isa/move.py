"""Copies inside SBUF and PSUM: tensor_copy, memset, and what `tile[...] = value` means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nkisim import dtypes, enums
from nkisim.isa.contract import CHIP, Call, Contract, Operand
from nkisim.isa.operands import NkiInstruction, floats, held, store_floats, store_held
from nkisim.isa.rules import same_elements, same_partitions
from nkisim.layout import HBM
from nkisim.machine import V3
from nkisim.session import current
from nkisim.tensor import define_assignment

if TYPE_CHECKING:
    from nkisim.tensor import NkiTensor


def copy_elements(dst: NkiTensor, src: NkiTensor) -> None:
    """dst = src: bit for bit between equal dtypes, else through float32."""
    if dst.dtype == src.dtype:
        store_held(dst, np.array(held(src)))
    else:
        store_floats(dst, floats(src))


def _scalar_engine_copies(call: Call) -> None:
    if call.engine is enums.engine.scalar and call.machine.generation < V3:
        call.refuse(
            f"engine.scalar on {call.machine.name}",
            "the Scalar engine copies tensors from NeuronCore-v3 on",
            "use nisa.activation(op=nl.copy) or the Vector engine",
        )


TENSOR_COPY = Contract(
    "tensor_copy",
    (enums.engine.vector, enums.engine.scalar, enums.engine.gpsimd),
    (Operand("dst", CHIP, writes=True), Operand("src", CHIP)),
    (_scalar_engine_copies, same_partitions("dst", "src"), same_elements("dst", "src")),
)


def tensor_copy(
    dst: NkiTensor,
    src: NkiTensor,
    engine: enums.engine = enums.engine.unknown,
    name: str | None = None,
) -> NkiInstruction:
    """dst = src within SBUF and PSUM; elements pair up in row-major order of the free axes."""
    core = current()
    where = TENSOR_COPY.check(core, engine, (dst, src))
    handle = core.issue("tensor_copy", where, (dst,), (src,), (), name)
    if core.values:
        copy_elements(dst, src)
    return NkiInstruction(handle)


def _value_suits_dtype(call: Call) -> None:
    dst, kind = call["dst"], call.facts["kind"]
    if dtypes.is_integer(dst.dtype) and kind == "float":
        call.refuse(
            f"a float value into a {dst.dtype} tile",
            "integer tiles take integer values",
            "pass an integer",
        )
    if dtypes.is_packed(dst.dtype) and not call.facts["zero"]:
        call.refuse(
            f"a non-zero value into a {dst.dtype} tile",
            "packed tiles are set to 0 only",
            "view the tile as an integer type",
        )


MEMSET = Contract(
    "memset",
    (enums.engine.vector, enums.engine.gpsimd),
    (Operand("dst", CHIP, writes=True),),
    (_value_suits_dtype,),
)


def memset(
    dst: NkiTensor,
    value: float,
    engine: enums.engine = enums.engine.unknown,
    name: str | None = None,
) -> NkiInstruction:
    """dst = value."""
    core = current()
    facts = (("kind", type(value).__name__), ("zero", value == 0))
    where = MEMSET.check(core, engine, (dst,), facts)
    handle = core.issue("memset", where, (dst,), (), facts[1:], name)
    if core.values:
        _fill(dst, value)
    return NkiInstruction(handle)


def _fill(dst: NkiTensor, value: float) -> None:
    if dtypes.is_float(dst.dtype):
        store_floats(dst, np.full(dst.shape, value, np.float32))
    else:
        store_held(dst, np.full(dst.shape, value, dtypes.held_dtype(dst.dtype)))


def assign(dst: NkiTensor, src: NkiTensor) -> None:
    """`tile[...] = value`: a copy by the engine that reaches both sides."""
    from nkisim.isa.dma import dma_copy  # noqa: PLC0415 (dma copies elements with this module)

    if dst.buffer in HBM or src.buffer in HBM:
        dma_copy(dst, src)
    else:
        tensor_copy(dst, src)


define_assignment(assign)

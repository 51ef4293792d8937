"""Copies inside SBUF and PSUM: tensor_copy, memset, and what `tile[...] = value` means."""

from __future__ import annotations

from enum import Enum

import numpy as np

from nkisim import enums
from nkisim.isa.call import Call
from nkisim.isa.contract import CHIP, Contract, Operand
from nkisim.isa.indirect_views import may_be_indirect, not_indirect
from nkisim.isa.operands import (
    NkiInstruction,
    floats,
    held,
    index_tensors,
    store_floats,
    store_held,
)
from nkisim.isa.rules import same_elements, same_partitions
from nkisim.machine import V3
from nkisim.numerics import dtypes
from nkisim.running.session import current
from nkisim.tensors.tensor import FreeIndex, NkiTensor, ScalarOffset


def copy_elements(dst: NkiTensor, src: NkiTensor) -> None:
    """dst = src: bit for bit between equal dtypes, else through float32."""
    if dst.dtype == src.dtype:
        values = held(src)
        # Views by an index may overlap: all is read before anything is written.
        store_held(dst, values.copy() if dst.storage is src.storage else values)
    else:
        store_floats(dst, floats(src))


def _scalar_engine_copies(call: Call) -> None:
    if call.engine is enums.engine.scalar and call.machine.generation < V3:
        call.refuse(
            f"engine.scalar on {call.machine.name}",
            "the Scalar engine copies tensors from NeuronCore-v3 on",
            "use nisa.activation(op=nl.copy) or the Vector engine",
        )


def _indirect_engine(call: Call) -> None:
    gathered = any(isinstance(t.indirection, FreeIndex) for t in call.tensors.values())
    if gathered and call.engine is enums.engine.gpsimd:
        call.refuse(
            "a view made by .indirect() on engine.gpsimd",
            "the Vector and the Scalar engine copy through an index",
            "use engine.vector, or nisa.local_gather",
        )


def castable(call: Call) -> None:
    """Packed types are moved, not converted."""
    dst, src = call["dst"].dtype, call["src"].dtype
    if dst != src and (dtypes.is_packed(dst) or dtypes.is_packed(src)):
        call.refuse(f"{src} to {dst}", "packed types are copied, not cast", "use equal dtypes")


TENSOR_COPY = Contract(
    "tensor_copy",
    (enums.engine.vector, enums.engine.scalar, enums.engine.gpsimd),
    (Operand("dst", CHIP, writes=True), Operand("src", CHIP)),
    (
        _scalar_engine_copies,
        same_partitions("dst", "src"),
        same_elements("dst", "src"),
        castable,
        may_be_indirect("dst", "src"),
        _indirect_engine,
    ),
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
    dynamic = isinstance(dst.indirection, ScalarOffset) or isinstance(src.indirection, ScalarOffset)
    options = (("dynamic", True),) if dynamic else ()
    reads = (src, *index_tensors(dst, src))
    handle = core.issue("tensor_copy", where, (dst,), reads, options, name)
    if core.values:
        copy_elements(dst, src)
    return NkiInstruction(handle)


def _value_suits_dtype(call: Call) -> None:
    dtype, value = call["dst"].dtype, call.facts["value"]
    if value is _Value.not_a_number:
        call.refuse("a value that is no number", "a number known at compile time", "pass a number")
    if dtypes.is_integer(dtype) and value is not _Value.integer_that_fits:
        call.refuse(
            f"{value.value} into a {dtype} tile",
            "integer tiles take integers of their range",
            "pass such an integer, or set a float tile and cast it",
        )
    if dtypes.is_packed(dtype) and not call.facts["zero"]:
        call.refuse(
            f"a non-zero value into a {dtype} tile",
            "packed tiles are set to 0 only",
            "view the tile as an integer type",
        )


class _Value(Enum):
    """What a memset value is to the dtype of its tile."""

    integer_that_fits = "an integer"
    integer_too_large = "an integer out of range"
    float = "a float"
    not_a_number = "no number"


def _kind(value: object, dtype: str) -> _Value:
    if isinstance(value, (float, np.floating)):
        return _Value.float
    if not isinstance(value, (int, np.integer)):
        return _Value.not_a_number
    if not dtypes.is_integer(dtype):
        return _Value.integer_that_fits
    limits = np.iinfo(dtypes.held_dtype(dtype))
    fits = limits.min <= value <= (1 if dtype == "bool" else limits.max)
    return _Value.integer_that_fits if fits else _Value.integer_too_large


MEMSET = Contract(
    "memset",
    (enums.engine.vector, enums.engine.gpsimd),
    (Operand("dst", CHIP, writes=True),),
    (_value_suits_dtype, not_indirect),
)


def memset(
    dst: NkiTensor,
    value: float,
    engine: enums.engine = enums.engine.unknown,
    name: str | None = None,
) -> NkiInstruction:
    """dst = value."""
    core = current()
    dtype = dst.dtype if isinstance(dst, NkiTensor) else "float32"  # the contract refuses the rest
    facts = (("value", _kind(value, dtype)), ("zero", value == 0))
    where = MEMSET.check(core, engine, (dst,), facts)
    handle = core.issue("memset", where, (dst,), index_tensors(dst), facts[1:], name)
    if core.values:
        _fill(dst, value)
    return NkiInstruction(handle)


def _fill(dst: NkiTensor, value: float) -> None:
    if dtypes.is_float(dst.dtype):
        with np.errstate(over="ignore"):
            store_floats(dst, np.full(dst.shape, value, np.float32))
    else:
        store_held(dst, np.full(dst.shape, value, dtypes.held_dtype(dst.dtype)))

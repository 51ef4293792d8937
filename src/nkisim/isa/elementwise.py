"""Element-wise arithmetic of whole tiles: tensor_tensor, scalar_tensor_tensor, reciprocal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nkisim import enums
from nkisim.isa.call import Call
from nkisim.isa.contract import CHIP, Contract, Operand
from nkisim.isa.element_types import NUMBERS, WORDS
from nkisim.isa.indirect_views import may_be_indirect, not_indirect, with_indices
from nkisim.isa.operands import NkiInstruction, floats, held, store_floats, store_held
from nkisim.isa.operator_rules import binary_operator, bitvec_types, operator_with_scalar
from nkisim.isa.rules import not_both_in_psum, one_column, same_elements, same_partitions
from nkisim.isa.scalars import Scalar, combine, kind, spread, tile, tiles
from nkisim.memory.layout import MemoryRegion
from nkisim.numerics import dtypes, operators
from nkisim.numerics.operators.operator import Operator
from nkisim.running.session import current

if TYPE_CHECKING:
    from nkisim.isa.operands import Array
    from nkisim.tensors.tensor import NkiTensor

VECTOR, GPSIMD = enums.engine.vector, enums.engine.gpsimd


def _all_words(call: Call) -> bool:
    return all(tensor.dtype in WORDS for tensor in call.tensors.values())


def _tensor_tensor_engine(call: Call) -> enums.engine:
    op = call.facts["op"]
    in_psum = any(tensor.buffer is MemoryRegion.psum for tensor in call.tensors.values())
    exact = isinstance(op, Operator) and op.arithmetic and _all_words(call)
    return GPSIMD if op is operators.power or (exact and not in_psum) else VECTOR


def _engine_has_operator(call: Call) -> None:
    op = call.facts["op"]
    if op is operators.power and call.engine is not GPSIMD:
        call.refuse(f"{op!r} on engine.vector", "nl.power runs on GpSimd", "leave the engine out")
    if op.bitvec and call.engine is not VECTOR:
        call.refuse(
            f"{op!r} on engine.gpsimd",
            "bitvec operators run on the Vector engine",
            "leave the engine out",
        )


TENSOR_TENSOR = Contract(
    "tensor_tensor",
    (VECTOR, GPSIMD),
    (
        Operand("dst", CHIP, NUMBERS, writes=True),
        Operand("data1", CHIP, NUMBERS),
        Operand("data2", CHIP, NUMBERS),
    ),
    (
        binary_operator("op", bitvec=True),
        _engine_has_operator,
        bitvec_types("op", "dst", "data1", "data2"),
        same_partitions("dst", "data1", "data2"),
        same_elements("dst", "data1", "data2"),
        not_both_in_psum("data1", "data2"),
        may_be_indirect("dst", "data1"),
    ),
    choose=_tensor_tensor_engine,
)


def tensor_tensor(
    dst: NkiTensor,
    data1: NkiTensor,
    data2: NkiTensor,
    op: Operator,
    engine: enums.engine = enums.engine.unknown,
    name: str | None = None,
) -> NkiInstruction:
    """dst = data1 <op> data2, element by element in row-major order of the free axes.

    In float32, except that bitvec operators work on bits, and that GpSimd, where int32 and uint32
    go unless told otherwise, computes these as integers modulo 2**32.
    """
    core = current()
    facts = (("op", op),)
    where = TENSOR_TENSOR.check(core, engine, (dst, data1, data2), facts)
    reads = with_indices((dst,), data1, data2)
    handle = core.issue("tensor_tensor", where, (dst,), reads, (("op", op.name),), name)
    if core.values:
        if op.bitvec:
            bits = op.apply_bits(held(data1), held(data2).reshape(data1.shape))
            store_held(dst, bits.view(dtypes.held_dtype(dst.dtype)))
        elif where is GPSIMD and {dst.dtype, data1.dtype, data2.dtype} <= WORDS:
            _store_words(dst, op, held(data1), held(data2).reshape(data1.shape))
        else:
            store_floats(dst, op.apply(floats(data1), floats(data2).reshape(data1.shape)))
    return NkiInstruction(handle)


def _store_words(dst: NkiTensor, op: Operator, data1: Array, data2: Array) -> None:
    """Integer arithmetic: 64 bits hold every result but products, whose low 32 bits they hold."""
    assert op.on_floats is not None, "the contract admits arithmetic operators only"
    with np.errstate(all="ignore"):
        exact = op.on_floats(data1.astype(np.int64), data2.astype(np.int64))
    if exact.dtype.kind == "f":  # nl.power, exact in float64 as far as 32 bits reach
        store_held(dst, dtypes.from_float32(exact, dst.dtype))
    else:
        store_held(dst, exact.astype(dtypes.held_dtype(dst.dtype)))


SCALAR_TENSOR_TENSOR = Contract(
    "scalar_tensor_tensor",
    (VECTOR,),
    (
        Operand("dst", CHIP, NUMBERS, writes=True),
        Operand("data", CHIP, NUMBERS),
        Operand("operand0", CHIP, NUMBERS, optional=True),
        Operand("operand1", CHIP, NUMBERS),
    ),
    (
        operator_with_scalar("op0", "operand0", "reverse0"),
        binary_operator("op1"),
        same_partitions("dst", "data", "operand0", "operand1"),
        same_elements("dst", "data", "operand1"),
        one_column("operand0"),
        not_both_in_psum("data", "operand1"),
        not_indirect,
    ),
)


def scalar_tensor_tensor(
    dst: NkiTensor,
    data: NkiTensor,
    op0: Operator,
    operand0: Scalar,
    op1: Operator,
    operand1: NkiTensor,
    reverse0: bool = False,
    reverse1: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """dst = (data <op0> operand0) <op1> operand1: a scalar step, then a step with a tile."""
    core = current()
    facts = (("op0", op0), ("operand0", kind(operand0)), ("reverse0", reverse0), ("op1", op1))
    tensors = (dst, data, tile(operand0), operand1)
    where = SCALAR_TENSOR_TENSOR.check(core, enums.engine.unknown, tensors, facts)
    reads = with_indices((dst,), data, *tiles(operand0), operand1)
    options = (("op0", op0.name), ("op1", op1.name))
    handle = core.issue("scalar_tensor_tensor", where, (dst,), reads, options, name)
    if core.values:
        first = combine(op0, floats(data), spread(operand0, data.ndim), reverse=reverse0)
        second = floats(operand1).reshape(data.shape)
        store_floats(dst, combine(op1, first, second, reverse=reverse1))
    return NkiInstruction(handle)


RECIPROCAL = Contract(
    "reciprocal",
    (VECTOR,),
    (Operand("dst", CHIP, NUMBERS, writes=True), Operand("data", CHIP, NUMBERS)),
    (same_partitions("dst", "data"), same_elements("dst", "data"), not_indirect),
)


def reciprocal(dst: NkiTensor, data: NkiTensor, name: str | None = None) -> NkiInstruction:
    """dst = 1 / data in float32."""
    core = current()
    where = RECIPROCAL.check(core, enums.engine.unknown, (dst, data))
    handle = core.issue("reciprocal", where, (dst,), with_indices((dst,), data), (), name)
    if core.values:
        store_floats(dst, operators.reciprocal.apply(floats(data)))
    return NkiInstruction(handle)

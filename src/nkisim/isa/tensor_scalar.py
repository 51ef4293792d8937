"""tensor_scalar: one or two operators of a tile with numbers or (P, 1) tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nkisim import enums
from nkisim.errors import UnsupportedError
from nkisim.isa.call import Call
from nkisim.isa.contract import CHIP, Contract, Operand
from nkisim.isa.element_types import FP32, NUMBERS, WORDS
from nkisim.isa.indirect_views import may_be_indirect, with_indices
from nkisim.isa.operands import NkiInstruction, floats, held, store_floats, store_held
from nkisim.isa.operator_rules import bitvec_types, operator_with_scalar
from nkisim.isa.rules import one_column, same_elements, same_partitions
from nkisim.isa.scalars import NOTHING, Scalar, combine, kind, spread, tile, tiles
from nkisim.numerics import dtypes, operators
from nkisim.numerics.operators.operator import Operator
from nkisim.running.session import current
from nkisim.tensors.tensor import NkiTensor

if TYPE_CHECKING:
    from nkisim.isa.operands import Array

VECTOR, SCALAR, GPSIMD = enums.engine.vector, enums.engine.scalar, enums.engine.gpsimd

_STEP_1 = operator_with_scalar("op1", "operand1", "reverse1", bitvec=True)
_SCALAR_ENGINE_STEPS = (
    (operators.multiply, operators.add),
    (operators.multiply, None),
    (operators.add, None),
)


def _second_step(call: Call) -> None:
    """op1, operand1 and reverse1 come together; both operators are of one type."""
    op0, op1 = call.facts["op0"], call.facts["op1"]
    if op1 is None:
        if call.facts["operand1"] != NOTHING or call.facts["reverse1"]:
            call.refuse(
                "operand1 or reverse1 without op1",
                "op1, operand1 and reverse1 are for a second operator",
                "pass op1, or leave the others out",
            )
        return
    _STEP_1(call)
    if op0.bitvec != op1.bitvec:
        call.refuse(
            f"op0={op0!r} with op1={op1!r}",
            "both operators are bitvec or both are arithmetic",
            "use two instructions",
        )


def _operand_types(call: Call) -> None:
    """Tiles of arithmetic are float32; address arithmetic on 32-bit integers is not modelled."""
    if call.facts["op0"].bitvec:
        return
    for name in ("operand0", "operand1"):
        if name not in call or call[name].dtype in FP32:
            continue
        if {call[name].dtype, call["data"].dtype, call["dst"].dtype} <= WORDS:
            raise UnsupportedError(
                f"{name} is a {call[name].dtype} tile (tensor_scalar_addr)",
                instruction="tensor_scalar",
                limit="when 32-bit address arithmetic applies is not documented",
                remedy="use nisa.tensor_tensor on a broadcast view, which is exact on GpSimd",
            )
        call.refuse(f"{name} is {call[name].dtype}", "float32 tiles", "cast it to float32")


def _tensor_scalar_engine(call: Call) -> enums.engine:
    needs_gpsimd = operators.rsqrt in (call.facts["op0"], call.facts["op1"])
    return GPSIMD if needs_gpsimd else VECTOR


def _engine_has_steps(call: Call) -> None:
    steps = call.facts["op0"], call.facts["op1"]
    used = " and ".join(repr(op) for op in steps if op is not None)
    if steps[0].bitvec and call.engine is not VECTOR:
        call.refuse(
            f"{used} on engine.{call.engine.name}",
            "bitvec operators run on the Vector engine",
            "leave the engine out",
        )
    if call.engine is SCALAR and steps not in _SCALAR_ENGINE_STEPS:
        call.refuse(
            f"{used} on engine.scalar",
            "the Scalar engine does nl.multiply then nl.add, nl.multiply alone, or nl.add alone",
            "use the Vector engine, or nisa.activation",
        )
    if (call.engine is GPSIMD) != (operators.rsqrt in steps):
        call.refuse(
            f"{used} on engine.{call.engine.name}",
            "GpSimd runs nl.rsqrt and nothing else, and no other engine runs nl.rsqrt here",
            "leave the engine out; nisa.activation(op=nl.rsqrt) runs on the Scalar engine",
        )


TENSOR_SCALAR = Contract(
    "tensor_scalar",
    (VECTOR, SCALAR, GPSIMD),
    (
        Operand("dst", CHIP, NUMBERS, writes=True),
        Operand("data", CHIP, NUMBERS),
        Operand("operand0", CHIP, NUMBERS, optional=True),
        Operand("operand1", CHIP, NUMBERS, optional=True),
    ),
    (
        operator_with_scalar("op0", "operand0", "reverse0", bitvec=True),
        _second_step,
        _operand_types,
        _engine_has_steps,
        bitvec_types("op0", "dst", "data", "operand0", "operand1"),
        same_partitions("dst", "data", "operand0", "operand1"),
        same_elements("dst", "data"),
        one_column("operand0", "operand1"),
        may_be_indirect("dst", "data"),
    ),
    choose=_tensor_scalar_engine,
)


def tensor_scalar(
    dst: NkiTensor,
    data: NkiTensor,
    op0: Operator,
    operand0: Scalar,
    reverse0: bool = False,
    op1: Operator | None = None,
    operand1: Scalar = None,
    reverse1: bool = False,
    engine: enums.engine = enums.engine.unknown,
    name: str | None = None,
) -> NkiInstruction:
    """dst = (data <op0> operand0) <op1> operand1, operands broadcast along the free axes.

    A reversed step has its operand on the left. Unary operators take None or 0 for an operand.
    """
    core = current()
    facts = (
        ("op0", op0),
        ("operand0", kind(operand0)),
        ("reverse0", reverse0),
        ("op1", op1),
        ("operand1", kind(operand1)),
        ("reverse1", reverse1),
    )
    tensors = (dst, data, tile(operand0), tile(operand1))
    where = TENSOR_SCALAR.check(core, engine, tensors, facts)
    reads = with_indices((dst,), data, *tiles(operand0, operand1))
    options = (("op0", op0.name), ("op1", None if op1 is None else op1.name))
    handle = core.issue("tensor_scalar", where, (dst,), reads, options, name)
    if core.values:
        if op0.bitvec:
            bits = _combine_bits(op0, held(data), operand0, reverse=reverse0)
            if op1 is not None:
                bits = _combine_bits(op1, bits, operand1, reverse=reverse1)
            store_held(dst, bits.view(dtypes.held_dtype(dst.dtype)))
        else:
            values = combine(op0, floats(data), spread(operand0, data.ndim), reverse=reverse0)
            if op1 is not None:
                values = combine(op1, values, spread(operand1, data.ndim), reverse=reverse1)
            store_floats(dst, values)
    return NkiInstruction(handle)


def _combine_bits(op: Operator, data: Array, operand: Scalar, *, reverse: bool) -> Array:
    if op.arity == 1:
        return op.apply_bits(data)
    other: Array | int
    if isinstance(operand, NkiTensor):
        other = held(operand).reshape(-1, *(1,) * (data.ndim - 1))
    else:
        other = int(operand or 0)
    return op.apply_bits(other, data) if reverse else op.apply_bits(data, other)

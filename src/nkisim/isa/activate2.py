"""activate2: an activation function after two steps of the ALU (NeuronCore-v4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nkisim import enums
from nkisim.isa.accumulators import Reduction, reduce_commands, reducing_operator, store_reducing
from nkisim.isa.activation import SCALAR_ENGINE_COMMANDS, activated, activation_function
from nkisim.isa.call import Call
from nkisim.isa.contract import CHIP, Contract, Operand
from nkisim.isa.element_types import NUMBERS
from nkisim.isa.indirect_views import may_be_indirect, with_indices
from nkisim.isa.operands import NkiInstruction, floats
from nkisim.isa.operator_rules import operator_of
from nkisim.isa.rules import one_column, same_dtype, same_elements, same_partitions
from nkisim.isa.scalars import ZERO, Scalar, combine, kind, number_or_tile, spread, tile, tiles
from nkisim.machine import V4
from nkisim.numerics import operators
from nkisim.numerics.operators.operator import Operator
from nkisim.running.session import current
from nkisim.tensors.tensor import NkiTensor

if TYPE_CHECKING:
    from nkisim.isa.operands import Array

_Step = tuple[Operator, Scalar, bool]  # operator, immediate, reversed

_STEPS = (
    (operators.multiply, operators.add),
    (operators.multiply, operators.subtract),
    (operators.multiply, operators.bypass),
    (operators.add, operators.bypass),
    (operators.subtract, operators.bypass),
    (operators.bypass, operators.bypass),
)


def _legal_steps(call: Call) -> None:
    steps = operator_of(call, "op0"), operator_of(call, "op1")
    if steps not in _STEPS:
        legal = ", ".join(f"({first!r}, {second!r})" for first, second in _STEPS)
        call.refuse(f"(op0, op1) = {steps}", f"one of {legal}", "choose one of them")
    for op, reverse in zip(steps, ("reverse0", "reverse1"), strict=True):
        if op is operators.bypass and call.facts[reverse]:
            call.refuse(f"{reverse} with nl.bypass", f"{reverse} needs an operator", "leave it out")


def _slope_is_for_prelu(call: Call) -> None:
    if call.facts["op"] is not operators.prelu and call.facts["relu_param"] != ZERO:
        call.refuse(
            f"relu_param with {call.facts['op']!r}",
            "relu_param is the slope of nl.prelu",
            "leave it out, or use nl.prelu",
        )


ACTIVATE2 = Contract(
    "activate2",
    (enums.engine.scalar,),
    (
        Operand("dst", CHIP, NUMBERS, writes=True),
        Operand("data", CHIP, NUMBERS),
        Operand("imm0", CHIP, NUMBERS, optional=True),
        Operand("imm1", CHIP, NUMBERS, optional=True),
        Operand("relu_param", CHIP, NUMBERS, optional=True),
        Operand("reduce_res", CHIP, NUMBERS, writes=True, optional=True),
    ),
    (
        activation_function,
        _legal_steps,
        number_or_tile("imm0", "imm1", "relu_param"),
        _slope_is_for_prelu,
        same_dtype("imm0", "imm1"),
        reduce_commands(*SCALAR_ENGINE_COMMANDS),
        reducing_operator(
            operators.add,
            operators.maximum,
            operators.minimum,
            operators.abs_max,
            operators.abs_min,
            or_none=True,
        ),
        same_partitions("dst", "data", "imm0", "imm1", "relu_param", "reduce_res"),
        same_elements("dst", "data"),
        one_column("imm0", "imm1", "relu_param", "reduce_res"),
        may_be_indirect("dst", "data"),
    ),
    min_generation=V4,
)


def activate2(
    dst: NkiTensor,
    op: Operator,
    data: NkiTensor,
    imm0: float | NkiTensor,
    imm1: float | NkiTensor,
    op0: Operator,
    op1: Operator,
    relu_param: float | NkiTensor = 0.0,
    reverse0: bool = False,
    reverse1: bool = False,
    reduce_op: Operator | None = None,
    reduce_res: NkiTensor | None = None,
    reduce_cmd: enums.reduce_cmd = enums.reduce_cmd.idle,
    name: str | None = None,
) -> NkiInstruction:
    """dst = op((data <op0> imm0) <op1> imm1), and its fold over the free axes in the registers.

    A reversed step has its immediate on the left. `relu_param` is the slope of `nl.prelu`.
    """
    core = current()
    facts = (
        ("op", op),
        ("op0", op0),
        ("op1", op1),
        ("imm0", kind(imm0)),
        ("imm1", kind(imm1)),
        ("relu_param", kind(relu_param)),
        ("reverse0", reverse0),
        ("reverse1", reverse1),
        ("reduce_op", reduce_op),
        ("reduce_cmd", reduce_cmd),
    )
    tensors = (dst, data, tile(imm0), tile(imm1), tile(relu_param), reduce_res)
    where = ACTIVATE2.check(core, enums.engine.unknown, tensors, facts)
    reduction = Reduction(reduce_cmd, reduce_op or operators.add, reduce_res)
    writes = (dst, *reduction.results)
    reads = with_indices(writes, data, *tiles(imm0, imm1, relu_param))
    options = (("op", op.name), ("reduce_cmd", reduce_cmd.name))
    handle = core.issue("activate2", where, writes, reads, options, name)
    if core.values:
        steps = ((op0, imm0, reverse0), (op1, imm1, reverse1))
        values = _values(op, data, steps, relu_param)
        store_reducing(core, where, dst, data, values, reduction)
    return NkiInstruction(handle)


def _values(op: Operator, data: NkiTensor, steps: tuple[_Step, ...], slope: Scalar) -> Array:
    values = floats(data)
    for step, operand, reverse in steps:
        if step is not operators.bypass:
            values = combine(step, values, spread(operand, data.ndim), reverse=reverse)
    return activated(op, values, "activate2", spread(slope, data.ndim))

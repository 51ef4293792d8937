"""Rules about the `op` arguments of instructions: which operators, on which types, with what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nkisim.isa.element_types import INTEGERS
from nkisim.isa.scalars import INTEGER, NOTHING, NUMBERS, TILE, ZERO
from nkisim.numerics import dtypes, operators
from nkisim.numerics.operators.operator import Operator

if TYPE_CHECKING:
    from nkisim.isa.call import Call, Rule


def operator_of(call: Call, name: str) -> Operator:
    """The fact `name`, which must be an operator of nki.language."""
    op = call.facts[name]
    if not isinstance(op, Operator):
        call.refuse(f"{name}={op!r}", "an operator of nki.language", "pass one, for example nl.add")
    return op


def alu_operator_of(call: Call, name: str) -> Operator:
    """The fact `name`, which must be an operator of this generation's ALU."""
    op = operator_of(call, name)
    if not (op.arithmetic or op.bitvec) or op is operators.bypass:
        call.refuse(
            f"{name}={op!r}",
            "an element-wise ALU operator",
            "use one, for example nl.maximum instead of nl.max, or nisa.activation for functions",
        )
    if op.minimum_generation > call.machine.generation:
        call.refuse(
            f"{name}={op!r} on {call.machine.name}",
            f"the ALU has {op!r} from NeuronCore-v{op.minimum_generation} on",
            "use nisa.activation where it is a function, or other operators",
        )
    return op


def binary_operator(*names: str, bitvec: bool = False) -> Rule:
    """The named facts are binary ALU operators, arithmetic ones unless `bitvec` may be too."""

    def rule(call: Call) -> None:
        for name in names:
            op = alu_operator_of(call, name)
            if op.arity != 2:
                call.refuse(f"{name}={op!r}", "a binary operator", "use nisa.tensor_scalar")
            if op.bitvec and not bitvec:
                _refuse_bitvec(call, name, op)

    return rule


def operator_with_scalar(op_name: str, operand: str, reverse: str, *, bitvec: bool = False) -> Rule:
    """`data <op> operand`: the operand suits the operator, unary ones have none to speak of."""

    def rule(call: Call) -> None:
        op = alu_operator_of(call, op_name)
        if op.bitvec and not bitvec:
            _refuse_bitvec(call, op_name, op)
        if op.arity == 1:
            _require_no_operand(call, op, operand, reverse)
        else:
            _require_operand(call, op, operand)

    return rule


def bitvec_types(op_name: str, *names: str) -> Rule:
    """Bitvec operators see bit patterns: integers, all of one width, nothing is cast."""

    def rule(call: Call) -> None:
        op = call.facts[op_name]
        if not op.bitvec:
            return
        types = {name: call[name].dtype for name in names if name in call}
        wrong = {name: dtype for name, dtype in types.items() if dtype not in INTEGERS}
        if wrong:
            call.refuse(
                f"{op!r} on {wrong}",
                f"bitvec operators take integer types: {', '.join(sorted(INTEGERS))}",
                "view the tile as an integer type, or use an arithmetic operator",
            )
        if len({dtypes.itemsize_bytes(dtype) for dtype in types.values()}) > 1:
            call.refuse(
                f"{op!r} on {types}",
                "bitvec operators do not cast: all types have the same number of bytes",
                "cast with tensor_copy first",
            )

    return rule


def one_of(name: str, legal: tuple[Operator, ...]) -> Rule:
    """The fact `name` is one of a few operators."""
    names = ", ".join(map(repr, legal))

    def rule(call: Call) -> None:
        op = operator_of(call, name)
        if op not in legal:
            call.refuse(f"{name}={op!r}", f"one of {names}", "choose one of them")

    return rule


def _refuse_bitvec(call: Call, name: str, op: Operator) -> None:
    call.refuse(
        f"{name}={op!r}",
        "arithmetic operators only, no bitvec operators",
        "use nisa.tensor_scalar or nisa.tensor_tensor for bit patterns",
    )


def _require_no_operand(call: Call, op: Operator, operand: str, reverse: str) -> None:
    if call.facts[operand] not in (NOTHING, ZERO):
        call.refuse(
            f"{operand} is {call.facts[operand]} with the unary operator {op!r}",
            f"{operand} is None or 0 for a unary operator",
            f"leave {operand} out, or use a binary operator",
        )
    if call.facts[reverse]:
        call.refuse(f"{reverse} with {op!r}", "a unary operator has one input", "leave it out")


def _require_operand(call: Call, op: Operator, operand: str) -> None:
    given = call.facts[operand]
    if given not in NUMBERS and given != TILE:
        call.refuse(
            f"{operand} is {given} with {op!r}",
            f"{operand} of a binary operator is a Python number or a (P, 1) tile",
            "pass one of them",
        )
    if op.bitvec and given not in (TILE, ZERO, INTEGER):
        call.refuse(
            f"{operand} is {given} with {op!r}",
            "bitvec operators take integers",
            "pass an integer",
        )

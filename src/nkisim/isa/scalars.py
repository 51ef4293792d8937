"""Operands that are one number, or one number a partition: a Python number or a (P, 1) tile.

Rules look at the *kind* of such an operand, which a contract gets as a fact, because the number
itself would make every call a new one for the memory of verdicts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from nkisim.isa.operands import floats
from nkisim.numerics.operators.operator import Operator
from nkisim.tensors.tensor import NkiTensor

if TYPE_CHECKING:
    from nkisim.isa.call import Call, Rule
    from nkisim.isa.operands import Array

Scalar: TypeAlias = float | NkiTensor | None

TILE: Final = "a tile"
NOTHING: Final = "None"
ZERO: Final = "the number 0"
INTEGER: Final = "an integer"
FLOAT: Final = "a float"
NUMBERS: Final = frozenset({ZERO, INTEGER, FLOAT})


def kind(value: object) -> str:
    """What a scalar operand is, in one of the words above; else its Python type."""
    if isinstance(value, NkiTensor):
        return TILE
    if value is None:
        return NOTHING
    if not isinstance(value, (int, float, np.integer, np.floating)):
        return f"a {type(value).__name__}"
    if value == 0:
        return ZERO
    return INTEGER if isinstance(value, (int, np.integer)) else FLOAT


def tile(value: object) -> NkiTensor | None:
    """The operand if it is a tile; contracts see numbers by their kind only."""
    return value if isinstance(value, NkiTensor) else None


def tiles(*values: object) -> tuple[NkiTensor, ...]:
    """Those of the operands that an instruction has to read."""
    return tuple([value for value in values if isinstance(value, NkiTensor)])


def as_float32(number: float) -> Array:
    """A Python number as the engines see it; infinite beyond the range of float32."""
    with np.errstate(over="ignore"):
        return np.asarray(number, np.float32)


def spread(value: Scalar, rank: int) -> Array:
    """The operand, 0 for None, such that it broadcasts along the free axes of a tile of `rank`."""
    if isinstance(value, NkiTensor):
        return floats(value).reshape(-1, *(1,) * (rank - 1))
    return as_float32(value or 0.0)


def combine(op: Operator, data: Array, operand: Array, *, reverse: bool) -> Array:
    """data <op> operand in float32, or operand <op> data; unary operators look at data only."""
    if op.arity == 1:
        return op.apply(data)
    return op.apply(operand, data) if reverse else op.apply(data, operand)


def number_or_tile(*names: str, or_none: bool = False) -> Rule:
    """The named operands are numbers or tiles, or None where that has a meaning."""
    legal = NUMBERS | {TILE} | ({NOTHING} if or_none else set())

    def rule(call: Call) -> None:
        for name in names:
            if call.facts[name] not in legal:
                call.refuse(
                    f"{name} is {call.facts[name]}",
                    f"{name} is a Python number or a (P, 1) tile",
                    "pass one of them",
                )

    return rule

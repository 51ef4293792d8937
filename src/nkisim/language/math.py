"""Element-wise functions: what calling an operator such as nl.add or nl.exp does.

Each is one instruction into a fresh SBUF tile, with that instruction's own rules. Nothing
broadcasts, except that the documented examples of abs_max and abs_min take a (P, 1) second operand.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import nkisim.isa as nisa
from nkisim.enums import engine
from nkisim.errors import refuse
from nkisim.language.tiles import require_tensor, tile_like
from nkisim.numerics import operators
from nkisim.numerics.operators.operator import Operator
from nkisim.refusal import refused
from nkisim.tensors.tensor import NkiTensor

_TAKE_COLUMNS: Final = (operators.abs_max, operators.abs_min)

BINARY: Final = (
    *(operators.add, operators.subtract, operators.multiply, operators.power),
    *(operators.maximum, operators.minimum, operators.abs_max, operators.abs_min),
    *(operators.equal, operators.not_equal, operators.less, operators.less_equal),
    *(operators.greater, operators.greater_equal),
    *(operators.bitwise_and, operators.bitwise_or, operators.bitwise_xor),
    *(operators.left_shift, operators.right_shift),
    *(operators.logical_and, operators.logical_or, operators.logical_xor),
)
ACTIVATIONS: Final = (
    *(operators.abs, operators.square, operators.exp, operators.log, operators.sqrt),
    *(operators.tanh, operators.sigmoid, operators.relu, operators.softplus, operators.mish),
    *(operators.gelu, operators.gelu_dx, operators.gelu_apprx_tanh),
    *(operators.gelu_apprx_sigmoid, operators.gelu_apprx_sigmoid_dx),
    *(operators.silu, operators.silu_dx, operators.erf, operators.erf_dx),
    *(operators.arctan, operators.sign),
)


def apply_binary(op: Operator, x: Any, y: Any, dtype: str | None = None) -> NkiTensor:
    """x op y; one of them may be a number."""
    if isinstance(x, NkiTensor) and isinstance(y, NkiTensor):
        return _tiles(op, x, y, dtype)
    tile = require_tensor(f"{op!r}", "x or y", x if isinstance(x, NkiTensor) else y)
    if op is operators.power:
        refuse(
            "nl.power",
            "one operand is a number",
            "both operands are tiles",
            "fill a tile with the number: nl.full(x.shape, number, dtype=x.dtype)",
        )
    result = tile_like(tile, dtype)
    number = y if tile is x else x
    nisa.tensor_scalar(result, tile, op, number, reverse0=tile is y)
    return result


def _tiles(op: Operator, x: NkiTensor, y: NkiTensor, dtype: str | None) -> NkiTensor:
    if dtype is None and x.dtype != y.dtype:
        refuse(
            f"{op!r}",
            f"operands of dtype {x.dtype} and {y.dtype}",
            "the dtype of the result is not stated",
            "pass dtype=",
        )
    result = tile_like(x, dtype)
    if x.shape == y.shape:
        nisa.tensor_tensor(result, x, y, op)
    elif op in _TAKE_COLUMNS and y.shape == (x.shape[0], 1):
        nisa.tensor_scalar(result, x, op, y)
    else:
        refuse(
            f"{op!r}",
            f"operands of shape {x.shape} and {y.shape}",
            "equal shapes: functions of nki.language do not broadcast",
            "use nl.broadcast_to, or nisa.tensor_scalar with a (P, 1) tile",
        )
    return result


def apply_activation(op: Operator, x: NkiTensor, dtype: str | None = None) -> NkiTensor:
    """op(x) on the Scalar engine."""
    result = tile_like(require_tensor(f"{op!r}", "x", x), dtype)
    nisa.activation(result, op, x)
    return result


def _rsqrt(x: NkiTensor, dtype: str | None = None) -> NkiTensor:
    """1 / sqrt(x) on the GpSimd engine, as NKI does since 0.5; so not from PSUM."""
    result = tile_like(require_tensor("nl.rsqrt", "x", x), dtype)
    nisa.tensor_scalar(result, x, operators.rsqrt, None, engine=engine.gpsimd)
    return result


def _reciprocal(x: NkiTensor, dtype: str | None = None) -> NkiTensor:
    """1 / x on the Vector engine."""
    result = tile_like(require_tensor("nl.reciprocal", "x", x), dtype)
    nisa.reciprocal(result, x)
    return result


def _invert(x: NkiTensor, dtype: str | None = None) -> NkiTensor:
    """Every bit flipped, by an exclusive or with ones."""
    return apply_binary(operators.bitwise_xor, x, -1, dtype)


def logical_not(x: NkiTensor, dtype: str | None = None) -> NkiTensor:
    """1 - x for x of 0 and 1, by an exclusive or with 1."""
    return apply_binary(operators.logical_xor, x, 1, dtype)


def negative(x: NkiTensor, dtype: str | None = None) -> NkiTensor:
    """-x."""
    return apply_binary(operators.multiply, x, -1.0, dtype)


_NO_DIVISION: Final = "the engines have no division; NKI documents this function as failing on them"


@refused("nl.divide", _NO_DIVISION, "multiply by nl.reciprocal(y)")
def divide(x: Any, y: Any, dtype: str | None = None) -> None:
    """x / y."""


@refused("nl.mod", _NO_DIVISION, "x - y * nl.floor(q) with q = x * nl.reciprocal(y)")
def mod(x: Any, y: Any, dtype: str | None = None) -> None:
    """The remainder with the sign of y."""


@refused("nl.fmod", _NO_DIVISION, "x - y * nl.trunc(q) with q = x * nl.reciprocal(y)")
def fmod(x: Any, y: Any, dtype: str | None = None) -> None:
    """The remainder with the sign of x."""


for _op in BINARY:
    _op.eager = partial(apply_binary, _op)
for _op in ACTIVATIONS:
    _op.eager = partial(apply_activation, _op)
operators.rsqrt.eager = _rsqrt
operators.reciprocal.eager = _reciprocal
operators.invert.eager = _invert

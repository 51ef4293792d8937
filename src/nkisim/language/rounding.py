"""nl.floor, nl.ceil and nl.trunc.

The engines round in one place only: a float written to an integer tile goes to the nearest integer.
From that integer these functions take or add 1 where it lies on the wrong side of x. How NKI's own
functions do it is not documented.
"""

from __future__ import annotations

from typing import Final

import nkisim.isa as nisa
from nkisim.language.creation import ndarray
from nkisim.language.math import apply_activation
from nkisim.language.tiles import require_tensor, tile_like
from nkisim.numerics import dtypes, operators
from nkisim.numerics.operators.operator import Operator
from nkisim.tensors.tensor import NkiTensor

_ALL_INTEGERS_FROM: Final = 2.0**23  # a float32 of this magnitude or more has no fraction


def floor(x: NkiTensor, dtype: str | None = None) -> NkiTensor:
    """The greatest integer that is not above x."""
    x = require_tensor("nl.floor", "x", x)
    return _corrected(x, operators.greater, operators.subtract, dtype)


def ceil(x: NkiTensor, dtype: str | None = None) -> NkiTensor:
    """The least integer that is not below x."""
    x = require_tensor("nl.ceil", "x", x)
    return _corrected(x, operators.less, operators.add, dtype)


def trunc(x: NkiTensor, dtype: str | None = None) -> NkiTensor:
    """x without its fraction: sign(x) * floor(abs(x))."""
    x = require_tensor("nl.trunc", "x", x)
    if dtypes.is_integer(x.dtype):
        return _copied(x, dtype)
    whole = floor(apply_activation(operators.abs, x, "float32"))
    result = tile_like(x, dtype)
    nisa.tensor_tensor(result, apply_activation(operators.sign, x), whole, operators.multiply)
    return result


def _corrected(x: NkiTensor, wrong: Operator, repair: Operator, dtype: str | None) -> NkiTensor:
    """The nearest integer k to x, and `k repair 1` where `k wrong x`."""
    result = _copied(x, dtype)
    if dtypes.is_integer(x.dtype):
        return result
    nearest = tile_like(x, "int32")
    nisa.tensor_copy(nearest, x)
    astray = tile_like(x, "float32")
    nisa.tensor_tensor(astray, nearest, x, wrong)
    whole = tile_like(x, result.dtype)
    nisa.tensor_tensor(whole, nearest, astray, repair)
    fractional = ndarray(result.shape, "uint8")
    limit = _ALL_INTEGERS_FROM
    nisa.tensor_scalar(fractional, x, operators.abs, None, op1=operators.less, operand1=limit)
    nisa.tensor_copy_predicated(result, whole, fractional)
    return result


def _copied(x: NkiTensor, dtype: str | None) -> NkiTensor:
    result = tile_like(x, dtype)
    nisa.tensor_copy(result, x)
    return result

"""nl.sin, nl.cos and nl.tan for arguments outside of [-pi, pi].

The Scalar engine's sine is valid in [-pi, pi], so whole turns are taken off first. 2 pi is used as
a sum of two floats, the first of 8 bits: its product with a turn count below 2**16 is exact.
"""

from __future__ import annotations

import math
from typing import Final

import nkisim.isa as nisa
from nkisim.language.math import apply_binary
from nkisim.language.tiles import require_tensor, tile_like
from nkisim.numerics import operators
from nkisim.tensors.tensor import NkiTensor

_TURN_HIGH: Final = 6.28125
_TURN_LOW: Final = 2 * math.pi - _TURN_HIGH


def sin(x: NkiTensor, dtype: str | None = None) -> NkiTensor:
    """The sine, for |x| up to 2**16 turns."""
    return _sine_of_any_angle(require_tensor("nl.sin", "x", x), dtype or x.dtype)


def cos(x: NkiTensor, dtype: str | None = None) -> NkiTensor:
    """The cosine: the sine a quarter turn later."""
    x = require_tensor("nl.cos", "x", x)
    later = apply_binary(operators.add, x, math.pi / 2, "float32")
    return _sine_of_any_angle(later, dtype or x.dtype)


def tan(x: NkiTensor, dtype: str | None = None) -> NkiTensor:
    """sin(x) * (1 / cos(x))."""
    x = require_tensor("nl.tan", "x", x)
    inverse = tile_like(x, "float32")
    nisa.reciprocal(inverse, cos(x, "float32"))
    return apply_binary(operators.multiply, sin(x, "float32"), inverse, dtype or x.dtype)


def _sine_of_any_angle(x: NkiTensor, dtype: str) -> NkiTensor:
    turns = tile_like(x, "int32")  # writing to it rounds to the nearest
    nisa.tensor_scalar(turns, x, operators.multiply, 1 / (2 * math.pi))
    angle = tile_like(x, "float32")
    multiply, add = operators.multiply, operators.add
    nisa.scalar_tensor_tensor(angle, turns, multiply, -_TURN_HIGH, add, x)
    nisa.scalar_tensor_tensor(angle, turns, multiply, -_TURN_LOW, add, angle)
    _clamp(angle, math.pi)
    result = tile_like(x, dtype)
    nisa.activation(result, operators.sin, angle)
    return result


def _clamp(tile: NkiTensor, bound: float) -> None:
    """Rounding may leave an angle a little beyond half a turn."""
    low, high = operators.maximum, operators.minimum
    nisa.tensor_scalar(tile, tile, high, bound, op1=low, operand1=-bound)


operators.sin.eager = sin

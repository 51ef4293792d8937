"""nl.softmax and nl.rms_norm, with float32 between their instructions."""

from __future__ import annotations

import nkisim.isa as nisa
from nkisim.enums import engine
from nkisim.errors import refuse
from nkisim.language.reductions import Axis, reduce_tile
from nkisim.language.tiles import require_tensor, stretch, tile_like
from nkisim.machine import V3
from nkisim.numerics import operators
from nkisim.running.environment import machine_in_use
from nkisim.tensors.tensor import NkiTensor


def softmax(x: NkiTensor, axis: Axis = -1, dtype: str | None = None) -> NkiTensor:
    """exp(x - max) / sum(exp(x - max)) over trailing free axes."""
    x = require_tensor("nl.softmax", "x", x)
    greatest = reduce_tile(operators.maximum, x, axis, "float32", keepdims=True)
    powers = tile_like(x, "float32")
    nisa.tensor_tensor(powers, x, stretch(greatest, x.shape), operators.subtract)
    nisa.activation(powers, operators.exp, powers)
    inverse = reduce_tile(operators.add, powers, axis, "float32", keepdims=True)
    nisa.reciprocal(inverse, inverse)
    result = tile_like(x, dtype)
    nisa.tensor_tensor(result, powers, stretch(inverse, x.shape), operators.multiply)
    return result


def rms_norm(
    x: NkiTensor,
    w: NkiTensor,
    axis: Axis,
    n: int,
    epsilon: float = 1e-6,
    dtype: str | None = None,
    compute_dtype: str | None = None,
) -> NkiTensor:
    """x * w / sqrt(sum(x**2) / n + epsilon); `compute_dtype` (float32) is between instructions."""
    x = require_tensor("nl.rms_norm", "x", x)
    if isinstance(n, int) and n < 1:
        refuse("nl.rms_norm", f"n={n}", "1 or more elements", "pass how many elements are summed")
    between = compute_dtype or "float32"
    scaled = tile_like(x, between)
    nisa.tensor_tensor(scaled, x, x, operators.multiply)
    inverse = reduce_tile(operators.add, scaled, axis, "float32", keepdims=True)
    multiply, add = operators.multiply, operators.add
    nisa.tensor_scalar(inverse, inverse, multiply, 1 / n, op1=add, operand1=epsilon)
    if machine_in_use().generation < V3:  # its GpSimd engine has no tensor_scalar
        nisa.activation(inverse, operators.rsqrt, inverse)
    else:
        nisa.tensor_scalar(inverse, inverse, operators.rsqrt, None, engine=engine.gpsimd)
    nisa.tensor_tensor(scaled, x, stretch(inverse, x.shape), multiply)
    result = tile_like(x, dtype)
    nisa.tensor_tensor(result, scaled, require_tensor("nl.rms_norm", "w", w), multiply)
    return result

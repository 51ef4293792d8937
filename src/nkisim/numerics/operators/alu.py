"""The ALU operators that are more than one NumPy ufunc, on float32 arrays."""

from __future__ import annotations

import functools

import numpy as np

from nkisim.numerics.narrow_floats import Array, Float32Array
from nkisim.numerics.operators.operator import ArrayFunction, Reducer


def power(x: Float32Array, y: Float32Array) -> Array:
    """x**y; NaN for a negative x and a y that is no integer."""
    return np.power(x.astype(np.float64), y.astype(np.float64))


def abs_max(x: Float32Array, y: Float32Array) -> Float32Array:
    """The operand of larger magnitude, with its sign; y if they are equal."""
    return np.where(np.abs(x) > np.abs(y), x, y)


def abs_min(x: Float32Array, y: Float32Array) -> Float32Array:
    """The operand of smaller magnitude, with its sign; y if they are equal."""
    return np.where(np.abs(x) < np.abs(y), x, y)


def first(x: Float32Array, y: Float32Array) -> Float32Array:
    """x, whatever y is."""
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, y.shape))


def average(array: Float32Array, axis: tuple[int, ...], *, keepdims: bool) -> Array:
    """The mean over `axis`."""
    return np.asarray(np.mean(array, axis=axis, dtype=np.float32, keepdims=keepdims))


def fold(function: ArrayFunction) -> Reducer:
    """The reduction that combines elements one by one: f(f(f(x0, x1), x2), x3) ..."""

    def reduce(array: Array, axis: tuple[int, ...], *, keepdims: bool) -> Array:
        reduced = sorted(i % array.ndim for i in axis)
        kept = [i for i in range(array.ndim) if i not in reduced]
        flat = array.transpose(*reduced, *kept).reshape(-1, *(array.shape[i] for i in kept))
        folded = functools.reduce(function, flat)
        return np.expand_dims(folded, tuple(reduced)) if keepdims else folded

    return reduce

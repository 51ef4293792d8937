"""How far a correct convolution may be from the exact one; derived, not tuned.

With u = 2**-24 (half a step of float32), n products to an output, A = sum |x| |w| + |bias|:

direct   float32 sums in any order are off by at most gamma(n + 1) A, gamma(k) = k u / (1 - k u)
         (Higham, Accuracy and Stability of Numerical Algorithms, lemma 3.1); products of bf16 and
         fp16 are exact, those of float32 cost one factor more. The reference adds 2**-53's share.
winograd transformed inputs and weights are rounded to fp16: `winograd/error.py` has the most
         that costs. What the transforms multiply is at most kappa max|x| sum|w|, three times that
         on the way out, where differences such as 4 m - 2 (m + m') are formed in eight operations.
output   rounding to the type of y: half a step at |y|, plus what was off before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from trnconv.algorithms.algorithm import Plan
from trnconv.geometry import ConvShape
from trnconv.planner.table import algorithm_of
from trnconv.reference import forward

Array = np.ndarray[Any, Any]
_FLOAT32_BITS, _FLOAT64_BITS = 24, 53
_SUBNORMAL_OF_FLOAT32 = 2.0**-149
_WAY_OUT, _CANCELLATION = 8, 3


def largest_errors(x: Array, w: Array, bias: Array, shape: ConvShape, plan: Plan) -> Array:
    """For each output, the most that a correct kernel may be off before its output is rounded."""
    largest = float(np.abs(x.astype(np.float64)).max())
    filters = np.abs(w.astype(np.float64)).sum(axis=(1, 2, 3, 4))
    rounding = algorithm_of(plan).rounding_errors(plan, largest, filters)
    if rounding is not None:
        return _of_transforms(*rounding, bias, shape)
    terms = _terms(shape)
    size = forward(np.abs(x), np.abs(w), np.abs(bias), shape)
    relative = _gamma(terms + 1, _FLOAT32_BITS) + _gamma(terms + 1, _FLOAT64_BITS)
    return np.asarray(relative * size + terms * _SUBNORMAL_OF_FLOAT32 / 2)


def _of_transforms(rounded: Array, multiplied: Array, bias: Array, shape: ConvShape) -> Array:
    """The same for all positions of a channel."""
    terms = np.asarray(shape.c_in * shape.taps() + _WAY_OUT)
    summed = _CANCELLATION * _gamma(terms, _FLOAT32_BITS)
    off = rounded + summed * (multiplied + rounded + np.abs(bias.astype(np.float64)))
    return np.asarray(off.reshape(1, -1, 1, 1, 1))


def _terms(shape: ConvShape) -> Array:
    """Products that each output sums: taps inside the image times the channels of a group."""
    pixels = replace(shape, batch=1, c_in=1, c_out=1, groups=1)
    inside = forward(np.ones((1, 1, *shape.size)), np.ones((1, 1, *shape.kernel)), None, pixels)
    return np.asarray(inside * (shape.c_in // shape.groups))


def _gamma(count: Array, bits: int) -> Array:
    off = count * 2.0**-bits
    return np.asarray(off / (1 - off))


def half_steps(size: Array, dtype: Any) -> Array:
    """Half a step of a type at these sizes; nothing for float32, which holds the sums."""
    if np.dtype(dtype) == np.float32:
        return np.zeros_like(size)
    kind = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    exponent = np.where(size == 0, int(kind.minexp), np.frexp(size)[1] - 1)
    return np.asarray(np.ldexp(1.0, np.maximum(exponent, int(kind.minexp)) - int(kind.nmant) - 1))

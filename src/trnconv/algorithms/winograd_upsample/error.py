"""How far differences may be from the exact convolution, before it runs: expected and at most.

Differences and weights are rounded to fp16, everything after that is float32 until the output is
rounded once. With u = 2**-11, half a step of fp16:

expected   rounding errors are taken as independent, inputs and weights as white noise: the variance
           of each product, weighted with what the roundings of its inputs and weights add. How far
           differences are off is found on samples: those of bf16 values are often exact.
at most    |error| <= ((1 + u)^3 - 1) kappa max|x| sum|w|: two roundings on the way to a difference
           of both rows and columns and one of the weight, and kappa = 9, since a tap is in at most
           two terms of an axis, one of x and one of a difference, which is at most 2 max|x|.
range      differences are at most 4 max|x|, and fp16 ends at 65504.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod, sqrt
from typing import Any

import ml_dtypes
import numpy as np

from trnconv.algorithms.half_precision import HALF_MAX, HALF_UNIT, RangeError, relative_rounding
from trnconv.algorithms.winograd_upsample.terms import FILTERS, INPUTS, OUTPUTS, PRODUCTS, TAPS

Array = np.ndarray[Any, Any]
_SAMPLES = 1 << 15
_ROUNDINGS = 3  # of a difference of both rows and columns, and of a weight
_AXIS_GAIN = max(sum(map(abs, row)) for row in INPUTS)
_GAIN = _AXIS_GAIN**2
# A tap's weight in the terms of an output, each times what inputs grow by.
_KAPPA = (1 + _AXIS_GAIN) ** 2


@lru_cache(maxsize=4)
def input_errors(dtype: str) -> tuple[float, ...]:
    """RMS error of each product's inputs relative to their RMS, for normal inputs of a type."""
    drawn = np.random.default_rng(0).standard_normal((TAPS, TAPS, _SAMPLES))
    x = drawn.astype(getattr(ml_dtypes, dtype, dtype)).astype(np.float64)
    errors = []
    for rows, columns in PRODUCTS:
        across, down = np.array(INPUTS[columns]), np.array(INPUTS[rows])
        exact = np.einsum("r,c,rcn->n", down, across, x)
        made = _rounded(down @ _rounded(np.einsum("c,rcn->rn", across, x)))
        errors.append(sqrt(np.square(made - exact).mean() / np.square(exact).mean()))
    return tuple(errors)


def _rounded(values: Array) -> Array:
    return values.astype(np.float16).astype(np.float64)


def expected_error(dtype: str) -> float:
    """RMS error of the algorithm alone, relative to the RMS of its outputs, on white noise."""
    weights = relative_rounding("float16") ** 2
    errors = dict(zip(PRODUCTS, input_errors(dtype), strict=True))
    outputs = [
        sum(
            _variance(row, column) * (weights + errors[row, column] ** 2)
            for row in rows
            for column in columns
        )
        for rows in OUTPUTS
        for columns in OUTPUTS
    ]
    return sqrt(sum(outputs) / len(outputs) / TAPS**2)


def _variance(rows: int, columns: int) -> float:
    """Of a product of white noise, in terms of one tap's."""
    squares = [
        sum(value * value for value in matrix[term])
        for matrix in (INPUTS, FILTERS)
        for term in (rows, columns)
    ]
    return float(prod(squares))


def expected_ratio(dtype: str) -> float:
    """The expected RMS error over that of a direct convolution whose output has this type."""
    return sqrt(1 + (expected_error(dtype) / relative_rounding(dtype)) ** 2)


def largest_errors(x_max: float, w_sums: Array) -> tuple[Array, Array]:
    """For output channels with these sums of |w|: the error bound, and the most that is summed."""
    summed = _KAPPA * x_max * np.asarray(w_sums, np.float64)
    return ((1 + HALF_UNIT) ** _ROUNDINGS - 1) * summed, summed


def range_limit() -> float:
    """The largest |x| whose differences fp16 holds."""
    return HALF_MAX / _GAIN


def require_range(x_max: float) -> None:
    """Refuse inputs whose differences fp16 cannot hold."""
    limit = range_limit()
    if not x_max <= limit:
        raise RangeError(
            f"the input reaches {x_max:.4g}: differences in fp16 take |x| up to {limit:.0f}."
            ' Ask for accuracy="direct", or normalise the input.'
        )

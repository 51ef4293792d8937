"""How far a fast convolution may be from the exact one, before it runs: expected and at most.

Transformed inputs and weights are rounded to fp16, everything after that is float32 until the
output is rounded once. With u = 2**-11, half a step of fp16:

expected   rounding errors are taken as independent, inputs and weights as white noise. An output
           has the variance |A|^2 |B|^2 |G|^2 of its products, weighted row by row, times what the
           roundings of V and one of U add to it; the output's own rounding is the floor it is
           compared with. How far V is off is found by doing its steps on samples: bf16 has 8 bits,
           so that many of their roundings to 11 are exact, and no formula in u alone says how many.
at most    |error| <= (r + 1) u * kappa * max|x| * sum|w|, with r roundings on the way to V, and
           kappa = max over o of sum over products p of |A_op| sum_i|B_pi| max_t|G_pt|; then the
           float32 sum and the output's rounding as for a direct convolution.
range      V is at most `input_gain` times max|x|, and fp16 ends at 65504.
"""

from __future__ import annotations

from functools import lru_cache
from math import sqrt
from typing import Any

import ml_dtypes
import numpy as np

from trnconv.algorithms.half_precision import HALF_MAX, HALF_UNIT, RangeError, relative_rounding
from trnconv.algorithms.winograd.transforms import Transform

Array = np.ndarray[Any, Any]
_SAMPLES = 1 << 15


def roundings(transform: Transform) -> int:
    """Roundings between x and V."""
    depth = dict.fromkeys(range(transform.products), 0)
    for step in transform.steps:
        depth[step.dst] = 1 + max(depth[step.a], depth[step.b])
    return max(depth[transform.products + product] for product in range(transform.products))


@lru_cache(maxsize=16)
def input_errors(transform: Transform, dtype: str) -> tuple[float, ...]:
    """RMS error of each transformed input relative to its RMS, for normal inputs of a type."""
    drawn = np.random.default_rng(0).standard_normal((transform.products, _SAMPLES))
    d = drawn.astype(getattr(ml_dtypes, dtype, dtype)).astype(np.float64)
    tiles = dict(enumerate(d))
    for step in transform.steps:
        value = step.scale * tiles[step.a] + tiles[step.b]
        tiles[step.dst] = value.astype(np.float16).astype(np.float64)
    exact = np.array([[float(b) for b in row] for row in transform.b_t]) @ d
    rounded = np.array([tiles[transform.products + p] for p in range(transform.products)])
    off = np.sqrt(np.square(rounded - exact).mean(axis=1) / np.square(exact).mean(axis=1))
    return tuple(float(error) for error in off)


def expected_error(transform: Transform, dtype: str) -> float:
    """RMS error of the fast algorithm alone, relative to the RMS of its outputs, on white noise."""
    weights = relative_rounding("float16") ** 2
    share = [
        float(sum(b * b for b in row) * sum(g * g for g in taps)) * (weights + inputs**2)
        for row, taps, inputs in zip(
            transform.b_t, transform.g, input_errors(transform, dtype), strict=True
        )
    ]
    outputs = [
        sum(float(a * a) * variance for a, variance in zip(row, share, strict=True))
        / transform.taps
        for row in transform.a_t
    ]
    return sqrt(sum(outputs) / len(outputs))


@lru_cache(maxsize=64)
def expected_ratio(transform: Transform, dtype: str) -> float:
    """The expected RMS error over that of a direct convolution whose output has this type."""
    floor = relative_rounding(dtype)
    return sqrt(1 + (expected_error(transform, dtype) / floor) ** 2)


def error_bound(transform: Transform, x_max: float, w_sum: float) -> float:
    """The most that an output's float32 sum is off, if |x| <= x_max and sum|w| <= w_sum.

    Accumulation in float32 is not part of it.
    """
    kappa = max(
        sum(
            float(abs(a) * sum(map(abs, b)) * max(map(abs, g)))
            for a, b, g in zip(row, transform.b_t, transform.g, strict=True)
        )
        for row in transform.a_t
    )
    count = roundings(transform) + 1
    return ((1 + HALF_UNIT) ** count - 1) * kappa * x_max * w_sum


def largest_errors(transform: Transform, x_max: float, w_sums: Array) -> tuple[Array, Array]:
    """For output channels with these sums of |w|: the error bound, and the most that is summed."""
    rounded = np.array([error_bound(transform, x_max, float(w_sum)) for w_sum in w_sums])
    grown = (1 + HALF_UNIT) ** (roundings(transform) + 1) - 1
    return rounded, rounded / grown


@lru_cache(maxsize=64)
def range_limit(transform: Transform) -> float:
    """The largest |x| whose transform fp16 holds."""
    return HALF_MAX / transform.input_gain


def require_range(transform: Transform, x_max: float) -> None:
    """Refuse inputs outside the range of a transform."""
    limit = range_limit(transform)
    if not x_max <= limit:
        raise RangeError(
            f"the input reaches {x_max:.4g}: {transform.name} in fp16 takes |x| up to {limit:.0f}."
            ' Ask for accuracy="direct", or normalise the input.'
        )

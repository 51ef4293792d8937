"""Operands of fp16: how far their roundings go, which inputs they hold, how weights are scaled."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from trnconv.errors import TrnconvError

Array = np.ndarray[Any, Any]
_BITS = {"bfloat16": 8, "float16": 11, "float32": 24}  # of the significand
HALF_UNIT = 2.0 ** -_BITS["float16"]  # half a step, relative
HALF_MAX = 65504.0
# RMS of a rounding over the RMS of what is rounded, in half steps, for a normal distribution.
_SPREAD = 0.73 / sqrt(3)
_TOP = 14  # scaled weights are below 2 ** _TOP, fp16 ends at 2 ** 16


class RangeError(TrnconvError):
    """Inputs that a plan's transformed values cannot hold."""


def relative_rounding(dtype: str) -> float:
    """RMS error of rounding to a type, relative to the RMS of normal values."""
    return float(2.0 ** -_BITS[dtype] * _SPREAD)


def scaling_exponents(largest: Array) -> Array:
    """The power of two for each output channel, by the largest |weight| that it multiplies with.

    Its largest weight then uses the top of fp16's range, and small ones stay clear of subnormals.
    """
    with_value = np.where(largest > 0, largest, 1.0)
    return np.where(largest > 0, _TOP - np.frexp(with_value)[1], 0)

"""The error function on arrays, which NumPy does not have.

Everything rests on erfc(x) = exp(-x**2) * g(x) for x >= 0, where g falls gently from 1. In the
variable u = (x - 3) / (x + 3) a polynomial of degree 12 meets g within 1e-10 of its value on
[0, 12]. It is interpolated from `math.erfc` at 13 points when this module is loaded. Beyond 12,
erfc is less than the smallest float32, and the factor exp(-x**2) takes it to 0.
"""

from __future__ import annotations

import math
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.polynomial import Chebyshev, Polynomial

Float64Array: TypeAlias = npt.NDArray[np.float64]

_CENTRE: Final = 3.0
_END: Final = 12.0
_DEGREE: Final = 12


def _scaled_erfc_at(u: Float64Array) -> Float64Array:
    x = _CENTRE * (1 + u) / (1 - u)
    return np.array([math.erfc(point) * math.exp(point * point) for point in x.tolist()])


def _interpolate() -> Float64Array:
    domain = [-1.0, (_END - _CENTRE) / (_END + _CENTRE)]
    chebyshev: Any = Chebyshev.interpolate(_scaled_erfc_at, _DEGREE, domain=domain)
    coefficients: Float64Array = chebyshev.convert(kind=Polynomial).coef
    return coefficients


_COEFFICIENTS: Final = _interpolate()


def _erfc_of_positive(x: Float64Array) -> Float64Array:
    inside = np.minimum(x, _END)
    u = (inside - _CENTRE) / (inside + _CENTRE)
    g = np.full_like(u, _COEFFICIENTS[-1])
    for coefficient in _COEFFICIENTS[-2::-1]:
        g *= u
        g += coefficient
    return g * np.exp(-x * x)


def erfc(x: Float64Array) -> Float64Array:
    """1 - erf(x), with a relative error below 1e-9 wherever float32 can hold the result."""
    tail = _erfc_of_positive(np.abs(x))
    return np.where(x < 0, 2 - tail, tail)


def erf(x: Float64Array) -> Float64Array:
    """The error function, with a relative error below 1e-9 also next to 0."""
    magnitude = np.abs(x)
    far = np.copysign(1 - _erfc_of_positive(magnitude), x)
    return np.where(magnitude < 0.5, _erf_near_zero(np.clip(x, -0.5, 0.5)), far)


def _erf_near_zero(x: Float64Array) -> Float64Array:
    """The power series, where 1 - erfc(x) would cancel; the first term left out is below 1e-11."""
    square = x * x
    total = np.zeros_like(x)
    for n in range(7, -1, -1):
        total = total * square + (-1) ** n / (math.factorial(n) * (2 * n + 1))
    return 2 / math.sqrt(math.pi) * x * total

"""The functions of the Scalar engine, on float32 arrays.

The hardware approximates them by piecewise polynomials whose bits are not specified; here they are
their mathematical values, computed in float64 where that matters and rounded once. At infinity they
take their limits, and NaN stays NaN. The one exception is `sin`, whose behaviour outside its valid
range is documented and reproduced.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from nkisim.numerics.narrow_floats import Array, Float32Array
from nkisim.numerics.operators.error_function import Float64Array
from nkisim.numerics.operators.error_function import erf as error_function
from nkisim.numerics.operators.error_function import erfc as complementary_error_function

_SATURATED: Final = 1000.0
"""From here on every sigmoid and normal distribution is 0 or 1 in float64."""

_SIGMOID_GELU_SLOPE: Final = 1.702
_TANH_GELU_CUBE: Final = 0.044715


def _wide(x: Float32Array) -> Float64Array:
    return x.astype(np.float64)


def _until_saturation(x: Float32Array) -> Float64Array:
    """`x` without the infinities, which times a vanished factor would be NaN."""
    return np.clip(_wide(x), -_SATURATED, _SATURATED)


def _above_saturation(x: Float32Array) -> Float64Array:
    """`x` without minus infinity, for functions that grow without bound on the right."""
    return np.maximum(_wide(x), -_SATURATED)


def _logistic(x: Float64Array) -> Float64Array:
    return 1 / (1 + np.exp(-x))


def _normal_distribution(x: Float64Array) -> Float64Array:
    return complementary_error_function(-x / math.sqrt(2)) / 2


def _normal_density(x: Float64Array) -> Float64Array:
    return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _times_logistic_dx(x: Float64Array, slope: float) -> Float64Array:
    """The derivative of x * logistic(slope * x)."""
    s = _logistic(slope * x)
    return s * (1 + slope * x * _logistic(-slope * x))


def copy(x: Float32Array) -> Float32Array:
    """The value itself."""
    return x.copy()


def square(x: Float32Array) -> Float32Array:
    """x**2."""
    return x * x


def absolute(x: Float32Array) -> Float32Array:
    """|x|."""
    return np.abs(x)


def sign(x: Float32Array) -> Float32Array:
    """-1, 0 or 1."""
    return np.sign(x)


def relu(x: Float32Array) -> Float32Array:
    """max(x, 0)."""
    return np.maximum(x, np.float32(0))


def prelu(x: Float32Array, slope: Array | float) -> Float32Array:
    """Where x is negative slope * x (NaN for 0 * -inf), else x."""
    return np.where(x < 0, np.float32(slope) * x, x)


def reciprocal(x: Float32Array) -> Float32Array:
    """1 / x."""
    return np.float32(1) / x


def sqrt(x: Float32Array) -> Float32Array:
    """The square root."""
    return np.sqrt(x)


def rsqrt(x: Float32Array) -> Float64Array:
    """1 / sqrt(x)."""
    return 1 / np.sqrt(_wide(x))


def exp(x: Float32Array) -> Float64Array:
    """e**x."""
    return np.exp(_wide(x))


def log(x: Float32Array) -> Float64Array:
    """The natural logarithm."""
    return np.log(_wide(x))


def tanh(x: Float32Array) -> Float64Array:
    """The hyperbolic tangent."""
    return np.tanh(_wide(x))


def arctan(x: Float32Array) -> Float64Array:
    """The inverse tangent."""
    return np.arctan(_wide(x))


def sin(x: Float32Array) -> Float64Array:
    """The sine inside [-pi, pi]; outside, the cubic that meets it at the nearer end.

    The engine does not reduce the argument and extrapolates a cubic, and sin(9.0) is documented to
    give about 27.65. The Taylor polynomial of degree three at the end of the range, -d + d**3 / 6
    for a distance d, gives 27.653 there.
    """
    wide = _wide(x)
    d = wide - np.clip(wide, -math.pi, math.pi)
    return np.where(d == 0, np.sin(wide), d * (d * d / 6 - 1))


def erf(x: Float32Array) -> Float64Array:
    """The error function."""
    return error_function(_wide(x))


def erf_dx(x: Float32Array) -> Float64Array:
    """The derivative of `erf`: 2 / sqrt(pi) * exp(-x**2)."""
    wide = _wide(x)
    return 2 / math.sqrt(math.pi) * np.exp(-wide * wide)


def sigmoid(x: Float32Array) -> Float64Array:
    """1 / (1 + exp(-x))."""
    return _logistic(_wide(x))


def silu(x: Float32Array) -> Float64Array:
    """x * sigmoid(x)."""
    bounded = _above_saturation(x)
    return bounded * _logistic(bounded)


def silu_dx(x: Float32Array) -> Float64Array:
    """The derivative of `silu`."""
    return _times_logistic_dx(_until_saturation(x), 1.0)


def gelu(x: Float32Array) -> Float64Array:
    """x * Phi(x), Phi being the normal distribution."""
    bounded = _above_saturation(x)
    return bounded * _normal_distribution(bounded)


def gelu_dx(x: Float32Array) -> Float64Array:
    """The derivative of `gelu`."""
    bounded = _until_saturation(x)
    return _normal_distribution(bounded) + bounded * _normal_density(bounded)


def gelu_apprx_tanh(x: Float32Array) -> Float64Array:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))), without its cancellation."""
    bounded = _above_saturation(x)
    inner = math.sqrt(2 / math.pi) * bounded * (1 + _TANH_GELU_CUBE * bounded * bounded)
    return bounded * _logistic(2 * inner)


def gelu_apprx_sigmoid(x: Float32Array) -> Float64Array:
    """x * sigmoid(1.702 * x)."""
    bounded = _above_saturation(x)
    return bounded * _logistic(_SIGMOID_GELU_SLOPE * bounded)


def gelu_apprx_sigmoid_dx(x: Float32Array) -> Float64Array:
    """The derivative of `gelu_apprx_sigmoid`."""
    return _times_logistic_dx(_until_saturation(x), _SIGMOID_GELU_SLOPE)


def softplus(x: Float32Array) -> Float64Array:
    """log(1 + exp(x))."""
    return np.logaddexp(0, _wide(x))


def mish(x: Float32Array) -> Float64Array:
    """x * tanh(softplus(x))."""
    bounded = _above_saturation(x)
    return bounded * np.tanh(np.logaddexp(0, bounded))

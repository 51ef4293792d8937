"""How far a correct weight or bias gradient may be from the exact one. Nothing here is tuned.

As in `tolerance`, with positions in place of taps and channels: an element of dw is the sum of n
products x * dy, n being the positions of all images at which its tap lies inside the image. Each
product is rounded once (float32 inputs) or not at all (narrower ones), and passes through at most
n additions, in whatever order tiles, blocks and iterations are added. So |dw - exact| <= gamma(n +
1) * sum |x| |dy|. An element of db sums n values without products: gamma(n) * sum |dy|. Then dw is
rounded to its type, unless that is float32.
"""

from dataclasses import replace

import numpy as np

from tolerance import (
    FLOAT32_BITS,
    FLOAT32_SUBNORMAL,
    FLOAT64_BITS,
    _gamma,
    assert_within,
    output_rounding,
)
from trnconv.reference import bias_gradient, weight_gradient


def assert_gradients(dw, db, x, dy, shape):
    """Both are the gradients of x and dy within their bounds; dw, x and dy are five-dimensional."""
    exact = weight_gradient(x, dy, shape)
    assert_within(dw, exact, weight_bound(x, dy, shape, dw.dtype, exact))
    exact_bias = bias_gradient(dy)
    apart = (-1, 1, 1, 1, 1)
    bound = bias_bound(dy).reshape(apart)
    assert_within(db.reshape(apart), exact_bias.reshape(apart), bound)


def weight_bound(x, dy, shape, dtype, exact):
    """The largest error of each element of a correct dw of this type."""
    if _are_exact(x, dy, shape):
        summing = np.zeros_like(exact)
    else:
        terms = _terms(shape)
        magnitude = weight_gradient(np.abs(x), np.abs(dy), shape)
        relative = _gamma(terms + 1, FLOAT32_BITS) + _gamma(terms + 1, FLOAT64_BITS)
        summing = relative * magnitude + terms * FLOAT32_SUBNORMAL / 2
    return summing + output_rounding(np.abs(exact) + summing, dtype)


def references_bound(x, dy, shape):
    """How far two float64 gradients of the same inputs may be from each other."""
    magnitude = weight_gradient(np.abs(x), np.abs(dy), shape)
    return 2 * _gamma(_terms(shape) + 1, FLOAT64_BITS) * magnitude


def bias_bound(dy):
    """The largest error of each element of a correct db."""
    terms = dy.size // dy.shape[1]
    whole = np.array_equal(dy, np.rint(dy))
    if whole and terms * float(np.abs(dy).max()) <= 2.0**FLOAT32_BITS:
        return np.zeros(dy.shape[1])
    relative = _gamma(terms, FLOAT32_BITS) + _gamma(terms, FLOAT64_BITS)
    return relative * bias_gradient(np.abs(dy))


def _are_exact(x, dy, shape):
    """Whether the inputs are integers so small that float32 rounds no partial sum."""
    most = shape.batch * shape.positions() * float(np.abs(x).max()) * float(np.abs(dy).max())
    whole = all(np.array_equal(each, np.rint(each)) for each in (x, dy))
    return whole and most <= 2.0**FLOAT32_BITS


def _terms(shape):
    """How many products each element of dw sums, [1, 1, KD, KH, KW]."""
    one = replace(shape, c_in=1, c_out=1, groups=1)
    x = np.ones((shape.batch, 1, *shape.size))
    return weight_gradient(x, np.ones((shape.batch, 1, *shape.out_sizes())), one)

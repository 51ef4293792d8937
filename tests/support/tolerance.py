"""How far a correct convolution may be from the exact one. Nothing here is tuned.

The exact y is the sum, over the n taps and channels that meet the image, of x * w, plus bias. The
machine multiplies, sums in float32 in whatever order its plan says, adds the bias, and rounds once
to the type of y. With u = 2**-24 (half a step of float32), and A = sum |x| |w| + |bias|:

products      of bf16 or fp16 inputs have at most 16 or 22 significant bits, so float32 holds them
              exactly. Those of float32 inputs are rounded: a factor 1 + d, |d| <= u, each.
sum           n terms and a bias make n additions. Whatever the order, a term passes through at
              most n of them and picks up a factor 1 + d from each. Terms that are exactly 0
              (padding, zeros of a packed filter) cost nothing.
together      each term carries at most n + 1 factors, so the sum z obeys
                  |z - y| <= gamma(n + 1) * A,    gamma(k) = k u / (1 - k u)
              (Higham, Accuracy and Stability of Numerical Algorithms, lemma 3.1).
underflow     a product below the normal range of float32 is off by half a subnormal step more,
              2**-150, before it is summed. Additions do not underflow.
the reference sums in float64: the same with 2**-53 in place of u.
output        rounding z to fewer bits moves it by half a step of the output type at |z|, and
              |z| <= |y| + |z - y|. Below the normal range the step stops shrinking. A float32
              output is z itself.

Integers come out exactly: every partial sum, in every order, is an integer of at most A, and
float32 holds all of those up to 2**24. Then |z - y| = 0, and any single wrong product shows.
"""

from dataclasses import replace

import ml_dtypes
import numpy as np

from trnconv.reference import forward

FLOAT32_BITS = 24  # of the significand, the leading one included
FLOAT64_BITS = 53
FLOAT32_SUBNORMAL = 2.0**-149


def assert_convolution(y, x, w, bias, shape):
    """y, of the type of x, is the convolution of x and w within the bound; all five-dimensional."""
    exact = forward(x, w, bias, shape)
    assert y.dtype == x.dtype, f"the output is {y.dtype}, the input {x.dtype}"
    assert_within(y, exact, forward_bound(x, w, bias, shape, exact))


def assert_within(y, exact, bound):
    """Every element of y is at most its bound away from the exact one."""
    assert y.shape == exact.shape, f"the output is {y.shape}, not {exact.shape}"
    beyond = excess(y, exact, bound)
    outside = beyond > 0
    if not outside.any():
        return
    place = tuple(int(i) for i in np.unravel_index(np.argmax(beyond), y.shape))
    error = abs(float(y[place]) - exact[place])
    raise AssertionError(
        f"{outside.sum()} of {y.size} outputs are outside their bound. The worst is y{list(place)}"
        f" = {float(y[place])}: exact {exact[place]}, error {error:.3g}, bound"
        f" {bound[place]:.3g}. Wrong: {_extent(outside)}."
    )


def excess(y, exact, bound):
    """How far each output is outside its bound: positive where it is wrong, NaN included."""
    error = np.abs(y.astype(np.float64) - exact)
    return np.where(np.isnan(error), np.inf, error - bound)


def forward_bound(x, w, bias, shape, exact):
    """The largest error of each output of a correct convolution in the type of x."""
    summing = accumulation_bound(x, w, bias, shape)
    reach = np.abs(exact) + summing
    largest = float(ml_dtypes.finfo(x.dtype).max)
    if reach.max() > largest:
        raise ValueError(
            f"outputs up to {reach.max():.3g}: {x.dtype} ends at {largest:.3g}, and what happens"
            " beyond is not this bound's subject. Use smaller inputs."
        )
    return summing + output_rounding(reach, x.dtype)


def accumulation_bound(x, w, bias, shape):
    """The largest error of each float32 sum, and of the reference it is compared with."""
    if sums_are_exact(x, w, bias, shape):
        return np.zeros((shape.batch, shape.c_out, *shape.out_sizes()))
    terms = _terms(shape)
    magnitude = forward(np.abs(x), np.abs(w), None if bias is None else np.abs(bias), shape)
    relative = _gamma(terms + 1, FLOAT32_BITS) + _gamma(terms + 1, FLOAT64_BITS)
    return relative * magnitude + terms * FLOAT32_SUBNORMAL / 2


def sums_are_exact(x, w, bias, shape):
    """Whether the inputs are integers so small that float32 rounds no partial sum."""
    given = [x, w] if bias is None else [x, w, bias]
    most = shape.c_in * shape.taps() * _largest(x) * _largest(w) + sum(map(_largest, given[2:]))
    return most <= 2.0**FLOAT32_BITS and all(np.array_equal(each, np.rint(each)) for each in given)


def output_rounding(magnitude, dtype):
    """Half a step of the type at these magnitudes; nothing for float32, which holds the sum."""
    if dtype == np.float32:
        return np.zeros_like(magnitude)
    kind = ml_dtypes.finfo(dtype)
    # frexp counts from 0.5, so 1.0 has exponent 1; below the normal range the step is constant.
    exponent = np.where(magnitude == 0, int(kind.minexp), np.frexp(magnitude)[1] - 1)
    exponent = np.maximum(exponent, int(kind.minexp))
    return np.ldexp(1.0, exponent - int(kind.nmant) - 1)


def _terms(shape):
    """How many products each output sums: taps inside the image times input channels."""
    pixels = replace(shape, batch=1, c_in=1, c_out=1)
    inside = forward(np.ones((1, 1, *shape.size)), np.ones((1, 1, *shape.kernel)), None, pixels)
    return inside * shape.c_in


def _gamma(count, bits):
    accumulated = count * 2.0**-bits
    return accumulated / (1 - accumulated)


def _largest(values):
    return float(np.abs(values).max())


def _extent(outside):
    """The range of each axis that holds wrong outputs, as a hint where to look."""
    ranges = [np.flatnonzero(outside.any(tuple(set(range(5)) - {axis}))) for axis in range(5)]
    names = ("image", "channel", "frame", "row", "column")
    spans = zip(names, ranges, strict=True)
    return ", ".join(f"{name} {found[0]}..{found[-1]}" for name, found in spans)

"""Inputs for a convolution under test, always the same for the same problem and seed."""

import zlib
from math import isqrt

import ml_dtypes
import numpy as np


def numpy_dtype(name):
    """The NumPy type of this name, bfloat16 included."""
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def normal_arrays(shape, dtype, *, bias=True, seed=0):
    """x, w and bias from a normal distribution: every bit of the significand is in use."""
    rng = _generator(shape, seed)
    x = rng.standard_normal(_x_sizes(shape), np.float32)
    w = rng.standard_normal(_w_sizes(shape), np.float32)
    b = rng.standard_normal(shape.c_out, np.float32) if bias else None
    kind = numpy_dtype(dtype)
    return x.astype(kind), w.astype(kind), None if b is None else b.astype(kind)


def integer_arrays(shape, dtype, *, bias=True, seed=0):
    """x, w and bias in small integers, so that float32 sums them exactly in any order.

    The range is as wide as keeps four standard deviations of an output on integers that the type
    can hold: then a single wrong product shows in nearly every output it enters.
    """
    rng = _generator(shape, seed)
    kind = numpy_dtype(dtype)
    most = _range(shape.c_in * shape.taps(), int(ml_dtypes.finfo(kind).nmant) + 1)
    x = rng.integers(-most, most + 1, _x_sizes(shape), np.int8)
    w = rng.integers(-most, most + 1, _w_sizes(shape), np.int8)
    b = rng.integers(-most, most + 1, shape.c_out, np.int8) if bias else None
    return x.astype(kind), w.astype(kind), None if b is None else b.astype(kind)


def _range(terms, bits):
    """The largest m of 7, 3, 2, 1 whose sums of products of -m..m stay within 2**bits.

    The uniform integers -m..m have variance m (m + 1) / 3, and a product the square of that.
    """
    for most in (7, 3, 2):
        if 4 * most * (most + 1) * (isqrt(terms) + 1) <= 3 * 2**bits:
            return most
    return 1


def _generator(shape, seed):
    return np.random.default_rng([zlib.crc32(repr(shape).encode()), seed])


def _x_sizes(shape):
    return (shape.batch, shape.c_in, *shape.size)


def _w_sizes(shape):
    return (shape.c_out, shape.c_in, *shape.kernel)

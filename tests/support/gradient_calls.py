"""Inputs of a weight gradient under test, and the call that computes it at the lowest rank."""

import zlib

import numpy as np

from conv_arrays import numpy_dtype
from conv_calls import call_options, lowest_rank
from trnconv.runtime.weight_gradient import weight_gradient


def integers(shape, dtype):
    """x and dy in small integers: float32 sums them exactly, and a wrong product shows."""
    rng = _generator(shape)
    x = rng.integers(-3, 4, _x_sizes(shape)).astype(numpy_dtype(dtype))
    return x, rng.integers(-3, 4, _dy_sizes(shape)).astype(numpy_dtype(dtype))


def normals(shape, dtype):
    """x and dy from a normal distribution: every bit of the significand is in use."""
    rng = _generator(shape)
    x = rng.standard_normal(_x_sizes(shape), np.float32).astype(numpy_dtype(dtype))
    return x, rng.standard_normal(_dy_sizes(shape), np.float32).astype(numpy_dtype(dtype))


def gradients(shape, x, dy, cores=1, **options):
    """dw [C_out, C_in / groups, KD, KH, KW], db, and all that was returned."""
    rank = lowest_rank(shape)
    hidden = 3 - rank
    done = weight_gradient(
        x.reshape(*x.shape[:2], *x.shape[2 + hidden :]),
        dy.reshape(*dy.shape[:2], *dy.shape[2 + hidden :]),
        shape.kernel[hidden:],
        **call_options(shape, rank),
        groups=shape.groups,
        padding_mode=shape.modes[hidden:],
        cores=cores,
        **options,
    )
    ins = shape.c_in // shape.groups
    assert done.dw.shape == (shape.c_out, ins, *shape.kernel[hidden:])
    return done.dw.reshape(shape.c_out, ins, *shape.kernel), done.db, done


def _generator(shape):
    return np.random.default_rng(zlib.crc32(repr(shape).encode()))


def _x_sizes(shape):
    return (shape.batch, shape.c_in, *shape.size)


def _dy_sizes(shape):
    return (shape.batch, shape.c_out, *shape.out_sizes())

"""The reference against a definition with seven nested loops, in exact integers."""

import itertools

import numpy as np
import pytest

from trnconv.geometry import conv_shape
from trnconv.reference import forward


def by_hand(x, w, bias, shape):
    y = np.zeros((shape.batch, shape.c_out, *shape.out_sizes()))
    for n, o, *p in np.ndindex(*y.shape):
        total = 0.0 if bias is None else float(bias[o])
        for i, *t in np.ndindex(shape.c_in, *shape.kernel):
            at = [shape.in_position(axis, p[axis], t[axis]) for axis in range(3)]
            if all(0 <= a < size for a, size in zip(at, shape.size, strict=True)):
                total += float(x[n, i, at[0], at[1], at[2]]) * float(w[o, i, t[0], t[1], t[2]])
        y[n, o, p[0], p[1], p[2]] = total
    return y


OPTIONS = [
    {},
    {"padding": 1},
    {"padding": ((2, 0), (1, 1), (0, 1)), "stride": (1, 2, 2)},
    {"stride": (2, 1, 3), "dilation": (1, 2, 1), "padding": (1, 2, 1)},
]


@pytest.mark.parametrize(
    ("options", "with_bias"), list(itertools.product(OPTIONS, (True, False))), ids=str
)
def test_forward_is_the_sum_over_taps_and_channels(options, with_bias):
    rng = np.random.default_rng(3)
    x = rng.integers(-3, 4, (2, 3, 4, 5, 6)).astype(np.float32)
    w = rng.integers(-3, 4, (2, 3, 2, 3, 2)).astype(np.float32)
    bias = rng.integers(-3, 4, 2).astype(np.float32) if with_bias else None
    shape = conv_shape(x.shape, w.shape, **options)
    np.testing.assert_array_equal(forward(x, w, bias, shape), by_hand(x, w, bias, shape))

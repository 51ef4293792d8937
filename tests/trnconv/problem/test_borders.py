"""Folded input gradients against the definition: every position of dy to what it read."""

from itertools import product

import numpy as np
import pytest

from repetition import few
from trnconv.geometry import conv_shape
from trnconv.problem.borders import input_gradient, widened
from trnconv.runtime.convolve import LaunchOptions
from trnconv.runtime.gradients import input_gradient as on_kernels

NUMPY = {"zeros": "constant", "replicate": "edge", "reflect": "reflect", "circular": "wrap"}
STEPS = (
    {"padding": 1},
    {"padding": ((2, 0), 1, (1, 2)), "stride": (1, 2, 3)},
    {"padding": ((0, 1), 2, (2, 1)), "dilation": (1, 2, 1)},
)


def numbers(sizes, seed):
    return np.random.default_rng(seed).integers(-3, 4, sizes).astype(np.float32)


def definition(shape, dy, w):
    """Positions of x by number, padded by NumPy: each tap adds where its number says."""
    places = np.arange(np.prod(shape.size)).reshape(shape.size) + 1
    for axis, mode in enumerate(shape.modes):
        pads = [(0, 0)] * 3
        pads[axis] = (shape.pad_before[axis], shape.pad_after[axis])
        places = np.pad(places, pads, mode=NUMPY[mode])  # zeros stay 0
    dx = np.zeros((shape.batch, shape.c_in, places.max() + 1))
    for tap in np.ndindex(*shape.kernel):
        spans = [
            slice(at * d, at * d + (out - 1) * step + 1, step)
            for at, d, out, step in zip(
                tap, shape.dilation, shape.out_sizes(), shape.stride, strict=True
            )
        ]
        added = np.einsum("oc,nodhw->ncdhw", w[(slice(None), slice(None), *tap)], dy)
        np.add.at(
            dx,
            (slice(None), slice(None), places[tuple(spans)].ravel()),
            added.reshape(*dx.shape[:2], -1),
        )
    return dx[:, :, 1:].reshape(shape.batch, shape.c_in, *shape.size)


@few(8)
@pytest.mark.parametrize("step", range(len(STEPS)))
@pytest.mark.parametrize("modes", list(product(NUMPY, repeat=3)), ids="-".join)
def test_gradients_of_padding_go_where_its_values_are_from(modes, step):
    x, w = (2, 3, 4, 5, 6), numbers((4, 3, 2, 3, 3), 1)
    shape = conv_shape(x, w.shape, padding_mode=modes, **STEPS[step])
    dy = numbers((2, 4, *shape.out_sizes()), 2)
    done = on_kernels(dy, w, x, padding_mode=modes, launch=LaunchOptions(cores=1), **STEPS[step])
    assert np.array_equal(done.y, definition(shape, dy, w))


def test_padding_with_values_is_input_of_the_wide_convolution_and_zeros_are_not():
    shape = conv_shape(
        (1, 2, 4, 5, 6), (2, 2, 3, 3, 3), padding=1, padding_mode=("zeros", "reflect", "circular")
    )
    wide = widened(shape)
    assert (wide.size, wide.pad_before) == ((4, 7, 8), (1, 0, 0))
    assert wide.out_sizes() == shape.out_sizes()


def test_nothing_is_copied_where_padding_is_zeros():
    shape = conv_shape((1, 2, 4, 5, 6), (2, 2, 3, 3, 3), padding=1)
    dx = np.ones((1, 2, 4, 5, 6))
    assert input_gradient(shape, lambda _: dx) is dx

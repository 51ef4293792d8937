"""An input that lies in several tensors: the same bits as if they were one."""

from dataclasses import replace

import numpy as np
import pytest

from conv_arrays import integer_arrays
from conv_calls import call_options
from direct_plans import direct_plan
from repetition import few
from trnconv.geometry import conv_shape
from trnconv.reference import forward
from trnconv.runtime import LaunchOptions, convolve_pieces

CASES = {
    "cache_of_two": ((1, 40, 6, 7, 9), (24, 40, 3, 3, 3), (2, 4), {"padding": (0, 1, 1)}),
    "single_frames": ((1, 96, 3, 6, 20), (96, 96, 3, 3, 3), (1, 1, 1), {"padding": (0, 1, 1)}),
    "zeros_and_one_cached": (
        (2, 16, 3, 9, 8),
        (33, 16, 3, 3, 3),
        (1, 2),
        {"padding": ((1, 0), 1, 1)},
    ),
    "temporal_only": ((1, 130, 5, 4, 6), (64, 130, 3, 1, 1), (2, 3), {}),
    "strided": ((1, 20, 5, 8, 8), (20, 20, 3, 3, 3), (1, 4), {"stride": (2, 2, 2)}),
}


def cut(x, frames):
    ends = np.cumsum(frames)
    return [np.ascontiguousarray(x[:, :, e - n : e]) for n, e in zip(frames, ends, strict=True)]


@few(6)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_pieces_are_convolved_as_one(name, cores):
    x_shape, w_shape, frames, options = CASES[name]
    shape = conv_shape(x_shape, w_shape, **options)
    x, w, bias = integer_arrays(shape, "bfloat16")
    launch = LaunchOptions(cores=cores)
    y = convolve_pieces(cut(x, frames), w, bias, **call_options(shape, 3), launch=launch).y
    assert np.array_equal(y, forward(x, w, bias, shape).astype(x.dtype))


@few(3)
@pytest.mark.parametrize("name", CASES)
def test_pieces_in_a_hardware_loop(name):
    x_shape, w_shape, frames, options = CASES[name]
    shape = conv_shape(x_shape, w_shape, **options)
    x, w, bias = integer_arrays(shape, "bfloat16")
    plan = direct_plan(shape, pieces=frames)
    rows = plan.row_multiple
    looped = replace(plan, looped=True, rows=rows, lead=(), ahead=False)
    launch = LaunchOptions(plans=(looped,))
    done = convolve_pieces(cut(x, frames), w, bias, **call_options(shape, 3), launch=launch)
    assert np.array_equal(done.y, forward(x, w, bias, shape).astype(x.dtype))


def test_the_order_of_pieces_matters():
    x_shape, w_shape, frames, options = CASES["cache_of_two"]
    shape = conv_shape(x_shape, w_shape, **options)
    x, w, bias = integer_arrays(shape, "bfloat16")
    cache, new = cut(x, frames)
    y = convolve_pieces([new, cache], w, bias, **call_options(shape, 3)).y
    assert not np.array_equal(y, forward(x, w, bias, shape).astype(x.dtype))

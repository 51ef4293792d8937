"""The forward convolution on the problems of the project this one started from.

In the default run against the float64 reference; with `-m torch` also against PyTorch in float64.
"""

import numpy as np
import pytest

from conv_arrays import integer_arrays, normal_arrays
from conv_calls import compute
from repetition import few
from seed_families import FAMILIES, PROBLEMS
from tolerance import assert_convolution, assert_within, forward_bound

problems = pytest.mark.parametrize("problem", PROBLEMS, ids=[each.name for each in PROBLEMS])


def test_no_family_lost_a_member():
    counted = {name: len(family) for name, family in FAMILIES.items()}
    assert counted == {
        "pytorch": 12,
        "wan": 12,
        "cogvideox": 15,
        "hunyuan": 18,
        "bfloat16": 12,
        "dilation": 8,
        "edges": 9,
    }
    assert len({problem.name for problem in PROBLEMS}) == 86


@few(10)
@problems
def test_outputs_are_the_reference_within_the_bound(problem):
    shape = problem.shape()
    x, w, bias = normal_arrays(shape, problem.dtype, bias=problem.bias)
    assert_convolution(compute(shape, (x, w, bias)), x, w, bias, shape)


@few(10)
@pytest.mark.parametrize("cores", [1, 2])
@problems
def test_integers_come_out_exactly_in_bfloat16(problem, cores):
    """In the type that models run in, and on the newest machine."""
    shape = problem.shape()
    x, w, bias = integer_arrays(shape, "bfloat16", bias=problem.bias)
    y = compute(shape, (x, w, bias), machine="trn3", cores=cores)
    assert_convolution(y, x, w, bias, shape)


@few(20)
@pytest.mark.torch
@problems
def test_outputs_are_pytorch_in_float64_within_the_bound(problem):
    shape = problem.shape()
    x, w, bias = normal_arrays(shape, problem.dtype, bias=problem.bias)
    exact = torch_forward(x, w, bias, shape)
    assert_within(compute(shape, (x, w, bias)), exact, forward_bound(x, w, bias, shape, exact))


def torch_forward(x, w, bias, shape):
    import torch

    def tensor(values):
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64))

    sides = zip(reversed(shape.pad_before), reversed(shape.pad_after), strict=True)
    padded = torch.nn.functional.pad(tensor(x), [side for pair in sides for side in pair])
    y = torch.nn.functional.conv3d(
        padded,
        tensor(w),
        None if bias is None else tensor(bias),
        stride=shape.stride,
        dilation=shape.dilation,
    )
    return y.numpy()

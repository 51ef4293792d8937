"""The forward convolution on every distinct dense call of 30 models, at reduced extent.

The default run takes every 16th of the problems of fewer than a million weights, `-m slow` takes
the rest.
Inputs are integers in bfloat16, so that outputs are exact.
"""

import pytest

from catalogue_problems import catalogue_problems, cropped, unpadded, zero_padding
from conv_arrays import integer_arrays
from conv_calls import compute
from tolerance import assert_convolution
from trnconv.catalogue import calls
from trnconv.geometry import conv_shape

PROBLEMS = catalogue_problems()
QUICK_WEIGHTS = 1_000_000
QUICK = tuple(problem for problem in PROBLEMS if problem.weights < QUICK_WEIGHTS)[::16]
SLOW = tuple(problem for problem in PROBLEMS if problem not in QUICK)


def check(problem):
    machine, cores = problem.machine
    x, w, bias = integer_arrays(problem.shape, "bfloat16", bias=problem.bias)
    y = compute(problem.shape, (x, w, bias), rank=problem.rank, machine=machine, cores=cores)
    assert_convolution(y, x, w, bias, problem.shape)


@pytest.mark.parametrize("problem", QUICK, ids=[problem.name for problem in QUICK])
def test_a_call_of_a_model_comes_out_exactly(problem):
    check(problem)


@pytest.mark.slow
@pytest.mark.parametrize("problem", SLOW, ids=[problem.name for problem in SLOW])
def test_the_other_calls_come_out_exactly_too(problem):
    check(problem)


def test_every_dense_call_is_one_of_the_problems():
    def kind(shape, bias):
        pads = (shape.pad_before, shape.pad_after)
        return (shape.c_in, shape.c_out, shape.kernel, shape.stride, shape.dilation, *pads, bias)

    found = {kind(problem.shape, problem.bias) for problem in PROBLEMS}
    for call in (call for call in calls() if call.dense):
        shape = conv_shape(
            unpadded(call),
            call.weight,
            stride=call.stride,
            padding=zero_padding(call),
            dilation=call.dilation,
        )
        assert shape.out_sizes() == call.shape().out_sizes(), call
        assert kind(shape, call.bias) in found, call
    assert len(PROBLEMS) == 362
    assert (len(QUICK), len(SLOW)) == (13, 349)


def test_targets_and_cores_are_spread():
    machines = [problem.machine for problem in PROBLEMS]
    for machine in (("trn2", 1), ("trn2", 2), ("trn3", 1), ("trn3", 2)):
        assert machines.count(machine) > len(PROBLEMS) / 8, machine


def test_cropping_keeps_edges_and_what_a_stride_leaves_over():
    plane = conv_shape((1, 8, 480, 832), (8, 8, 3, 3), stride=2, padding=((0, 1), (0, 1)))
    small = cropped(plane, (2, 3, 5))
    assert (small.size, small.out_sizes()) == ((1, 6, 10), (1, 3, 5))
    assert (small.size[1] + 1 - 3) % 2 == (480 + 1 - 3) % 2
    causal = conv_shape((1, 8, 1, 9, 9), (8, 8, 3, 3, 3), padding=((2, 0), 1, 1))
    assert cropped(causal, (2, 3, 5)).size == (1, 3, 5)
    assert cropped(causal, (2, 20, 20)) == causal

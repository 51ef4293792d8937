"""Two cores: every algorithm against the reference, for random shapes, loops and ways to cut.

nkisim raises if both cores touch an element without an order, and if their loops differ.
"""

from dataclasses import replace

import numpy as np
import pytest

from conv_arrays import integer_arrays, normal_arrays
from core_pairs import every_pair, gain
from nkisim.machine import TRN2, TRN3
from random_convolutions import random_convolution
from repetition import few, slow_beyond
from tolerance import assert_convolution
from trnconv.geometry import conv_shape
from trnconv.planner.best import searched_plan
from trnconv.planner.shares import shared_plans
from trnconv.problem.conv_problem import WEIGHT_GRADIENT, ConvProblem
from trnconv.problem.epilogue import BEFORE, epilogue_of
from trnconv.problem.policy import FAST, Policy
from trnconv.reference import forward
from trnconv.runtime import LaunchOptions, convolve, convolve_shape
from trnconv.runtime.launch import trace_plans

COLUMNS = {
    "one row": conv_shape((1, 40, 700), (70, 40, 9), padding=4),
    "1x1x1": conv_shape((1, 130, 3, 5, 7), (20, 130, 1, 1, 1)),
    "frames": conv_shape((1, 40, 4, 9, 7), (24, 40, 3, 1, 1), padding=(1, 0, 0)),
    "three rows": conv_shape((1, 16, 4, 3, 41), (24, 16, 3, 3, 3), padding=1),
    "strided": conv_shape((1, 16, 5, 43), (24, 16, 3, 3), stride=2, padding=1),
    "replicated": conv_shape((1, 8, 3, 31), (8, 8, 3, 3), padding=1, padding_mode="replicate"),
}


@few(4)
@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("draw", [integer_arrays, normal_arrays])
def test_direct_values_of_every_cut(name, draw):
    shape = COLUMNS[name]
    x, w, bias = draw(shape, "bfloat16")
    tried = [share for share, plans in every_pair(ConvProblem(shape, TRN2, algorithms=("direct",)))]
    assert any(share.columns for share in tried)
    for _, plans in every_pair(ConvProblem(shape, TRN2, algorithms=("direct",))):
        done = convolve_shape((x,), w, bias, shape, LaunchOptions(cores=2, plans=plans))
        assert_convolution(done.y, x, w, bias, shape)


@pytest.mark.parametrize(
    "numbers", slow_beyond(1, [range(at, at + 5) for at in range(0, 60, 5)]), ids=str
)
def test_direct_values_of_random_shapes_with_loops(numbers):
    """Budgets so small that most are looped."""
    for number in numbers:
        drawn = random_convolution(number)
        shape = drawn.shape
        x, w, bias = integer_arrays(shape, drawn.dtype)
        problem = ConvProblem(
            shape, TRN3 if number % 3 else TRN2, drawn.dtype, algorithms=("direct",)
        )
        alone = searched_plan(problem).cost.instructions
        tight = replace(problem, budget=max(120, alone // 3))
        plans = tuple(priced.plan for priced in shared_plans(tight))
        launch = LaunchOptions(problem.machine.name, 2, plans=plans)
        done = convolve_shape((x,), w, bias, shape, launch)
        assert_convolution(done.y, x, w, bias, shape)


@few(1)
@pytest.mark.parametrize("name", ["one row", "1x1x1", "frames", "three rows"])
def test_reproducible_bits_are_those_of_one_core(name):
    shape = COLUMNS[name]
    x, w, bias = normal_arrays(shape, "bfloat16")
    one, two = (LaunchOptions(cores=cores, reproducible=True) for cores in (1, 2))
    alone = convolve_shape((x,), w, bias, shape, one).y
    both = convolve_shape((x,), w, bias, shape, two)
    assert both.plans[0][0] != both.plans[0][1]
    np.testing.assert_array_equal(both.y, alone)
    problem = ConvProblem(shape, TRN2, reproducible=True, algorithms=("direct",))
    for _, plans in every_pair(problem):
        launch = replace(two, plans=plans)
        np.testing.assert_array_equal(convolve_shape((x,), w, bias, shape, launch).y, alone)


@pytest.mark.slow
def test_a_pair_is_faster_whatever_the_algorithm():
    dense = conv_shape((1, 256, 4, 60, 64), (256, 256, 3, 3, 3), padding=(0, 1, 1))
    assert 1.75 < gain(ConvProblem(dense, TRN2, direction=WEIGHT_GRADIENT)) <= 2.0
    deep = conv_shape((1, 512, 4, 48, 48), (512, 1, 3, 3, 3), padding=1, groups=512)
    assert 1.8 < gain(ConvProblem(deep, TRN2, algorithms=("depthwise",))) <= 2.0
    pointwise = conv_shape((1, 512, 4, 128, 128), (512, 512, 1, 1, 1))
    assert 1.8 < gain(ConvProblem(pointwise, TRN2, algorithms=("direct",))) <= 2.0


def test_values_with_a_residual_and_an_activation():
    shape = COLUMNS["1x1x1"]
    x, w, bias = integer_arrays(shape, "float32")
    residual = np.ones((1, shape.c_out, *shape.out_sizes()), np.float32)
    epilogue = epilogue_of("relu", BEFORE, "")
    y = convolve(x, w, bias, launch=LaunchOptions(cores=2, epilogue=epilogue, residual=residual)).y
    exact = np.maximum(forward(x, w, bias, shape) + residual, 0)
    np.testing.assert_array_equal(y, exact)


@few(2)
@pytest.mark.parametrize("name", ["direct", "winograd", "depthwise", "gradient"])
def test_no_core_goes_on_before_both_have_stored(name):
    """The last instructions of both programs are barriers of what they return."""
    dense = conv_shape((1, 96, 3, 12, 16), (96, 96, 3, 3, 3), padding=(0, 1, 1))
    deep = conv_shape((1, 300, 3, 6, 8), (300, 1, 3, 3, 3), padding=1, groups=300)
    fast = Policy(FAST, least_macs=0)
    problem = {
        "direct": ConvProblem(dense, TRN2, algorithms=("direct",)),
        "winograd": ConvProblem(dense, TRN2, policy=fast, algorithms=("winograd",)),
        "depthwise": ConvProblem(deep, TRN2, algorithms=("depthwise",)),
        "gradient": ConvProblem(dense, TRN2, direction=WEIGHT_GRADIENT),
    }[name]
    results = ["dw", "db"] if name == "gradient" else ["y"]
    traced = trace_plans(tuple(priced.plan for priced in shared_plans(problem)))
    for trace in traced.traces:
        ends = list(trace.instructions())[-len(results) :]
        assert [one.op for one in ends] == ["core_barrier"] * len(results)
        assert [one.writes[0].allocation.name for one in ends] == results

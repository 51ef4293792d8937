"""No DMA splits the partition axis unless switched on: stacked taps and outputs go part by part."""

import numpy as np
import pytest

import trnconv
from nkisim.machine import TRN1, TRN2, TRN3
from nkisim.machine_workarounds import with_workarounds
from repetition import few
from strict_plans import broken_rule
from trnconv.geometry import conv_shape
from trnconv.planner.best import best_plan
from trnconv.planner.shares import shared_plans
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.policy import ALWAYS_DIRECT

RULE = "dma-split-partitions"
SPLIT = with_workarounds(TRN2, "split-partitions")
# Few outputs, of which neighbours are stacked; few inputs, whose taps are.
SIZES = {
    "outputs": ((1, 96, 3, 12, 64), (3, 96, 3, 3, 3)),
    "taps": ((1, 3, 3, 12, 64), (96, 3, 3, 3, 3)),
}


def problem(name, machine):
    x, w = SIZES[name]
    return ConvProblem(conv_shape(x, w, padding=1), machine, policy=ALWAYS_DIRECT)


@pytest.mark.parametrize("machine", [TRN1, TRN2, TRN3], ids=lambda machine: machine.name)
@pytest.mark.parametrize("name", SIZES)
def test_a_plan_breaks_no_rule(name, machine):
    assert broken_rule(best_plan(problem(name, machine)).plan) == ""


@pytest.mark.parametrize("name", SIZES)
def test_plans_of_two_cores_break_none_either(name):
    pair = shared_plans(problem(name, TRN2))
    assert broken_rule(*(priced.plan for priced in pair)) == ""


def test_with_the_workaround_partitions_are_split_and_the_rule_says_so():
    assert broken_rule(best_plan(problem("outputs", SPLIT)).plan) == RULE
    pair = shared_plans(problem("outputs", SPLIT))
    assert broken_rule(*(priced.plan for priced in pair)) == RULE


def test_outputs_are_stacked_all_the_same():
    """The array is as full, and more DMAs hide behind it: the last layer of Wan 2.1 at 720p."""
    shape = conv_shape((1, 96, 6, 720, 1280), (3, 96, 3, 3, 3), padding=(0, 1, 1))
    split, whole = (
        best_plan(ConvProblem(shape, machine)).cost.total_ns for machine in (SPLIT, TRN2)
    )
    assert whole <= 1.01 * split


@few(1)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("name", SIZES)
def test_values_are_the_same(name, cores):
    rng = np.random.default_rng(7)
    x, w = (rng.integers(-3, 4, size).astype(np.float32) for size in SIZES[name])
    asked = {"padding": 1, "accuracy": "direct", "cores": cores}
    whole = trnconv.conv3d(x, w, **asked)
    split = trnconv.conv3d(x, w, machine=SPLIT.name, **asked)
    assert np.any(whole)
    np.testing.assert_array_equal(split, whole)

"""Without DMAs that split the partition axis: stacked taps and outputs go part by part."""

import numpy as np
import pytest

import trnconv
from nkisim.machine import TRN2
from nkisim.machine_switches import switched
from repetition import few
from strict_plans import surveyed
from trnconv.ask.policy import ALWAYS_DIRECT
from trnconv.ask.question import Question
from trnconv.geometry import conv_shape
from trnconv.planner.best import best_plan
from trnconv.planner.shares import shared_plans

RULE = "dma-split-partitions"
WHOLE = "trn2+whole-partitions"
MACHINES = (TRN2, switched(TRN2, "whole-partitions"))
# Few outputs, of which neighbours are stacked; few inputs, whose taps are.
SIZES = {
    "outputs": ((1, 96, 3, 12, 64), (3, 96, 3, 3, 3)),
    "taps": ((1, 3, 3, 12, 64), (96, 3, 3, 3, 3)),
}


def question(name, machine):
    x, w = SIZES[name]
    return Question(conv_shape(x, w, padding=1), machine, policy=ALWAYS_DIRECT)


def rules_of(plans):
    return {broken.rule.name for broken in surveyed(*plans).rules}


def test_partitions_are_split_unless_it_is_switched_off():
    split, whole = (best_plan(question("outputs", machine)).plan for machine in MACHINES)
    assert RULE in rules_of((split,))
    assert RULE not in rules_of((whole,))


def test_outputs_are_stacked_all_the_same():
    """The array is as full, and more DMAs hide behind it: the last layer of Wan 2.1 at 720p."""
    shape = conv_shape((1, 96, 6, 720, 1280), (3, 96, 3, 3, 3), padding=(0, 1, 1))
    split, whole = (best_plan(Question(shape, machine)).cost.total_ns for machine in MACHINES)
    assert whole <= 1.01 * split


@pytest.mark.parametrize("name", SIZES)
def test_no_plan_splits_them_then(name):
    assert RULE not in rules_of((best_plan(question(name, MACHINES[1])).plan,))


@pytest.mark.parametrize("name", SIZES)
def test_two_cores_do_not_split_them_either(name):
    pair = shared_plans(question(name, MACHINES[1]))
    assert RULE not in rules_of(tuple(priced.plan for priced in pair))


@few(1)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("name", SIZES)
def test_values_are_the_same(name, cores):
    rng = np.random.default_rng(7)
    x, w = (rng.integers(-3, 4, size).astype(np.float32) for size in SIZES[name])
    asked = {"padding": 1, "accuracy": "direct", "cores": cores}
    split = trnconv.conv3d(x, w, **asked)
    whole = trnconv.conv3d(x, w, target=WHOLE, **asked)
    assert np.any(split)
    np.testing.assert_array_equal(split, whole)

"""Steps that come late in a unit, because the Scalar engine has inputs to scale before them."""

from dataclasses import replace

import numpy as np
import pytest

from conv_arrays import numpy_dtype
from fast_cases import EVERY_CASE, case_of
from nkisim.machine import TRN2
from repetition import few
from strict_plans import broken_rule
from trnconv.algorithms.search import search
from trnconv.algorithms.winograd.algorithm import WINOGRAD
from trnconv.algorithms.winograd.candidates import refined
from trnconv.algorithms.winograd.cost import cost_of
from trnconv.algorithms.winograd.rules import violations
from trnconv.geometry import conv_shape
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.policy import FAST, Policy
from trnconv.problem.prologue import Prologue, prologue_of
from trnconv.reference import forward
from trnconv.runtime import time_plan
from winograd_plans import pieces_of, run_plan, scaled_integers

BF16 = numpy_dtype("bfloat16")
SCALED = prologue_of("relu")
NARROW = [name for name in EVERY_CASE if case_of(name).dtype == "bfloat16"]


@few(6)
@pytest.mark.parametrize("pauses", [1, 3, 99])
@pytest.mark.parametrize("name", NARROW)
def test_late_steps_compute_the_same(name, pauses):
    """More pauses than a unit has are as many as it has but one."""
    plan = replace(case_of(name), prologue=SCALED)
    late = replace(plan, late_pauses=pauses)
    assert not violations(late)
    x, factors, w, bias = scaled_integers(plan)
    one, other = (
        np.asarray(run_plan(each, pieces_of(x, plan), w, bias, factors=factors).outputs)
        for each in (plan, late)
    )
    assert one.tobytes() == other.tobytes()


@few(2)
@pytest.mark.parametrize("name", NARROW)
def test_late_steps_break_no_device_rule(name):
    plan = replace(case_of(name), prologue=SCALED)
    assert broken_rule(replace(plan, late_pauses=2)) in ("", broken_rule(plan))


def heavy(frames, **changes):
    """128 channels of a decoder's last stage."""
    shape = conv_shape(
        (1, 128, frames, 32, 320),
        (128, 128, 3, 3, 3),
        padding=((2, 0), 1, 1),
        padding_mode="replicate",
    )
    policy = Policy(FAST, least_macs=0)
    asked = ConvProblem(shape, TRN2, policy=policy, prologue=prologue_of("silu"), budget=10**9)
    return replace(search(WINOGRAD, asked, "F(4,3), frames")[0].plan, **changes)


@few(2)
@pytest.mark.parametrize("pauses", [0, 1, 3, 5])
def test_prices_of_late_steps_are_those_of_schedules(pauses):
    plan = heavy(9, late_pauses=pauses)
    assert cost_of(plan).total_ns == pytest.approx(time_plan(plan).makespan_ns, rel=0.05)


def test_steps_that_wait_for_scaled_inputs_are_best_late():
    """In order, they would keep what chains need waiting."""
    plan = heavy(17, rows=8, columns=320, x_slots=8, v_slots=2, body_blocks=4, anchor=0)
    at_once, late = (cost_of(replace(plan, late_pauses=n)).total_ns for n in (0, 3))
    assert late < 0.96 * at_once
    assert min(refined(plan), key=lambda one: cost_of(one).total_ns).late_pauses > 0


def test_frames_that_fill_no_tiles_may_be_cut_at_either_end():
    plan = replace(heavy(5), anchor=0)
    assert {one.anchor for one in refined(plan)} == {0, 1, 2, 3}
    assert {one.anchor for one in refined(replace(heavy(8), anchor=0))} == {0}
    assert {one.late_pauses for one in refined(replace(plan, prologue=Prologue()))} == {0}


@few(2)
@pytest.mark.parametrize("anchor", [0, 1, 2, 3])
def test_anchored_tiles_compute_the_same(anchor):
    plan = replace(case_of("four_frames"), anchor=0)
    shape = replace(plan.shape, size=(7, *plan.shape.size[1:]))  # 5 outputs
    plan = replace(plan, shape=shape, units=2, anchor=anchor, body_blocks=1, x_slots=10)
    assert plan.tiles == 2
    assert not violations(plan)
    x, _, w, bias = scaled_integers(plan)
    y = np.asarray(run_plan(plan, (x,), w, bias).outputs)
    assert np.array_equal(y, forward(x, w, bias, shape).astype(BF16))


def test_a_negative_number_of_pauses_is_refused():
    assert any("at least 0" in why for why in violations(heavy(5, late_pauses=-1)))

"""A Winograd kernel's pipeline in large steps, beside nkisim's schedule of every instruction."""

from dataclasses import replace

import pytest

from nkisim.machine import TRN1, TRN2, TRN3
from repetition import few
from trnconv.algorithms.search import search
from trnconv.algorithms.winograd.algorithm import FAMILIES, WINOGRAD
from trnconv.algorithms.winograd.cost import cost_of
from trnconv.algorithms.winograd.rules import may_add_first, violations
from trnconv.algorithms.winograd.throughput import iteration_throughput
from trnconv.geometry import conv_shape
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.epilogue import AFTER, BEFORE, PLAIN_EPILOGUE, epilogue_of
from trnconv.problem.policy import FAST, Policy
from trnconv.runtime import time_plan

POLICY = Policy(FAST, least_macs=0)
WITHIN = 0.05  # of the schedule, what the planner relies on
SHAPES = {
    "96": conv_shape((1, 96, 4, 24, 160), (96, 96, 3, 3, 3), padding=(0, 1, 1)),
    "192, copies made by an engine": conv_shape(
        (1, 192, 4, 24, 96), (192, 192, 3, 3, 3), padding=(0, 1, 1)
    ),
    "replicated": conv_shape(
        (1, 128, 4, 48, 96), (128, 128, 3, 3, 3), padding=(0, 1, 1), padding_mode="replicate"
    ),
    "512, streamed": conv_shape((1, 512, 3, 24, 48), (512, 512, 3, 3, 3), padding=(0, 1, 1)),
}
LARGE = conv_shape((1, 96, 4, 96, 320), (96, 96, 3, 3, 3), padding=(0, 1, 1))
# Who adds what is added to outputs: the Vector engine, the GpSimd engine, or both a part of it.
RESIDUALS = [
    {"gpsimd_residual": first, "shares_residual": shared}
    for first, shared in ((False, False), (True, False), (True, True))
]
ENDS = {
    "plain": PLAIN_EPILOGUE,
    "before": epilogue_of("silu", BEFORE, ""),
    "after": epilogue_of("silu", AFTER, ""),
}


def plans(shape, family, budget=10**9, epilogue=PLAIN_EPILOGUE, machine=TRN2):
    problem = ConvProblem(shape, machine, policy=POLICY, budget=budget, epilogue=epilogue)
    return search(WINOGRAD, problem, family)


def error(plan):
    return cost_of(plan).total_ns / time_plan(plan).makespan_ns - 1


@few(4)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_prices_are_those_of_the_schedule(shape, family):
    for priced in plans(SHAPES[shape], family)[:1]:
        assert abs(error(priced.plan)) < WITHIN


@few(1)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("budget", [2_400, 10**9])
def test_prices_with_loops_and_residuals_are_those_of_the_schedule(end, budget):
    for family in ("F(2,3), frames", "F(4,3), rows"):
        priced, *_ = plans(LARGE, family, budget=budget, epilogue=ENDS[end])
        assert priced.plan.looped == (budget == 2_400)
        assert abs(error(priced.plan)) < WITHIN


def test_prices_on_trn3_are_those_of_the_schedule():
    priced, *_ = plans(SHAPES["96"], "F(2,3), rows", machine=TRN3)
    assert abs(error(priced.plan)) < WITHIN


def test_a_residual_and_streamed_weights_share_a_queue():
    """What sums of busy times did not see: the queue is free, and still both come late."""
    ended, *_ = plans(SHAPES["512, streamed"], "F(4,3), rows", epilogue=ENDS["before"])
    assert ended.plan.streamed
    assert abs(error(ended.plan)) < WITHIN
    fewer = replace(
        ended.plan,
        gpsimd_steps=0,
        gpsimd_residual=False,
        shares_residual=False,
        residual_buffers=2,
    )
    assert (
        cost_of(fewer).total_ns > 1.02 * cost_of(replace(fewer, epilogue=PLAIN_EPILOGUE)).total_ns
    )
    assert abs(error(fewer)) < WITHIN


@few(2)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", ["96", "192, copies made by an engine"])
def test_prices_of_work_of_the_gpsimd_engine_are_those_of_the_schedule(shape, family, end):
    for priced in plans(SHAPES[shape], family, epilogue=ENDS[end])[:1]:
        plan = priced.plan
        for steps in (0, *plan.transforms.apart):
            for residual in RESIDUALS[: 3 if may_add_first(plan.epilogue) else 1]:
                variant = replace(plan, gpsimd_steps=steps, **residual)
                assert not violations(variant)
                assert abs(error(variant)) < WITHIN


def test_a_sweep_for_each_group_of_output_channels():
    """192 channels are a tile of 128 and one of 64, which two sweeps of one tile multiply."""
    shape = conv_shape((1, 192, 6, 15, 640), (192, 192, 3, 3, 3), padding=(0, 1, 1))
    both, *_ = plans(shape, "F(2,3), frames")
    apart = replace(both.plan, group=1)
    assert not violations(apart)
    assert abs(error(apart)) < WITHIN


def test_iterations_lose_what_no_product_hides():
    priced, *_ = plans(LARGE, "F(2,3), frames", budget=2_400)
    iteration = iteration_throughput(priced.plan, (0, 1))
    assert 0 < iteration.lost_ns < iteration.body_ns
    assert priced.cost.loops_ns > iteration.pause_ns


def test_trn1_is_refused_in_words():
    reason = WINOGRAD.unsupported(ConvProblem(SHAPES["96"], TRN1, policy=POLICY), "F(2,3), rows")
    assert "on trn1" in reason
    assert not WINOGRAD.is_worth_asking(ConvProblem(SHAPES["96"], TRN1, policy=POLICY))

"""The Winograd algorithm of upsampled inputs: refusals, prices, the choice between algorithms."""

from dataclasses import replace

import pytest

from conv_arrays import normal_arrays
from nkisim.machine import TRN1, TRN2, TRN3, find_machine
from trnconv.algorithms.half_precision import RangeError
from trnconv.algorithms.rectangles import rectangles
from trnconv.algorithms.search import by_schedule, search
from trnconv.algorithms.winograd_upsample.algorithm import WINOGRAD_UPSAMPLE
from trnconv.algorithms.winograd_upsample.error import expected_ratio, range_limit
from trnconv.planner.best import choose
from trnconv.planner.shares import searched_pair
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.epilogue import Epilogue
from trnconv.problem.policy import Policy
from upsample_cases import upsampled
from winograd_plans import run_plan

LAYER = upsampled(256, 256, (1, 120, 180))


def refusal(**changes):
    return WINOGRAD_UPSAMPLE.unsupported(
        replace(ConvProblem(LAYER, TRN2), **changes), "differences"
    )


def test_the_error_is_within_the_default_policy():
    assert 1.0 < expected_ratio("bfloat16") < 1.05
    assert refusal() == ""
    assert refusal(policy=Policy("fast")) == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"policy": Policy("direct")}, "direct allows 1.0x"),
        ({"policy": Policy(x_max=20000.0)}, "in fp16 they take 16376"),
        ({"dtype": "float32"}, "the kernel makes them in fp16"),
        ({"dtype": "float16"}, "float16 convolution"),
        ({"exact": True}, "a difference of Inf is NaN"),
        ({"machine": TRN1}, "adds no bias"),
        ({"machine": find_machine("trn2+no-growing-banks")}, "switched off"),
        ({"epilogue": Epilogue("silu")}, "apply it afterwards"),
        ({"pieces": (1,)}, "one tensor"),
        (
            {"shape": upsampled(64, 64, (2, 8, 8), frames=(3, 1, 0, 2)), "reproducible": True},
            "bord",
        ),
    ],
)
def test_refusals_say_why(changes, words):
    assert words in refusal(**changes)


def test_frames_by_themselves_are_reproducible():
    assert refusal(reproducible=True) == ""


@pytest.mark.parametrize("machine", [TRN2, TRN3])
def test_it_is_taken_where_it_wins(machine):
    problem = ConvProblem(LAYER, machine)
    choice = choose(problem)
    assert choice.taken.plan.family == "differences"
    direct = next(offer for offer in choice.offers if offer.family == "direct")
    assert choice.taken.cost.total_ns < 0.7 * direct.best.cost.total_ns
    pair = searched_pair(problem)
    assert max(half.cost.total_ns for half in pair) < 0.55 * choice.taken.cost.total_ns


@pytest.mark.parametrize(
    ("c_in", "c_out", "size", "budget"),
    [
        (256, 256, (1, 60, 90), 40_000),
        (512, 256, (2, 24, 80), 40_000),
        (128, 128, (1, 96, 64), 300),
    ],
)
def test_the_price_is_that_of_the_schedule(c_in, c_out, size, budget):
    """In-order engines wait for each other where several are busy: up to 12 % was seen."""
    problem = ConvProblem(upsampled(c_in, c_out, size), TRN2, budget=budget)
    best = search(WINOGRAD_UPSAMPLE, problem, "differences")[0]
    assert best.plan.is_looped == (budget < 1000)
    timed = by_schedule(WINOGRAD_UPSAMPLE, best).cost.total_ns
    assert best.cost.total_ns == pytest.approx(timed, rel=0.12)


def test_data_beyond_the_range_is_refused():
    problem = ConvProblem(upsampled(64, 64, (1, 8, 8)), TRN2)
    plan = search(WINOGRAD_UPSAMPLE, problem, "differences")[0].plan
    x, w, bias = normal_arrays(plan.shape, "bfloat16")
    with pytest.raises(RangeError, match=r"differences in fp16 take \|x\| up to 16376"):
        run_plan(plan, [x + x.dtype.type(2 * range_limit())], w, bias)


def test_rectangles_cover_all_positions():
    found = rectangles(5, 180, 512)
    assert sum((r.row_end - r.row) * (r.column_end - r.column) for r in found) == 900
    assert max((r.row_end - r.row) * (r.column_end - r.column) for r in found) <= 512

"""Winograd behind `convolve`: taken under a policy, within its bound, the same for all cuts."""

import numpy as np
import pytest

from conv_arrays import normal_arrays
from fast_bounds import fast_bound
from nkisim.machine import TRN2
from repetition import few
from tolerance import assert_within
from trnconv.algorithms.direct.plan import DirectPlan
from trnconv.algorithms.winograd.error import RangeError
from trnconv.algorithms.winograd.plan import WinogradPlan
from trnconv.errors import PlanError, UnsupportedError
from trnconv.geometry import conv_shape
from trnconv.planner.best import best_plan, offers_of
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.policy import BF16, DIRECT, FAST, LIMITS, Policy, policy_of
from trnconv.reference import forward
from trnconv.runtime import LaunchOptions, convolve, convolve_pieces, plan_for, time_plan
from trnconv.runtime.pricing import price
from winograd_plans import winograd_plans

ANY = Policy(least_macs=0)
SHAPE = conv_shape((1, 128, 4, 10, 96), (128, 128, 3, 3, 3), padding=(0, 1, 1))


def launch(**options):
    return LaunchOptions(cores=1, policy=ANY, **options)


def test_a_policy_survives_the_way_through_an_op():
    for policy in (Policy(), Policy(FAST, 12.5), Policy(DIRECT, least_macs=7)):
        assert policy_of(policy.text()) == policy
    assert policy_of(BF16) == Policy()
    with pytest.raises(
        PlanError, match=r"accuracy='exact': one of direct, bf16, fast, fastest, half"
    ):
        policy_of("exact")


def test_convolve_takes_a_fast_algorithm_and_stays_within_its_bound():
    x, w, bias = normal_arrays(SHAPE, "bfloat16")
    done = convolve(x, w, bias, padding=(0, 1, 1), launch=launch())
    ((plan,),) = done.plans
    assert isinstance(plan, WinogradPlan)
    exact = forward(x, w, bias, SHAPE)
    assert_within(done.y, exact, fast_bound(x, w, bias, exact, plan))


@few(2)
@pytest.mark.parametrize(
    "options",
    [
        {"policy": Policy()},  # too small to look for one
        {"policy": Policy(DIRECT, least_macs=0)},
        {"policy": Policy(x_max=40e3, least_macs=0)},  # fp16 transforms end at 32752
        {"policy": ANY, "exact": True},
    ],
    ids=["small", "direct", "range", "exact"],
)
def test_what_is_computed_directly(options):
    plans = plan_for(SHAPE, "bfloat16", LaunchOptions(cores=1, **options))
    assert all(isinstance(plan, DirectPlan) for plan in plans)


def looked_for(problem):
    """Whether a search for fast plans was made."""
    return any(offer.algorithm == "winograd" and not offer.refused for offer in offers_of(problem))


def test_fast_algorithms_are_not_looked_for_where_there_are_none():
    base = {"machine": TRN2, "policy": ANY}
    wide = (1, 128, 4, 10, 96)
    assert looked_for(ConvProblem(SHAPE, **base))
    assert not looked_for(ConvProblem(conv_shape((1, 64, *wide[2:]), (64, 64, 3, 3, 3)), **base))
    assert not looked_for(
        ConvProblem(conv_shape(wide, (128, 128, 3, 3, 3), stride=(1, 2, 1)), **base)
    )
    assert not looked_for(ConvProblem(conv_shape(wide, (128, 128, 1, 1, 3)), **base))
    assert looked_for(ConvProblem(conv_shape(wide, (128, 128, 1, 3, 3)), **base))


def test_master_weights_are_rounded_once():
    """float32 weights beside bf16 data: Winograd is closer to them than bf16 weights are."""
    x, _, _ = normal_arrays(SHAPE, "bfloat16", bias=False)
    _, w, _ = normal_arrays(SHAPE, "float32", bias=False)
    fine = convolve(x, w, padding=(0, 1, 1), launch=launch()).y
    coarse = convolve(x, w.astype(x.dtype), padding=(0, 1, 1), launch=launch()).y
    exact = forward(x, w, None, SHAPE)
    floor = np.square(exact.astype(x.dtype) - exact).mean()
    assert np.square(fine - exact).mean() < 1.05**2 * floor
    assert np.square(coarse - exact).mean() > 1.5 * floor


def test_data_out_of_range_is_refused_in_words():
    x, w, _ = normal_arrays(SHAPE, "bfloat16", bias=False)
    x = x.copy()
    x[0, 0, 0, 0, 0] = 40e3
    with pytest.raises(RangeError, match=r'reaches 3\.994e\+04.*32752.*accuracy="direct"'):
        convolve(x, w, padding=(0, 1, 1), launch=launch())


def test_a_fast_plan_is_for_its_own_shape():
    (plan,) = plan_for(SHAPE, "bfloat16", launch())
    x, w, _ = normal_arrays(SHAPE, "bfloat16", bias=False)
    with pytest.raises(PlanError, match="for its own shape"):
        convolve(x, w, padding=(0, 1, 0), launch=LaunchOptions(plans=(plan,)))


@few(1)
@pytest.mark.parametrize("channels", [96, 128, 192])
def test_plans_that_claim_to_sum_alike_give_the_same_bits(channels):
    """Whatever the blocks, loops and buffers: every such plan of a convolution, twelve at most."""
    shape = conv_shape((1, channels, 4, 6, 32), (channels, channels, 3, 3, 3), padding=(0, 1, 1))
    x, w, bias = normal_arrays(shape, "bfloat16")
    for transform in ("F(2,3)", "F(4,3)"):
        found = [priced.plan for priced in winograd_plans(shape, transform, 1)]
        plans = [plan for plan in found if plan.is_reproducible]
        assert len(plans) > 2
        outputs = {
            convolve(x, w, bias, padding=(0, 1, 1), launch=LaunchOptions(plans=(plan,))).y.tobytes()
            for plan in plans[:12]
        }
        assert len(outputs) == 1


def test_plans_by_frames_do_not_claim_it():
    by_frames = [priced.plan for priced in winograd_plans(SHAPE, "F(2,3)", 0)]
    assert by_frames
    assert not any(plan.is_reproducible for plan in by_frames)
    with pytest.raises(UnsupportedError, match="reproducible"):
        LaunchOptions(plans=(by_frames[0],), reproducible=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("accuracy", "channels", "rows", "transform"),
    [(BF16, 128, 96, "F(2,3)"), (FAST, 384, 48, "F(4,3)")],
)
def test_reproducible_outputs_do_not_depend_on_chunks_or_pieces(
    accuracy, channels, rows, transform
):
    size = (1, channels, 5, rows, 64)
    shape = conv_shape(size, (channels, channels, 3, 3, 3), padding=(0, 1, 1))
    x, w, bias = normal_arrays(shape, "bfloat16")
    policy = Policy(accuracy, least_macs=0)
    options = LaunchOptions(cores=1, policy=policy, reproducible=True)
    padding = (0, 1, 1)
    whole = convolve(x, w, bias, padding=padding, launch=options)
    assert isinstance(whole.plans[0][0], WinogradPlan)
    assert whole.plans[0][0].transform == transform
    for cut in (1, 2):
        first = convolve(x[:, :, : cut + 2], w, bias, padding=padding, launch=options)
        pieces = [np.ascontiguousarray(x[:, :, cut : cut + 2]), x[:, :, cut + 2 :]]
        second = convolve_pieces(pieces, w, bias, padding=padding, launch=options)
        assert np.array_equal(np.concatenate([first.y, second.y], axis=2), whole.y)


@few(1)
@pytest.mark.parametrize("accuracy", list(LIMITS)[:3])
def test_a_price_is_that_of_the_plan_that_runs(accuracy):
    policy = Policy(accuracy, least_macs=0)
    problem = ConvProblem(SHAPE, TRN2, policy=policy)
    (plan,) = plan_for(SHAPE, "bfloat16", LaunchOptions(cores=1, policy=policy))
    priced, timed = (price(problem, simulate=way, cores=1) for way in (False, True))
    assert priced.plan.plan == plan == best_plan(problem).plan
    assert isinstance(priced.plan.plan, WinogradPlan) == (accuracy != DIRECT)
    assert timed.ns == time_plan(plan).makespan_ns

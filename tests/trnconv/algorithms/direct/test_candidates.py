"""Every plan the planner considers computes the same: the choice is one of speed only.

The planner takes one of many legal plans for a shape. Here others run too, and some as hardware
loops with one and two blocks in an iteration, which small shapes never need by themselves.
"""

from dataclasses import replace

import pytest

from conv_arrays import integer_arrays
from conv_calls import call_options
from direct_plans import direct_plans
from repetition import few
from tolerance import assert_within, forward_bound
from trnconv.algorithms.direct.rules import violations
from trnconv.cases import find
from trnconv.reference import forward
from trnconv.runtime import LaunchOptions, convolve

MOST = 24  # plans of a case, evenly taken from the ranking
NAMES = (
    "c_in_3",
    "c_in_33",
    "c_in_192",
    "c_out_3",
    "halved_in_all_axes",
    "stride_beyond_kernel",
    "dilated_and_strided",
    "padding_behind_frames",
    "padding_around_frames",
    "padding_all_different",
    "even_kernel_same",
    "batch_2",
    "batch_7_images",
    "signal_long",
    "width_513",
    "one_column",
    "ragged_channels",
)

LOOPED = (  # those with several equal blocks
    "c_in_33",
    "batch_2",
    "c_in_3",
    "c_out_3",
    "halved_in_all_axes",
    "dilated_and_strided",
    "padding_around_frames",
    "even_kernel_same",
    "batch_7_images",
    "signal_long",
    "width_513",
    "one_column",
    "ragged_channels",
)


def considered(shape, dtype):
    """Plans of the ranking, from the fastest to the slowest."""
    plans = [priced.plan for priced in direct_plans(shape, dtype=dtype)]
    return plans[:: len(plans) // MOST + 1]


def looped(plan):
    """The same work as a hardware loop, in blocks as they are, smaller, and as small as can be."""
    plain = replace(plan, lead=(), ahead=False, looped=True)
    smaller = replace(plain, rows=plain.row_multiple, frames=max(p.frames for p in plan.passes))
    smallest = replace(smaller, columns=2 * max(p.columns for p in plan.passes))
    blocks = (plain, smaller, smallest)
    loops = [
        replace(each, body_blocks=n, by_kind=by_kind)
        for each in blocks
        for n in (1, 2)
        for by_kind in (False, True)
    ]
    return [loop for loop in loops if not violations(loop)]


def checked_runs(case, plans):
    """Run every plan, compare every output."""
    x, w, bias = integer_arrays(case.shape, case.dtype)
    exact = forward(x, w, bias, case.shape)
    bound = forward_bound(x, w, bias, case.shape, exact)
    runs = []
    for plan in plans:
        launch = LaunchOptions(plans=(plan,))
        done = convolve(x, w, bias, **call_options(case.shape, 3), launch=launch)
        runs += done.runs
        try:
            assert_within(done.y, exact, bound)
        except AssertionError as wrong:
            raise AssertionError(f"{plan}: {wrong}") from None
    return runs


def iterations_repeat(run):
    """Whether some hardware loop went round more than once."""
    return run.trace.executed_count > run.trace.static_count


@few(3)
@pytest.mark.parametrize("name", NAMES)
def test_every_plan_of_the_ranking_is_exact(name):
    case = find(name)
    assert len(checked_runs(case, considered(case.shape, case.dtype))) > 1


def checked_loops(name, chosen):
    """Run those plans of a case's ranking that are chosen as loops of every kind."""
    case = find(name)
    plans = considered(case.shape, case.dtype)[chosen]
    return checked_runs(case, [loop for plan in plans for loop in looped(plan)])


@few(2)
@pytest.mark.parametrize("name", LOOPED)
def test_plans_are_exact_as_hardware_loops(name):
    """The second best, and of `c_out_3` the best: it alone has a loop that goes round twice.

    The best plans of others as loops are in `-m slow`. Random pairs and random plans have loops in
    every run too.
    """
    place = 0 if name == "c_out_3" else 1
    assert any(iterations_repeat(run) for run in checked_loops(name, slice(place, place + 1)))


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPED)
def test_more_plans_are_exact_as_hardware_loops(name):
    checked_loops(name, slice(0, None, 6))

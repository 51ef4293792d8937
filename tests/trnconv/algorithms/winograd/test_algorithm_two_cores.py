"""Fast algorithms on both cores of a launch: each computes its rows, and no row twice."""

from dataclasses import replace

import numpy as np
import pytest

from conv_arrays import normal_arrays
from fast_bounds import fast_bound
from fast_cases import case_of
from nkisim.machine import TRN2, TRN3
from repetition import few
from tolerance import assert_within
from trnconv.algorithms.search import search
from trnconv.algorithms.winograd.algorithm import FAMILIES, WINOGRAD
from trnconv.algorithms.winograd.blocks import row_spans
from trnconv.algorithms.winograd.plan import WinogradPlan
from trnconv.geometry import conv_shape
from trnconv.planner.best import plans_like
from trnconv.planner.shares import loops, shared_plans
from trnconv.problem.conv_problem import ConvProblem, CoreSplit
from trnconv.problem.policy import FAST, Policy
from trnconv.reference import forward
from trnconv.runtime import LaunchOptions, convolve, convolve_pieces
from trnconv.runtime.launch import time_plans
from trnconv.runtime.pricing import price

POLICY = Policy(FAST, least_macs=0)
PADDING = (0, 1, 1)


def shape_of(channels, size, **options):
    return conv_shape((1, channels, *size), (channels, channels, 3, 3, 3), **options)


def halves_of(shape, family, budget=10**9):
    """Plans of both cores for every cut that this family takes."""
    problem = ConvProblem(shape, TRN2, policy=POLICY, budget=budget)
    pairs = []
    for halves in WINOGRAD.core_splits(problem):
        if not any(WINOGRAD.unsupported(half, family) for half in halves):
            found = [list(WINOGRAD.candidates(half, family))[:1] for half in halves]
            pairs += [(first[0], second[0]) for first, second in [found] if first and second]
    return pairs


@few(6)
@pytest.mark.parametrize("height", [9, 16, 30, 45])
@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_two_cores_are_all_rows_once(family, height):
    shape = shape_of(96, (4, height, 64), padding=PADDING)
    for pair in halves_of(shape, family):
        stored = [row for plan in pair for span in row_spans(plan) for row in rows_of(span)]
        assert stored == list(range(shape.out_size(1)))


def rows_of(span):
    return range(span.out, span.out + span.stored)


@few(1)
@pytest.mark.parametrize(
    ("channels", "size", "options"),
    [
        (96, (4, 21, 64), {"padding": PADDING}),
        (128, (3, 16, 48), {"padding": PADDING, "padding_mode": "replicate"}),
        (192, (4, 12, 40), {"padding": 1}),
    ],
)
def test_values_stay_within_the_bound(channels, size, options):
    shape = shape_of(channels, size, **options)
    x, w, bias = normal_arrays(shape, "bfloat16")
    launch = LaunchOptions(cores=2, policy=POLICY, algorithms=("winograd",))
    done = convolve(x, w, bias, launch=launch, **options)
    ((first, second),) = done.plans
    assert isinstance(first, WinogradPlan)
    assert first.family == second.family
    assert first.rows_of[1] == second.rows_of[0]
    exact = forward(x, w, bias, shape)
    assert_within(done.y, exact, fast_bound(x, w, bias, exact, first))


@pytest.mark.slow
def test_reproducible_bits_are_those_of_one_core_and_of_pieces():
    shape = shape_of(128, (5, 96, 64), padding=PADDING)
    x, w, bias = normal_arrays(shape, "bfloat16")
    one, two = (
        LaunchOptions(cores=cores, policy=Policy(least_macs=0), reproducible=True)
        for cores in (1, 2)
    )
    alone = convolve(x, w, bias, padding=PADDING, launch=one)
    both = convolve(x, w, bias, padding=PADDING, launch=two)
    assert isinstance(both.plans[0][1], WinogradPlan)
    assert np.array_equal(alone.y, both.y)
    pieces = [np.ascontiguousarray(x[:, :, :2]), np.ascontiguousarray(x[:, :, 2:])]
    cut = convolve_pieces(pieces, w, bias, padding=PADDING, launch=two)
    assert np.array_equal(cut.y, both.y)


@few(1)
@pytest.mark.parametrize("family", ["F(2,3), frames", "F(2,3), rows", "F(4,3), rows"])
def test_loops_of_both_cores_compute_the_same_values(family):
    """nkisim raises if both cores write one element without an order."""
    shape = shape_of(96, (4, 160, 96), padding=PADDING)
    x, w, bias = normal_arrays(shape, "bfloat16")
    problem = ConvProblem(shape, TRN2, policy=POLICY, budget=1_100)
    answer, *_ = search(WINOGRAD, problem, family)
    halves = next(
        pair for pair in WINOGRAD.core_splits(problem) if pair[0].core_split.rows == (0, 80)
    )
    plans = tuple(plans_like(answer, half)[0].plan for half in halves)
    assert all(plan.looped for plan in plans)
    launch = LaunchOptions(cores=2, plans=plans, policy=POLICY)
    done = convolve(x, w, bias, padding=PADDING, launch=launch)
    exact = forward(x, w, bias, shape)
    assert_within(done.y, exact, fast_bound(x, w, bias, exact, plans[0]))


@pytest.mark.slow
@pytest.mark.parametrize("machine", [TRN2, TRN3])
def test_a_pair_is_almost_twice_as_fast(machine):
    shape = shape_of(96, (4, 96, 320), padding=PADDING)
    problem = ConvProblem(shape, machine, policy=POLICY)
    alone, pair = (price(problem, simulate=True, cores=cores).ns for cores in (1, 2))
    assert 1.85 < alone / pair <= 2.0


def test_the_price_of_a_pair_is_that_of_its_schedule():
    shape = shape_of(96, (4, 96, 320), padding=PADDING)
    both = shared_plans(ConvProblem(shape, TRN2, policy=POLICY))
    said = max(priced.cost.total_ns for priced in both)
    timed = time_plans(tuple(priced.plan for priced in both)).makespan_ns
    assert said == pytest.approx(timed, rel=0.05)


@pytest.mark.parametrize("by_rows", [False, True])
def test_a_second_core_has_the_loops_of_the_first_with_its_short_block_first(by_rows):
    """11 spans of two cores, in blocks of two: one is short on each, and four are alike."""
    case = case_of("rows_in_a_loop" if by_rows else "frames_in_a_loop")
    shape = conv_shape((1, 40, 6, 44, 11), (70, 40, 3, 3, 3), padding=PADDING)
    first = replace(case, shape=shape, rows=4, rows_of=(0, 22))
    half = replace(ConvProblem(shape, TRN2, policy=POLICY), core_split=CoreSplit((22, 44), (0, 70)))
    second = WINOGRAD.moved(first, half)
    assert second.cut_from_end
    assert loops(first) == loops(second) != loops(replace(second, cut_from_end=False))
    starts = [(span.out, span.stored) for span in row_spans(second)]
    assert starts == [(22, 2), (24, 4), (28, 4), (32, 4), (36, 4), (40, 4)]
    x, w, bias = normal_arrays(shape, "bfloat16")
    launch = LaunchOptions(cores=2, policy=POLICY, plans=(first, second))
    done = convolve(x, w, bias, padding=PADDING, launch=launch)
    exact = forward(x, w, bias, shape)
    assert_within(done.y, exact, fast_bound(x, w, bias, exact, first))


def test_a_second_core_whose_loops_agree_is_cut_as_the_first():
    case = case_of("rows_in_a_loop")
    shape = conv_shape((1, 40, 6, 40, 11), (70, 40, 3, 3, 3), padding=PADDING)
    first = replace(case, shape=shape, rows=4, rows_of=(0, 20))
    half = replace(ConvProblem(shape, TRN2, policy=POLICY), core_split=CoreSplit((20, 40), (0, 70)))
    assert not WINOGRAD.moved(first, half).cut_from_end

"""Planning takes short cuts: what they rest on holds for every plan."""

from dataclasses import replace
from itertools import product

import pytest

from fast_cases import case_of
from nkisim.machine import TRN2
from repetition import few
from trnconv.algorithms.search import search
from trnconv.algorithms.winograd.blocks import blocks_of, blocks_of_span
from trnconv.algorithms.winograd.candidates import candidates
from trnconv.algorithms.winograd.cost import cost_of, least_instructions, least_ns
from trnconv.algorithms.winograd.lower import lower
from trnconv.algorithms.winograd.rules import violations
from trnconv.algorithms.winograd.sbuf import lay_out, sbuf_end
from trnconv.geometry import conv_shape
from trnconv.planner.table import algorithm_named
from trnconv.problem.conv_problem import ConvProblem
from trnconv.runtime import time_plan
from winograd_plans import winograd_plans

WINOGRAD = algorithm_named("winograd")
SHAPES = {
    "192": conv_shape((1, 192, 6, 48, 160), (192, 192, 3, 3, 3), padding=(0, 1, 1)),
    "1024": conv_shape((1, 1024, 4, 44, 80), (1024, 1024, 3, 3, 3), padding=(0, 1, 1)),
    "replicated": conv_shape(
        (1, 128, 5, 60, 160), (128, 128, 3, 3, 3), padding=((2, 0), 1, 1), padding_mode="replicate"
    ),
}
KINDS = list(product(SHAPES, ("F(2,3)", "F(4,3)"), (0, 1)))


def candidates_of(shape, transform, axis):
    return list(candidates(ConvProblem(SHAPES[shape], TRN2), transform, axis))


@few(4)
@pytest.mark.parametrize(("shape", "transform", "axis"), KINDS)
def test_what_is_left_out_could_not_win(shape, transform, axis):
    """A size is left out by what its plans are weighed with at least, or by their instructions."""
    for plan in candidates_of(shape, transform, axis):
        loop = replace(plan, looped=True, body_blocks=2 * plan.body_blocks)
        for one in (plan, loop):
            assert least_ns(plan) <= cost_of(one).weighed_ns * (1 + 1e-12)
            assert 0 < least_instructions(plan) <= cost_of(one).instructions


@pytest.mark.parametrize(("shape", "transform", "axis"), KINDS)
def test_memory_in_short_is_memory_laid_out(shape, transform, axis):
    for plan in candidates_of(shape, transform, axis):
        loop = replace(plan, looped=True, body_blocks=3 * plan.body_blocks)
        for one in (plan, loop):
            assert sbuf_end(one) == lay_out(one).end


@pytest.mark.parametrize("budget", [3_000, 6_000, 20_000])
@pytest.mark.parametrize(("shape", "transform", "axis"), KINDS)
def test_what_is_chosen_is_legal_and_within_its_budget(shape, transform, axis, budget):
    for one in winograd_plans(SHAPES[shape], transform, axis, budget=budget):
        assert violations(one.plan) == []
        assert one.cost.instructions <= budget


@pytest.mark.parametrize("budget", [3_000, 9_000, 30_000])
@pytest.mark.parametrize(("shape", "transform", "axis"), KINDS)
def test_iterations_in_short_are_those_of_the_program(shape, transform, axis, budget):
    for one in winograd_plans(SHAPES[shape], transform, axis, budget=budget)[:6]:
        recipe = lower(one.plan).recipe
        iterations = tuple(loop.iterations for loop in recipe.loops)
        assert WINOGRAD.loops(one.plan) == iterations * len(recipe.groups)


def test_one_loop_goes_through_spans_of_several_kinds_of_blocks():
    plan = case_of("one_loop_over_several_kinds_of_frames")
    recipe = lower(plan).recipe
    [loop] = recipe.loops
    assert len(set(loop.kinds)) == 4 < len(recipe.kinds)
    assert len(loop.kinds) == plan.body_blocks == 2 * blocks_of_span(plan)
    beside = blocks_of(plan) - loop.iterations * plan.body_blocks
    assert len(recipe.blocks) == beside > 0


@pytest.mark.parametrize("spans", [1, 3])
def test_iterations_are_of_whole_spans(spans):
    plan = replace(case_of("one_loop_over_several_kinds_of_frames"), spans=spans)
    assert any("spans" in rule for rule in violations(plan))


@few(1)
@pytest.mark.parametrize("family", ["F(2,3), frames", "F(2,3), rows"])
@pytest.mark.parametrize("budget", [4_000, 9_000])
def test_a_long_layer_is_one_loop_that_is_priced_and_counted_as_it_runs(family, budget):
    """720 rows, causal, of which frames make several kinds of blocks."""
    shape = conv_shape((1, 96, 4, 720, 160), (96, 96, 3, 3, 3), padding=((2, 0), 1, 1))
    taken, *_ = search(WINOGRAD, ConvProblem(shape, TRN2, budget=budget), family)
    line = time_plan(taken.plan)
    assert (taken.plan.looped, taken.cost.regions) == (True, 1)
    assert taken.cost.instructions == pytest.approx(line.compiler_instructions, rel=0.03)
    assert taken.cost.instructions <= budget
    assert taken.cost.total_ns == pytest.approx(line.makespan_ns, rel=0.03)


@pytest.mark.parametrize(("channels", "gain"), [(160, 0.88), (144, 0.99)])
def test_a_quarter_of_a_tile_of_channels_shares_matmuls_of_four_columns(channels, gain):
    """160 channels: 12 matmuls of a column, 24 of four columns instead of 18 of two: 18 for 21."""
    shape = conv_shape((1, channels, 6, 48, 160), (channels, channels, 3, 3, 3), padding=(0, 1, 1))
    [best, *_] = winograd_plans(shape, "F(2,3)", 0)
    assert best.plan.stacked_columns == 4
    two = replace(best.plan, stacked_columns=2)
    assert violations(two) == []
    assert best.cost.total_ns < gain * cost_of(two).total_ns


@pytest.mark.parametrize(
    ("channels", "columns", "words"),
    [
        (192, 4, "leave 64, it takes 1 to 32"),
        (128, 4, "leave 0, it takes 1 to 32"),
        (160, 3, "2 or 4"),
    ],
)
def test_columns_that_the_array_has_no_room_for_are_refused(channels, columns, words):
    shape = conv_shape((1, 96, 6, 48, 160), (channels, 96, 3, 3, 3), padding=(0, 1, 1))
    [best, *_] = winograd_plans(shape, "F(2,3)", 0)
    [rule] = violations(replace(best.plan, stacked_columns=columns))
    assert words in rule


def test_reproducible_plans_have_two_columns_of_few_channels():
    """Which taps share a matmul depends on it, and a plan on the number of frames."""
    shape = conv_shape((1, 160, 6, 48, 160), (160, 160, 3, 3, 3), padding=(0, 1, 1))
    plans = winograd_plans(shape, "F(2,3)", 1, reproducible=True)
    assert {one.plan.stacked_columns for one in plans} == {2}
    assert not replace(plans[0].plan, stacked_columns=4).is_reproducible


@pytest.mark.parametrize("name", ["rests_in_column_tiles", "four_columns_in_column_tiles"])
def test_every_column_tile_has_matmuls_of_its_own(name):
    plan = case_of(name)
    counted = time_plan(plan).compiler_instructions
    assert cost_of(plan).instructions == pytest.approx(counted, rel=0.03)

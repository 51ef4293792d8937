"""Two cores: together they compute every row of every channel, and neither much more."""

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from direct_plans import direct_plans
from nkisim.machine import TRN2, TRN3
from repetition import few
from trnconv.algorithms.algorithm import Priced
from trnconv.algorithms.direct.algorithm import DIRECT
from trnconv.algorithms.direct.block_types import blocks_of
from trnconv.algorithms.direct.reduced_problem import HEIGHT, WIDTH, fold
from trnconv.geometry import ConvShape, conv_shape, transposed_shape
from trnconv.planner import shares
from trnconv.planner.best import choose, only, searched_plan
from trnconv.planner.shares import in_step, loops, searched_pair, shared_plans
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.policy import FAST, Policy
from trnconv.problem.prologue import Prologue
from trnconv.runtime.launch import trace_plans

SHAPES = {
    "rows": conv_shape((1, 64, 4, 30, 40), (64, 64, 3, 3, 3), padding=1),
    "odd rows": conv_shape((1, 16, 31, 40), (24, 16, 3, 3), padding=1),
    "one row": conv_shape((1, 64, 4000), (96, 64, 9), padding=4),
    "one channel": conv_shape((1, 16, 31, 40), (1, 16, 3, 3), padding=1),
    "many channels": conv_shape((1, 256, 4, 8), (512, 256, 3, 3), padding=1),
    "groups": conv_shape((1, 96, 12, 16), (96, 3, 3, 3), padding=1, groups=32),
    "groups of one row": conv_shape((1, 300, 40), (300, 1, 5), padding=2, groups=300),
    "upsampling": transposed_shape((1, 32, 52, 48), (32, 24, 4, 4), stride=2, padding=1),
    "upsampling by three": transposed_shape((1, 8, 7, 5), (8, 6, 5, 5), stride=3),
}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))


def direct_pair(shape):
    """Plans of both cores, by the direct algorithm."""
    return shared_plans(only(ConvProblem(shape, TRN2), "direct"))


def computed(plan):
    """Rows, columns and channels that a plan computes."""
    channels = [
        channel
        for one in plan.passes
        for channel in range(one.first_channel, one.first_channel + one.channels)
    ]
    return range(*plan.row_span), range(*plan.column_span), channels


@few(2)
@shapes
def test_every_position_of_every_channel_is_computed_once(shape):
    counts = Counter()
    for priced in direct_pair(shape):
        counts.update(product(*computed(priced.plan)))
    out = fold(shape).out
    every = product(range(out[HEIGHT]), range(out[WIDTH]), range(shape.c_out))
    assert counts == Counter(every)


@shapes
def test_cores_take_whole_steps_of_a_transposed_convolution(shape):
    phases = fold(shape).phases
    for priced in direct_pair(shape):
        for edge in priced.plan.row_span:
            assert edge % phases[HEIGHT] == 0
        for edge in priced.plan.column_span:
            assert edge % phases[WIDTH] == 0


@shapes
def test_blocks_of_a_core_write_within_its_share_and_reach_all_of_it(shape):
    """By the offsets of blocks into y: no core needs to know what the other does."""
    for priced in direct_pair(shape):
        plan = priced.plan
        strides, out = plan.reduced.y_strides, plan.reduced.out
        written = np.zeros((plan.reduced.images, *out), bool)
        for block in blocks_of(plan):
            image, rest = divmod(block.y, strides[0]) if plan.reduced.images > 1 else (0, block.y)
            frame, row, column = place_of(rest, strides, out)
            kind = block.kind
            assert row + kind.rows <= plan.row_span[1]
            part = written[image, frame : frame + kind.frame_count, row : row + kind.rows]
            part[:, :, column : column + kind.columns] = True
        own = (slice(None), slice(None), slice(*plan.row_span), slice(*plan.column_span))
        assert written[own].all()
        written[own] = False
        assert not written.any()


def place_of(offset, strides, out):
    """Frame, row and column of an offset into y; axes of one position are skipped."""
    order = sorted(range(3), key=lambda axis: -strides[2 + axis])
    at = [0, 0, 0]
    for axis in order:
        if out[axis] > 1:
            at[axis], offset = divmod(offset, strides[2 + axis])
    return at


@pytest.mark.slow
def test_the_way_that_ends_sooner_is_taken():
    for shape in SHAPES.values():
        alone = direct_plans(shape)[0].cost.total_ns
        both = shared_plans(ConvProblem(shape, TRN2))
        assert max(priced.cost.total_ns for priced in both) <= alone


def test_what_cannot_be_shared_is_computed_by_both():
    one, two = shared_plans(ConvProblem(conv_shape((1, 8, 3), (1, 8, 3)), TRN2))
    assert one == two
    assert (one.plan.row_span, one.plan.column_span) == ((0, 1), (0, 1))


@few(1)
@pytest.mark.parametrize("height", [97, 122, 145])
@pytest.mark.parametrize(("algorithm", "budget"), [("direct", 350), ("winograd", 700)])
def test_both_cores_have_the_same_loops(algorithm, budget, height):
    """By the trips that a run of the kernel goes through: nkisim refuses others."""
    shape = conv_shape((1, 96, 4, height, 96), (96, 96, 3, 3, 3), padding=(0, 1, 1))
    problem = ConvProblem(shape, TRN2, policy=Policy(FAST, least_macs=0), budget=budget)
    one, two = (priced.plan for priced in shared_plans(only(problem, algorithm)))
    assert one != two
    assert one.is_looped
    assert loops(one) == loops(two) != ()
    assert all(run.executed_count > run.static_count for run in trace_plans((one, two)).traces)


@few(6)
@shapes
@pytest.mark.parametrize("by_kind", [False, True])
def test_trips_by_arithmetic_are_those_of_the_program(shape, by_kind):
    plan = replace(direct_plans(shape)[0].plan, looped=True, lead=(), ahead=False, rows=1)
    for body in (1, 2, 3):
        looped = replace(plan, body_blocks=body, by_kind=by_kind)
        sweeps = DIRECT.lower(looped).recipe.sweeps
        assert loops(looped) == tuple(sweep.iterations for sweep in sweeps if sweep.looped)


def test_blocks_of_nothing_but_padding_are_in_one_loop_whatever_their_frames():
    shape = conv_shape((1, 16, 3, 4, 4), (16, 16, 3, 3, 3), padding=(1, 9, 1))
    plan = replace(direct_plans(shape)[0].plan, looped=True, lead=(), ahead=False, rows=1, frames=1)
    looped = replace(plan, by_kind=True)
    sweeps = DIRECT.lower(looped).recipe.sweeps
    assert loops(looped) == tuple(sweep.iterations for sweep in sweeps if sweep.looped)


def test_plans_whose_loops_agree_are_taken_before_faster_ones():
    fast, slow = (Priced(plan, cost) for plan, cost in looped_by_hand())
    assert loops(fast.plan) != loops(slow.plan)
    assert in_step((fast, slow), (slow,)) == (slow, slow)
    assert in_step((fast,), (slow,)) is None


def looped_by_hand():
    """Two plans of one problem with loops of different trips, and prices for them."""
    shape = conv_shape((1, 96, 4, 48, 40), (96, 96, 3, 3, 3), padding=(0, 1, 1))
    priced = direct_plans(shape)[0]
    for rows, ns in ((2, 1.0), (4, 2.0)):
        plan = replace(priced.plan, looped=True, lead=(), ahead=False, rows=rows)
        yield plan, replace(priced.cost, total_ns=ns, weighed_ns=ns)


def test_cores_with_opposite_borders_have_the_same_loops():
    """One has the upper border, the other the lower: loops go through the rarest blocks first."""
    shape = conv_shape(
        (1, 512, 60, 180, 320),
        (512, 512, 3, 3, 3),
        padding=((2, 0), 1, 1),
        padding_mode="replicate",
    )
    first, second = shared_plans(ConvProblem(shape, TRN2))
    assert first.plan.algorithm == second.plan.algorithm == "winograd"
    assert loops(first.plan) == loops(second.plan) != ()


@pytest.mark.parametrize("channels", [96, 128, 256])
def test_an_algorithm_that_cannot_win_is_not_asked(channels):
    """What is taken is the same as if it were."""
    weights = (channels, channels, 3, 3, 3)
    problem = ConvProblem(conv_shape((1, channels, 6, 40, 64), weights, padding=(0, 1, 1)), TRN2)
    assert searched_plan(problem) == choose(problem).taken


def test_halves_may_have_an_algorithm_that_the_whole_has_no_plan_of():
    """F(4,3) of all rows has too many instructions; a core's half of them has a loop."""
    shape = conv_shape((1, 512, 31, 44, 76), (2048, 512, 3, 3, 3), padding=1)
    problem = ConvProblem(shape, TRN2, policy=Policy(FAST))
    alone = searched_plan(problem)
    pair = searched_pair(problem)
    assert alone.plan.algorithm == "direct"
    assert {priced.plan.family for priced in pair} == {"F(4,3), rows"}
    assert 4 * max(priced.cost.total_ns for priced in pair) < 1.2 * alone.cost.total_ns


def test_halves_have_another_algorithm_where_the_fastest_of_one_core_cannot_be_halved(monkeypatch):
    """Forced here: the layer this was seen on, below, has an algorithm by now that can be."""
    size = {"size": (5, 60, 80), "pad_before": (2, 1, 1), "pad_after": (0, 1, 1)}
    shape = ConvShape(
        batch=1, c_in=128, c_out=128, kernel=(3, 3, 3), modes=("replicate",) * 3, **size
    )
    prologue = Prologue(scaled=True, activation="silu")
    problem = ConvProblem(shape, TRN3, policy=Policy(FAST), prologue=prologue)
    alone, as_it_is = searched_plan(problem), searched_pair(problem)
    assert {priced.plan.family for priced in as_it_is} == {alone.plan.family}
    halved = shares._halved

    def without_the_fastest(answer, asked):
        return [] if answer.plan.family == alone.plan.family else halved(answer, asked)

    monkeypatch.setattr(shares, "_halved", without_the_fastest)
    pair = searched_pair(problem)
    assert len({priced.plan.family for priced in pair} - {alone.plan.family}) == 1
    slower = max(priced.cost.total_ns for priced in pair)
    assert max(priced.cost.total_ns for priced in as_it_is) < slower < 0.75 * alone.cost.total_ns


@pytest.mark.slow
def test_a_layer_of_which_fast_sums_could_not_be_halved_is_nearly_even():
    size = {"size": (5, 180, 320), "pad_before": (2, 1, 1), "pad_after": (0, 1, 1)}
    shape = ConvShape(
        batch=1, c_in=512, c_out=512, kernel=(3, 3, 3), modes=("replicate",) * 3, **size
    )
    prologue = Prologue(scaled=True, activation="silu")
    problem = ConvProblem(shape, TRN3, policy=Policy(FAST), prologue=prologue)
    slower = max(priced.cost.total_ns for priced in searched_pair(problem))
    assert slower < 0.55 * searched_plan(problem).cost.total_ns

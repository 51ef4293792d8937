"""Inputs that are loaded tile by tile of channels, and frames that share sums and weights."""

from dataclasses import replace

import numpy as np
import pytest

from conv_arrays import normal_arrays
from fast_bounds import fast_bound
from fast_cases import case_of
from nkisim.machine import TRN2
from repetition import few
from strict_plans import broken_rule
from tolerance import assert_within
from trnconv.algorithms.search import search
from trnconv.algorithms.winograd import core as winograd_core
from trnconv.algorithms.winograd import prepare_steps
from trnconv.algorithms.winograd.algorithm import WINOGRAD
from trnconv.algorithms.winograd.candidates import start
from trnconv.algorithms.winograd.cost import cost_of
from trnconv.algorithms.winograd.rules import violations
from trnconv.algorithms.winograd.sbuf import lay_out
from trnconv.geometry import conv_shape
from trnconv.planner.best import choose
from trnconv.planner.shares import pair_ns, searched_pair
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.epilogue import BEFORE, PLAIN_EPILOGUE, epilogue_of
from trnconv.problem.policy import FAST, Policy
from trnconv.reference import forward
from trnconv.runtime import LaunchOptions, convolve, time_plan
from winograd_plans import noise

CASES = ["late_inputs_of_frames", "late_inputs_of_rows", "late_inputs_in_a_loop"]
EVERY = [*CASES, "frames_that_share_sums", "replicated_late_inputs", "late_pairs_in_a_loop"]
WITHIN = 0.05  # of the schedule
RESIDUAL = epilogue_of("identity", BEFORE, "")
ANY = Policy(FAST, least_macs=0)


def of_1024(c_out, size, padding=(0, 1, 1), pieces=(), **asked):
    """A layer of a published decoder."""
    shape = conv_shape((1, 1024, *size), (c_out, 1024, 3, 3, 3), padding=padding)
    return ConvProblem(shape, TRN2, pieces=pieces, policy=Policy(FAST), **asked)


LAYERS = {
    "Wan2.2, first": of_1024(1024, (3, 44, 80), pieces=(1, 1, 1)),
    "Wan2.2, second": of_1024(1024, (4, 88, 160), pieces=(2, 2)),
    "Wan2.2, third": of_1024(512, (6, 176, 320), pieces=(2, 2, 2)),
    "LTX": of_1024(1024, (16, 22, 38), padding=(1, 1, 1)),
}


@few(2)
@pytest.mark.parametrize("name", EVERY)
def test_noise_stays_within_the_derived_bound(name):
    assert_within(*noise(case_of(name)))


@pytest.mark.parametrize("number", [0, 7])
def test_a_dropped_load_of_weights_is_outside_the_bound(monkeypatch, number):
    """Its slot keeps what it had: zeros, or weights of an earlier product."""
    load, loaded = winograd_core.WinogradCore.next_weights, []

    def dropped(self, first, end):
        loaded.append(first)
        if len(loaded) == number + 1:
            tile = self.take(3, self.weights)[:, 0 : end - first]
            if number == 0:
                winograd_core.nisa.memset(dst=tile, value=0.0)
            return tile
        return load(self, first, end)

    monkeypatch.setattr(winograd_core.WinogradCore, "next_weights", dropped)
    with pytest.raises(AssertionError, match="outside their bound"):
        assert_within(*noise(case_of("late_inputs_of_frames")))
    assert len(loaded) > number


def test_a_dropped_load_of_inputs_is_outside_the_bound(monkeypatch):
    """The third tile of channels is then transformed from inputs of the first."""
    load = prepare_steps.load_tile

    def dropped(body, block, tile, frame, slot):
        if tile != 2:
            load(body, block, tile, frame, slot)

    monkeypatch.setattr(prepare_steps, "load_tile", dropped)
    with pytest.raises(AssertionError, match="outside their bound"):
        assert_within(*noise(case_of("late_inputs_of_rows")))


def test_frames_that_share_sums_have_the_bits_of_single_ones():
    several = case_of("late_inputs_in_a_loop")
    single = replace(several, unit_frames=1, units=2, x_slots=1, v_slots=8, body_blocks=2)
    assert not violations(single)
    assert several.is_reproducible
    assert np.array_equal(noise(several)[0], noise(single)[0])


@few(2)
@pytest.mark.parametrize("name", EVERY)
def test_no_device_rule_is_broken(name):
    assert broken_rule(case_of(name)) == ""


@pytest.mark.parametrize("name", CASES)
def test_inputs_take_the_room_of_two_tiles(name):
    plan = case_of(name)
    assert len(lay_out(plan).x) == 2 < len(lay_out(plan).v)
    assert {ring.slots for ring in lay_out(plan).x} == {plan.tile_frames}


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("late_inputs_of_rows", {"x_tiles": 1}, "two at least"),
        ("late_inputs_of_rows", {"x_tiles": 3}, "use a divisor"),
        ("late_inputs_of_rows", {"x_tiles": 4}, "use a divisor"),
        ("late_inputs_of_rows", {"x_slots": 2}, "transformed from 1 frames"),
        ("late_inputs_of_rows", {"streamed": 0}, "weights that stream"),
        ("late_inputs_of_frames", {"unit_frames": 2}, "only tiles of rows"),
        ("late_inputs_in_a_loop", {"unit_frames": 3}, "not a multiple"),
    ],
)
def test_what_is_refused_is_said(name, changes, words):
    assert any(words in rule for rule in violations(replace(case_of(name), **changes)))


@few(2)
@pytest.mark.parametrize("end", [PLAIN_EPILOGUE, RESIDUAL], ids=["plain", "residual"])
@pytest.mark.parametrize(
    ("axis", "decisions"),
    [
        (0, {"units": 1, "rows": 6, "x_slots": 6, "v_slots": 2}),
        (1, {"units": 1, "rows": 8, "unit_frames": 4, "x_slots": 6, "v_slots": 2}),
        (1, {"units": 4, "rows": 8, "x_slots": 1, "v_slots": 6}),
    ],
)
@pytest.mark.parametrize("steps", [0, 3])
def test_prices_are_those_of_the_schedule(axis, decisions, end, steps):
    shape = conv_shape((1, 512, 6, 24, 40), (256, 512, 3, 3, 3), padding=(0, 1, 1))
    plan = start(ConvProblem(shape, TRN2, epilogue=end), "F(4,3)", axis).but(
        columns=40, group=2, streamed=5, x_tiles=2, body_blocks=2, gpsimd_steps=steps, **decisions
    )
    assert not violations(plan)
    line = time_plan(plan)
    assert abs(cost_of(plan).total_ns / line.makespan_ns - 1) < WITHIN
    assert cost_of(plan).instructions == pytest.approx(line.compiler_instructions, rel=0.03)


@few(1)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_1024_channels_are_planned_as_they_are_scheduled(name):
    taken = choose(LAYERS[name]).taken
    assert abs(taken.cost.total_ns / time_plan(taken.plan).makespan_ns - 1) < WITHIN


@pytest.mark.parametrize("name", LAYERS)
def test_late_inputs_make_f43_of_1024_channels_fast(name):
    """Without them, by F(2,3) or direct: each is slower by an eighth at least."""
    offers = [
        offer
        for offer in choose(LAYERS[name]).offers
        if offer.plans and not getattr(offer.best.plan, "frame_pairs", False)
    ]
    best = min((offer.best for offer in offers), key=lambda priced: priced.cost.total_ns)
    assert (best.plan.transform, best.plan.x_tiles) == ("F(4,3)", 2)
    others = [
        offer.best.cost.total_ns for offer in offers if getattr(offer.best.plan, "x_tiles", 0) == 0
    ]
    assert best.cost.total_ns < 0.875 * min(others)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_1024_channels_have_pairs_of_frames_if_they_have_two(name):
    """Faster than F(4,3) by a tenth at least, and more exact."""
    choice = choose(LAYERS[name])
    plan, fewer = choice.taken.plan, choice.problem.shape.out_size(0) < 2
    assert plan.frame_pairs != fewer
    if not fewer:
        others = [
            offer.best.cost.total_ns
            for offer in choice.offers
            if offer.plans and offer.best.plan.expected_ratio > plan.expected_ratio
        ]
        assert choice.taken.cost.total_ns < 0.9 * min(others)


@few(2)
@pytest.mark.parametrize("name", LAYERS)
def test_two_cores_take_half_of_the_time(name):
    problem = LAYERS[name]
    pair = searched_pair(problem)
    assert len({priced.plan.family for priced in pair}) == 1
    assert pair_ns(pair) < 0.57 * choose(problem).taken.cost.total_ns


def test_two_cores_compute_their_rows():
    shape = conv_shape((1, 512, 4, 16, 24), (256, 512, 3, 3, 3), padding=(0, 1, 1))
    problem = ConvProblem(shape, TRN2, policy=ANY, budget=10**9)
    plans = []
    for half in WINOGRAD.core_splits(problem)[0]:
        found = search(WINOGRAD, half, "F(4,3), rows")
        plans.append(next(one.plan for one in found if one.plan.unit_frames > 1))
    assert all(plan.x_tiles for plan in plans)
    x, w, bias = normal_arrays(shape, "bfloat16")
    launch = LaunchOptions(cores=2, plans=tuple(plans), policy=ANY)
    done = convolve(x, w, bias, padding=(0, 1, 1), launch=launch)
    exact = forward(x, w, bias, shape)
    assert_within(done.y, exact, fast_bound(x, w, bias, exact, plans[0]))

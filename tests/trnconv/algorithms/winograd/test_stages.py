"""Frames in pairs: stages, what they hold between them, what is refused, and what they cost."""

from dataclasses import replace

import numpy as np
import pytest

from conv_arrays import normal_arrays
from fast_cases import case_of
from nkisim.machine import TRN2, TRN3, find_machine
from repetition import few
from strict_plans import broken_rule
from tolerance import assert_within
from trnconv.algorithms.search import search
from trnconv.algorithms.winograd import chain, pack
from trnconv.algorithms.winograd.algorithm import FAMILIES, WINOGRAD
from trnconv.algorithms.winograd.cost import cost_of
from trnconv.algorithms.winograd.rules import violations
from trnconv.algorithms.winograd.sbuf import lay_out
from trnconv.algorithms.winograd.stages import frames_of_unit, stored_of, weight_rows
from trnconv.geometry import conv_shape
from trnconv.planner.best import choose
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.epilogue import BEFORE, PLAIN_EPILOGUE, epilogue_of
from trnconv.problem.policy import BF16, FASTEST, Policy
from trnconv.runtime import LaunchOptions, convolve, time_plan
from winograd_plans import noise, pieces_of, run_plan

PAIRS = [name for name, family in FAMILIES.items() if family.pairs]
CASES = [
    "pairs_of_frames",
    "pairs_of_four_rows",
    "pairs_of_an_odd_number",
    "pairs_of_whole_sums",
    "pairs_in_a_loop",
    "late_pairs_in_a_loop",
    "replicated_pairs",
]
ANY = Policy(FASTEST, least_macs=0)
WITHIN = 0.05  # of the schedule
SHAPES = {
    "256": conv_shape((1, 256, 4, 24, 96), (256, 256, 3, 3, 3), padding=(0, 1, 1)),
    "512, odd": conv_shape((1, 512, 5, 32, 64), (256, 512, 3, 3, 3), padding=(0, 1, 1)),
    "192 to 384, causal": conv_shape(
        (1, 192, 4, 16, 60), (384, 192, 3, 3, 3), padding=((2, 0), 1, 1), padding_mode="replicate"
    ),
}
ENDS = {"plain": PLAIN_EPILOGUE, "residual": epilogue_of("silu", BEFORE, "")}


def asked(shape, **more):
    return ConvProblem(shape, TRN2, policy=ANY, budget=10**9, **more)


@few(3)
@pytest.mark.parametrize("name", CASES)
def test_noise_stays_within_the_derived_bound(name):
    assert_within(*noise(case_of(name)))


@few(3)
@pytest.mark.parametrize("name", CASES)
def test_no_device_rule_is_broken(name):
    plan = case_of(name)
    every = replace(plan, gpsimd_pairs=True, gpsimd_steps=max(plan.transforms.apart))
    assert broken_rule(plan) == broken_rule(every) == ""


@pytest.mark.parametrize("stage", range(4))
def test_a_stage_without_its_weights_is_outside_the_bound(monkeypatch, stage):
    rows = weight_rows()
    rows[stage] = [0.0] * 3
    monkeypatch.setattr(pack, "weight_rows", lambda: rows)
    with pytest.raises(AssertionError, match="outside their bound"):
        assert_within(*noise(case_of("pairs_of_four_rows")))


def test_held_sums_that_are_mixed_up_are_outside_the_bound(monkeypatch):
    held = chain.Chain.held
    monkeypatch.setattr(chain.Chain, "held", lambda self, _, output: held(self, 0, output))
    with pytest.raises(AssertionError, match="outside their bound"):
        assert_within(*noise(case_of("pairs_of_frames")))


def test_stages_read_four_frames_and_complete_two():
    assert [frames_of_unit(unit) for unit in range(5)] == [(1, 2), (1, 2), (2, 0), (3, 1), (3, 4)]
    assert [stored_of(unit, 3) for unit in range(8)] == [
        *((0, 0), (0, 0), (0, 1), (1, 1)),
        *((2, 0), (2, 0), (2, 1), (3, 0)),
    ]


def test_a_missing_second_frame_has_three_stages():
    plan = case_of("pairs_of_an_odd_number")
    shape = replace(plan.shape, size=(4, *plan.shape.size[1:]))
    even = replace(plan, shape=shape)
    assert not violations(even)
    both = []
    for one in (plan, even):
        x, w, bias = normal_arrays(one.shape, "bfloat16")
        trace = run_plan(one, pieces_of(x, one), w, bias).trace
        both.append(sum(each.op == "nc_matmul" for each in trace.instructions()))
    assert both[0] / both[1] == pytest.approx(7 / 8)


def test_sums_between_stages_have_their_room():
    memory, without = (
        lay_out(plan)
        for plan in (
            case_of("pairs_of_frames"),
            replace(case_of("pairs_of_frames"), frame_pairs=False, units=2),
        )
    )
    assert (memory.held.slots, memory.paired.slots) == (2, 2)
    assert (without.held.slots, without.paired.slots) == (0, 0)


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("pairs_of_frames", {"axis": 0}, "pair those of tiles of rows"),
        ("pairs_of_frames", {"units": 6}, "pairs of frames have 4"),
        ("pairs_of_frames", {"unit_frames": 2}, "of frames by one"),
        ("pairs_of_frames", {"dtype": "float32"}, "adds types of 16 bits"),
        ("rows", {"gpsimd_pairs": True}, "there are none"),
    ],
)
def test_what_is_refused_is_said(name, changes, words):
    assert any(words in rule for rule in violations(replace(case_of(name), **changes)))


def test_a_rectangle_that_no_bank_holds_is_refused():
    shape = conv_shape((1, 40, 4, 24, 200), (70, 40, 3, 3, 3), padding=(0, 1, 1))
    wide = replace(case_of("pairs_of_frames"), shape=shape, rows=12)
    assert any("a bank has 512 sums" in rule for rule in violations(wide))


@pytest.mark.parametrize(
    ("shape", "more", "words"),
    [
        ((1, 256, 3, 9, 9), {}, "a single output frame"),
        ((1, 256, 4, 9, 9), {"dtype": "float32", "policy": Policy("half")}, "half is for F(2,3)"),
        ((1, 256, 4, 9, 9), {"machine": find_machine("trn1")}, "trn1"),
    ],
)
def test_what_no_pair_is_made_of_is_said(shape, more, words):
    problem = asked(conv_shape(shape, (256, 256, 3, 3, 3), padding=(0, 1, 1)))
    assert words in WINOGRAD.unsupported(replace(problem, **more), PAIRS[0])


def test_pairs_are_not_asked_for_where_they_cannot_win_or_must_not_be():
    small = conv_shape((1, 128, 4, 9, 9), (128, 128, 3, 3, 3), padding=(0, 1, 1))
    assert not set(PAIRS) & set(WINOGRAD.families(asked(small)))
    assert set(PAIRS) <= set(WINOGRAD.families(asked(SHAPES["256"])))
    chunked = replace(asked(SHAPES["256"]), reproducible=True)
    assert not set(PAIRS) & set(WINOGRAD.families(chunked))
    assert not case_of("pairs_of_frames").is_reproducible


@pytest.mark.parametrize("machine", [TRN2, TRN3], ids=lambda machine: machine.name)
def test_the_default_accuracy_takes_pairs_of_two_rows(machine):
    shape = conv_shape((1, 512, 6, 44, 80), (512, 512, 3, 3, 3), padding=(0, 1, 1))
    taken = choose(ConvProblem(shape, machine, policy=Policy(BF16))).taken.plan
    assert (taken.frame_pairs, taken.transform) == (True, "F(2,3)")
    fastest = choose(ConvProblem(shape, machine, policy=Policy(FASTEST))).taken.plan
    assert (fastest.frame_pairs, fastest.transform) == (True, "F(4,3)")


@few(3)
@pytest.mark.parametrize("family", PAIRS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("end", ENDS)
def test_prices_are_those_of_the_schedule(family, shape, end):
    best, *_ = search(WINOGRAD, asked(SHAPES[shape], epilogue=ENDS[end]), family)
    line = time_plan(best.plan)
    assert abs(cost_of(best.plan).total_ns / line.makespan_ns - 1) < WITHIN
    assert best.cost.instructions == pytest.approx(line.compiler_instructions, rel=0.03)


@few(2)
@pytest.mark.parametrize("family", PAIRS)
@pytest.mark.parametrize("shape", SHAPES)
def test_two_cores_have_the_bits_of_one(shape, family):
    problem = asked(SHAPES[shape])
    one, *two = (
        search(WINOGRAD, part, family)[0].plan
        for part in (problem, *WINOGRAD.core_splits(problem)[0])
    )
    x, w, bias = normal_arrays(SHAPES[shape], "bfloat16")
    padding = tuple(zip(SHAPES[shape].pad_before, SHAPES[shape].pad_after, strict=True))
    done = [
        convolve(
            x,
            w,
            bias,
            padding=padding,
            padding_mode=SHAPES[shape].modes,
            launch=LaunchOptions(cores=len(plans), plans=plans, policy=problem.policy),
        ).y
        for plans in ((one,), tuple(two))
    ]
    assert np.array_equal(*done)

"""Inputs that are scaled, shifted and activated where a Winograd kernel loads them."""

from dataclasses import replace

import numpy as np
import pytest

from conv_arrays import normal_arrays, numpy_dtype
from fast_bounds import HALF, fast_bound
from fast_cases import EVERY_CASE, case_of
from fused_op_bounds import silu
from nkisim.machine import TRN2, find_machine
from repetition import few
from tolerance import assert_within, output_rounding
from trnconv.algorithms.search import search
from trnconv.algorithms.winograd.algorithm import FAMILIES, WINOGRAD
from trnconv.algorithms.winograd.cost import cost_of
from trnconv.algorithms.winograd.error import RangeError
from trnconv.algorithms.winograd.rules import violations
from trnconv.errors import PlanError, ShapeError, UnsupportedError
from trnconv.fused_ops.group_norm.problem import GroupNorm, scale_shift_launch, statistics_launch
from trnconv.geometry import conv_shape
from trnconv.planner.best import choose
from trnconv.planner.shares import shared_plans
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.policy import FAST, Policy
from trnconv.problem.prologue import Prologue, prologue_of
from trnconv.reference import forward
from trnconv.runtime import time_plan
from trnconv.runtime.convolve import LaunchOptions, convolve, convolve_pieces
from trnconv.runtime.launch import LaunchOperands, prepare, run
from trnconv.runtime.pricing import price
from winograd_plans import pieces_of, run_plan, scaled_integers, winograd_plans

RELU, SILU = prologue_of("relu"), prologue_of("silu")
BF16 = numpy_dtype("bfloat16")
SMALL = conv_shape((1, 96, 3, 12, 20), (96, 96, 3, 3, 3), padding=(0, 1, 1))
WITHIN = 0.05  # of the schedule


def scaled_case(name, prologue=RELU):
    """A plan of the kernel's own cases, scaled; one whose rests of channels no engine may begin
    at has those once only."""
    return replace(case_of(name), prologue=prologue)


def started(x, factors, frames, activate):
    """The definition: each piece by its own scale and shift, in float64."""
    ends = np.cumsum(frames)
    parts = []
    for number, (count, end) in enumerate(zip(frames, ends, strict=True)):
        scale, shift = (
            factors[:, 2 * number + n].astype(np.float64)[None, :, None, None, None]
            for n in range(2)
        )
        parts.append(activate(scale * x[:, :, end - count : end].astype(np.float64) + shift))
    return np.concatenate(parts, axis=2)


def relu(z):
    return np.maximum(z, 0)


@few(6)
@pytest.mark.parametrize("name", EVERY_CASE)
def test_integers_come_out_exactly(name):
    plan = scaled_case(name)
    broken = violations(plan)
    if plan.dtype != "bfloat16":
        assert any("types of 16 bits" in rule for rule in broken)
        return
    assert not broken
    x, factors, w, bias = scaled_integers(plan)
    y = np.asarray(run_plan(plan, pieces_of(x, plan), w, bias, factors=factors).outputs)
    given = started(x, factors, plan.frames, relu).astype(BF16)
    assert np.array_equal(y, forward(given, w, bias, plan.shape).astype(BF16))


def test_pieces_have_factors_of_their_own():
    """Frames of one piece scaled as another's: the test above would see it."""
    plan = scaled_case(next(name for name in EVERY_CASE if len(case_of(name).frames) == 2))
    x, factors, w, bias = scaled_integers(plan)
    y = np.asarray(run_plan(plan, pieces_of(x, plan), w, bias, factors=factors).outputs)
    swapped = np.roll(factors, 2, axis=1)
    wrong = started(x, swapped, plan.frames, relu).astype(BF16)
    assert not np.array_equal(y, forward(wrong, w, bias, plan.shape).astype(BF16))


def test_padding_is_not_scaled():
    """A shift that reaches into padding: the test of integers would see it."""
    plan = scaled_case("rows")
    x, factors, w, bias = scaled_integers(plan)
    factors[:, 1::2] = 2
    y = np.asarray(run_plan(plan, pieces_of(x, plan), w, bias, factors=factors).outputs)
    pads = zip(plan.shape.pad_before, plan.shape.pad_after, strict=True)
    wide = np.pad(x, ((0, 0), (0, 0), *pads))
    bare = replace(plan.shape, size=wide.shape[2:], pad_before=(0, 0, 0), pad_after=(0, 0, 0))
    wrong = started(wide, factors, wide.shape[2:3], relu).astype(BF16)
    assert any(plan.shape.pad_before)
    assert not np.array_equal(y, forward(wrong, w, bias, bare).astype(BF16))


def noise(plan):
    x, w, bias = normal_arrays(plan.shape, "bfloat16")
    rng = np.random.default_rng(3)
    factors = rng.uniform(0.5, 1.5, plan.factors_spec().shape).astype(np.float32)
    return x, factors, w, bias


def bound(plan, given, w, bias):
    """That of the convolution, and of what each x' is off: a table's 2**-9 and one rounding."""
    exact = forward(given, w, bias, plan.shape)
    off = np.abs(given) * 2.0**-9 + output_rounding(np.abs(given), BF16)
    moved = forward(off, np.abs(w.astype(np.float64)), None, plan.shape)
    return exact, fast_bound(given.astype(BF16), w, bias, exact, plan) + (1 + HALF) * moved


@few(2)
@pytest.mark.parametrize("name", ["causal", "rows", "four_frames", "rests_of_channels"])
def test_noise_stays_within_the_derived_bound(name):
    plan = scaled_case(name, SILU)
    x, factors, w, bias = noise(plan)
    y = np.asarray(run_plan(plan, pieces_of(x, plan), w, bias, factors=factors).outputs)
    exact, most = bound(plan, started(x, factors, plan.frames, silu), w, bias)
    assert_within(y, exact, most)


@pytest.mark.parametrize("mutation", ["scale", "shift", "activation"])
def test_a_wrong_start_is_outside_the_bound(mutation):
    plan = scaled_case("rows", SILU)
    x, factors, w, bias = noise(plan)
    given = started(x, factors, plan.frames, silu)
    wrong = factors.copy()
    if mutation != "activation":
        wrong[:, 0 if mutation == "scale" else 1] *= 1.1
    other = replace(plan, prologue=prologue_of("identity")) if mutation == "activation" else plan
    y = np.asarray(run_plan(other, pieces_of(x, plan), w, bias, factors=wrong).outputs)
    with pytest.raises(AssertionError, match="outside their bound"):
        assert_within(y, *bound(plan, given, w, bias))


@few(2)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_start_costs_what_the_schedule_says(family):
    """And less than its passes take: the Scalar engine has time for most of them.

    The same decisions without a start are never slower; without a start, fewer are searched.
    """
    shape = conv_shape((1, 128, 4, 24, 160), (256, 128, 3, 3, 3), padding=(0, 1, 1))
    policy = Policy(FAST, least_macs=0)
    plain, scaled = (
        search(
            WINOGRAD,
            ConvProblem(shape, TRN2, policy=policy, prologue=prologue, budget=10**9),
            family,
        )[0]
        for prologue in (Prologue(), SILU)
    )
    assert abs(cost_of(scaled.plan).total_ns / time_plan(scaled.plan).makespan_ns - 1) < WITHIN
    passes_ns = scaled.cost.busy_ns("scalar") - plain.cost.busy_ns("scalar")
    assert cost_of(replace(scaled.plan, prologue=Prologue())).total_ns <= scaled.cost.total_ns
    assert scaled.cost.total_ns - plain.cost.total_ns < passes_ns / 2


def test_hardware_loops_scale_too():
    plan = scaled_case("frames_in_a_loop")
    assert plan.looped
    x, factors, w, bias = scaled_integers(plan)
    y = np.asarray(run_plan(plan, [x], w, bias, factors=factors).outputs)
    given = started(x, factors, plan.frames, relu).astype(BF16)
    assert np.array_equal(y, forward(given, w, bias, plan.shape).astype(BF16))


def test_two_cores_scale_what_each_of_them_loads():
    policy = Policy(FAST, least_macs=0)
    problem = ConvProblem(SMALL, TRN2, policy=policy, prologue=RELU, algorithms=("winograd",))
    halves = tuple(priced.plan for priced in shared_plans(problem))
    plan, other = halves
    assert plan.row_span != other.row_span
    x, factors, w, bias = scaled_integers(plan)
    both = run(prepare(halves), LaunchOperands((x,), w, bias, None, factors))
    given = started(x, factors, plan.frames, relu).astype(BF16)
    assert np.array_equal(np.asarray(both.outputs), forward(given, w, bias, SMALL).astype(BF16))


def test_a_convolution_of_arrays_takes_a_start():
    x, factors, w = integers_of(SMALL)
    launch = LaunchOptions(prologue=RELU, factors=factors, algorithms=("winograd",), cores=1)
    done = convolve(x, w, padding=(0, 1, 1), launch=launch)
    given = started(x, factors, (3,), relu).astype(BF16)
    assert np.array_equal(done.y, forward(given, w, None, SMALL).astype(BF16))
    assert done.plans[0][0].prologue == RELU


def integers_of(shape):
    rng = np.random.default_rng(0)
    x = rng.integers(-2, 3, (1, shape.c_in, *shape.size)).astype(BF16)
    w = (24 * rng.integers(-2, 3, (shape.c_out, shape.c_in, *shape.kernel))).astype(BF16)
    return x, rng.integers(-2, 3, (shape.c_in, 2)).astype(np.float32), w


def test_what_does_not_fit_is_refused_in_words():
    x, factors, w = integers_of(SMALL)
    with pytest.raises(ShapeError, match="asked for, but none given"):
        convolve(x, w, launch=LaunchOptions(prologue=RELU))
    with pytest.raises(ShapeError, match="the prologue has none"):
        convolve(x, w, launch=LaunchOptions(factors=factors))
    with pytest.raises(ShapeError, match="float32 is needed"):
        convolve(x, w, launch=LaunchOptions(prologue=RELU, factors=factors.astype(np.float64)))
    with pytest.raises(ShapeError, match=r"\(96, 2\) is needed"):
        convolve(x, w, launch=LaunchOptions(prologue=RELU, factors=factors[:5]))
    with pytest.raises(UnsupportedError, match="activation 'swish'"):
        prologue_of("swish")
    many = LaunchOptions(prologue=RELU, factors=np.tile(factors, (1, 4)))
    with pytest.raises(UnsupportedError, match="4 pieces: a kernel takes 3"):
        convolve_pieces([x] * 4, w, launch=many)


def test_forms_without_a_start_say_so():
    narrow = conv_shape((1, 16, 3, 12, 20), (16, 16, 3, 3, 3), padding=1)
    with pytest.raises(PlanError, match="its kernel takes inputs as they are"):
        choose(ConvProblem(narrow, find_machine("trn2"), prologue=SILU))


def test_values_that_would_not_fit_fp16_are_refused():
    plan = winograd_plans(SMALL, "F(2,3)", 1, prologue=RELU)[0].plan
    x, factors, w = integers_of(SMALL)
    with pytest.raises(RangeError, match="the input reaches"):
        run_plan(plan, [x], w, factors=factors * 20_000)


def test_a_group_norm_is_statistics_factors_and_a_start():
    """Three launches: what is normed never lies in HBM."""
    norm = GroupNorm(1, 96, 32, 3 * 12 * 20)
    plan = winograd_plans(SMALL, "F(2,3)", 1, prologue=SILU)[0].plan
    rng = np.random.default_rng(5)
    x = (2 * rng.standard_normal((1, 96, 3, 12, 20)) + 1).astype(BF16)
    gamma, beta = rng.uniform(0.5, 1.5, 96), rng.uniform(-0.5, 0.5, 96)
    w = (rng.standard_normal((96, 96, 3, 3, 3)) / 50).astype(BF16)
    flat = x.reshape(1, 96, -1)
    statistics = np.asarray(statistics_launch(norm, TRN2, 1).run(flat).outputs)
    factors = np.asarray(scale_shift_launch(norm, gamma, beta, TRN2).run(statistics).outputs)
    y = np.asarray(run_plan(plan, [x], w, factors=factors).outputs)
    grouped = x.astype(np.float64).reshape(1, 32, -1)
    mean, spread = grouped.mean(2, keepdims=True), grouped.var(2, keepdims=True)
    normed = ((grouped - mean) / np.sqrt(spread + norm.eps)).reshape(x.shape)
    scale, shift = (part[None, :, None, None, None] for part in (gamma, beta))
    given = silu(scale * normed + shift)
    assert_within(y, *bound(plan, given, w, None))
    with pytest.raises(AssertionError, match="outside their bound"):
        assert_within(y, *bound(plan, silu(scale * normed), w, None))


def test_a_start_is_cheaper_than_another_launch():
    """128 channels on 5x180x320, as HunyuanVideo has them: a pass over HBM less."""
    shape = conv_shape((1, 128, 5, 180, 320), (128, 128, 3, 3, 3), padding=(0, 1, 1))
    norm = GroupNorm(1, 128, 32, 5 * 180 * 320)
    problem = ConvProblem(shape, TRN2)
    plain, scaled = (
        price(replace(problem, prologue=prologue)).ns for prologue in (Prologue(), SILU)
    )
    assert scaled + norm.scale_shift_price(TRN2, 2).ns < plain + norm.apply_price(TRN2, 2).ns

"""Upsampled convolutions by differences against the definition, on one core and on two."""

from dataclasses import replace

import numpy as np
import pytest

from coarse_cells import spread
from conv_arrays import integer_arrays, normal_arrays
from nkisim.machine import TRN2
from parser_lint import lint
from repetition import few
from tolerance import assert_within
from trnconv.algorithms.winograd_upsample import kernel
from trnconv.algorithms.winograd_upsample.algorithm import WINOGRAD_UPSAMPLE
from trnconv.algorithms.winograd_upsample.rules import violations
from trnconv.problem.conv_problem import ConvProblem
from trnconv.reference import forward
from trnconv.runtime.launch import LaunchOperands, prepare, run
from upsample_cases import CASES, difference_bound, plan_of, upsampled
from winograd_plans import run_plan


def residual_of(plan, kind):
    """What a plan adds, in small integers, and the same in the shape of y."""
    shape, epilogue = plan.shape, plan.epilogue
    if epilogue.residual == "none":
        return None, 0.0
    y_shape = (shape.batch, shape.c_out, *shape.out_sizes())
    sizes = epilogue.coarse.sizes(y_shape) if epilogue.coarse else y_shape
    r = np.random.default_rng(3).integers(-9, 10, sizes).astype(kind)
    wide = r.astype(np.float64)
    return r, spread(wide, epilogue.coarse)[:, :, : y_shape[2]] if epilogue.coarse else wide


@few(4)
@pytest.mark.parametrize("name", CASES)
def test_integers_come_out_exactly(name):
    plan = CASES[name]
    x, w, bias = integer_arrays(plan.shape, "bfloat16")
    r, added = residual_of(plan, x.dtype)
    y = np.asarray(run_plan(plan, [x], w, bias, r).outputs)
    assert np.array_equal(y, (forward(x, w, bias, plan.shape) + added).astype(x.dtype))


@few(4)
@pytest.mark.parametrize("name", [name for name in CASES if "residual" not in name])
def test_noise_stays_within_the_derived_bound(name):
    plan = CASES[name]
    x, w, bias = normal_arrays(plan.shape, "bfloat16")
    y = np.asarray(run_plan(plan, [x], w, bias).outputs)
    exact = forward(x, w, bias, plan.shape)
    assert_within(y, exact, difference_bound(x, w, bias, exact, plan.shape))


@few(3)
@pytest.mark.parametrize("tap", [(0, 0, 0), (0, 1, 1), (0, 2, 1), (0, 1, 0), (0, 2, 2)])
def test_a_dropped_tap_is_outside_the_bound(tap):
    plan = CASES["blocks"]
    x, w, bias = normal_arrays(plan.shape, "bfloat16")
    less = w.copy()
    less[(slice(None), 5, *tap)] = 0
    y = np.asarray(run_plan(plan, [x], less, bias).outputs)
    exact = forward(x, w, bias, plan.shape)
    with pytest.raises(AssertionError, match="outside their bound"):
        assert_within(y, exact, difference_bound(x, w, bias, exact, plan.shape))


@pytest.mark.parametrize("axis", [1, 2])
def test_a_border_left_at_zero_is_outside_the_bound(axis):
    plan = CASES["replicated"]
    modes = list(plan.shape.modes)
    modes[axis] = "zeros"
    x, w, bias = normal_arrays(plan.shape, "bfloat16")
    zeros = replace(plan, shape=replace(plan.shape, modes=tuple(modes)))
    y = np.asarray(run_plan(zeros, [x], w, bias).outputs)
    exact = forward(x, w, bias, plan.shape)
    with pytest.raises(AssertionError, match="outside their bound"):
        assert_within(y, exact, difference_bound(x, w, bias, exact, plan.shape))


def test_the_gpsimd_engine_gives_the_same_bits():
    plan = CASES["blocks"]
    x, w, bias = normal_arrays(plan.shape, "bfloat16")
    plain, rows, sums = (
        np.asarray(run_plan(plan.but(**chosen), [x], w, bias).outputs)
        for chosen in ({}, {"gpsimd_rows": True}, {"gpsimd_sums": True})
    )
    assert np.array_equal(plain, rows)
    assert np.array_equal(plain, sums)


HALVES = {
    "even": plan_of(upsampled(16, 8, (1, 12, 5)), 2, 5),
    "odd": plan_of(upsampled(16, 8, (1, 13, 5), batch=2), 3, 5),
    "cut_above": plan_of(upsampled(16, 8, (2, 12, 5), rows=(0, 1)), 4, 5),
    "loops": plan_of(upsampled(130, 8, (2, 20, 5)), 3, 3, iteration_spans=1),
    "added": replace(
        CASES["shuffled_residual"], shape=upsampled(16, 8, (3, 24, 5)), iteration_spans=2
    ),
}


@few(3)
@pytest.mark.parametrize("name", HALVES)
def test_two_cores_have_the_bits_of_one(name):
    plan = HALVES[name]
    x, w, bias = normal_arrays(plan.shape, "bfloat16")
    r, _ = residual_of(plan, x.dtype)
    halves = WINOGRAD_UPSAMPLE.core_splits(ConvProblem(plan.shape, TRN2, epilogue=plan.epilogue))[0]
    plans = tuple(WINOGRAD_UPSAMPLE.moved(plan, half) for half in halves)
    assert len({WINOGRAD_UPSAMPLE.loops(half) for half in plans}) == 1
    both = run(prepare(plans), LaunchOperands((x,), w, bias, r, None))
    assert np.array_equal(
        np.asarray(both.outputs), np.asarray(run_plan(plan, [x], w, bias, r).outputs)
    )


BROKEN = {
    "5 taps": (replace(CASES["blocks"].shape, kernel=(1, 3, 5), pad_before=(0, 1, 2)), "needs 3"),
    "3 times": (replace(CASES["blocks"].shape, upsample=(1, 3, 2)), "needs 3 taps and 2 times"),
    "padding": (replace(CASES["blocks"].shape, pad_after=(0, 1, 0)), "1 on both sides"),
    "groups": (replace(CASES["blocks"].shape, groups=2), "the kernel has one"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_other_convolutions_are_refused_in_words(name):
    shape, words = BROKEN[name]
    assert any(words in rule for rule in violations(replace(CASES["blocks"], shape=shape)))


@pytest.mark.parametrize(
    "function", [kernel.winograd_upsample, kernel.winograd_upsample_on_two_cores]
)
def test_the_kernels_keep_to_the_python_of_nki(function):
    assert lint(function).findings == ()

"""Fast convolutions against the definition: exactly on integers, within derived bounds on noise."""

from dataclasses import replace

import numpy as np
import pytest

from conv_arrays import normal_arrays, numpy_dtype
from fast_bounds import fast_bound
from fast_cases import EVERY_CASE, case_of
from nkisim.enums import engine
from parser_lint import lint
from repetition import few
from tolerance import assert_within
from trnconv.algorithms.winograd import kernel
from trnconv.algorithms.winograd.rules import may_add_first, violations
from trnconv.problem.epilogue import Epilogue
from trnconv.reference import forward
from winograd_plans import pieces_of, run_plan


def integers(plan):
    """x, w and bias whose transforms and sums are all exact: w are multiples of 24."""
    rng = np.random.default_rng(plan.shape.c_out)
    shape, kind = plan.shape, numpy_dtype("bfloat16")
    x = rng.integers(-2, 3, (shape.batch, shape.c_in, *shape.size))
    w = 24 * rng.integers(-2, 3, (shape.c_out, shape.c_in, *shape.kernel))
    bias = rng.integers(-99, 100, shape.c_out)
    return x.astype(kind), w.astype(kind), bias.astype(kind)


@few(4)
@pytest.mark.parametrize("name", EVERY_CASE)
def test_integers_come_out_exactly(name):
    plan = case_of(name)
    x, w, bias = integers(plan)
    y = np.asarray(run_plan(plan, pieces_of(x, plan), w, bias).outputs)
    assert np.array_equal(y, forward(x, w, bias, plan.shape).astype(x.dtype))


@pytest.mark.fast
@pytest.mark.parametrize("name", EVERY_CASE)
def test_noise_stays_within_the_derived_bound(name):
    plan = case_of(name)
    x, w, bias = normal_arrays(plan.shape, "bfloat16")
    y = np.asarray(run_plan(plan, pieces_of(x, plan), w, bias).outputs)
    exact = forward(x, w, bias, plan.shape)
    assert_within(y, exact, fast_bound(x, w, bias, exact, plan))


def test_a_wrong_transform_is_outside_the_bound():
    plan = case_of("frames")
    x, w, bias = normal_arrays(plan.shape, "bfloat16")
    y = np.asarray(run_plan(plan, [x], np.flip(w, 2), bias).outputs)
    exact = forward(x, w, bias, plan.shape)
    with pytest.raises(AssertionError, match="outside their bound"):
        assert_within(y, exact, fast_bound(x, w, bias, exact, plan))


@few(3)
@pytest.mark.parametrize("name", ["causal_frames", "rows", "rests_of_channels"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_border_left_at_zero_is_outside_the_bound(name, axis):
    plan = case_of(f"replicated_{name}")
    modes = list(plan.shape.modes)
    modes[axis] = "zeros"
    zeros = replace(plan, shape=replace(plan.shape, modes=tuple(modes)))
    x, w, bias = normal_arrays(plan.shape, "bfloat16")
    y = np.asarray(run_plan(zeros, pieces_of(x, plan), w, bias).outputs)
    exact = forward(x, w, bias, plan.shape)
    with pytest.raises(AssertionError, match="outside their bound"):
        assert_within(y, exact, fast_bound(x, w, bias, exact, plan))


ENDS = {
    "relu": (Epilogue("relu"), lambda y, _: np.maximum(y, 0)),
    "residual": (Epilogue("identity", "before"), lambda y, r: y + r),
    "relu_then_residual": (Epilogue("relu", "after"), lambda y, r: np.maximum(y, 0) + r),
    "residual_then_relu": (Epilogue("relu", "before"), lambda y, r: np.maximum(y + r, 0)),
    "float32": (Epilogue(dtype="float32"), lambda y, _: y),
}


@pytest.mark.fast
@pytest.mark.parametrize(
    "name",
    [
        "causal",
        "rows",
        "four_frames",
        "whole_sums",
        "replicated_rests_of_channels",
        "pairs_of_an_odd_number",
        "pairs_of_four_rows",
    ],
)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("gpsimd", ["none", "all", "some"])
def test_ends_are_those_of_the_direct_kernel(name, end, gpsimd):
    ending, expected = ENDS[end]
    plan = replace(case_of(name), epilogue=ending)
    if gpsimd != "none" and may_add_first(ending):
        plan = replace(plan, gpsimd_residual=True, shares_residual=gpsimd == "some")
    x, w, bias = integers(plan)
    added = None
    exact = forward(x, w, bias, plan.shape)
    if ending.residual != "none":
        added = np.random.default_rng(1).integers(-9, 10, exact.shape).astype(x.dtype)
    y = np.asarray(run_plan(plan, pieces_of(x, plan), w, bias, added).outputs)
    wanted = expected(exact, 0.0 if added is None else added.astype(np.float64))
    assert np.array_equal(y, wanted.astype(ending.dtype or x.dtype))


@few(3)
@pytest.mark.parametrize("name", EVERY_CASE)
def test_steps_of_the_gpsimd_engine_give_the_same_bits(name):
    plan = replace(case_of(name), gpsimd_steps=0, gpsimd_pairs=False)
    some = max(plan.transforms.apart)
    x, w, bias = normal_arrays(plan.shape, "bfloat16")
    done = [
        run_plan(replace(plan, gpsimd_steps=steps), pieces_of(x, plan), w, bias)
        for steps in (0, some)
    ]
    assert np.array_equal(*(np.asarray(one.outputs) for one in done))
    added = [
        sum(
            instruction.op == "tensor_tensor" and instruction.engine == engine.gpsimd
            for instruction in one.trace.instructions()
        )
        for one in done
    ]
    assert added[0] == 0 < added[1]
    assert any("need no other" in rule for rule in violations(replace(plan, gpsimd_steps=some + 1)))


@few(2)
@pytest.mark.parametrize("name", [name for name in EVERY_CASE if "pairs" in name])
def test_pairs_of_the_gpsimd_engine_give_the_same_bits(name):
    plan = case_of(name)
    x, w, bias = normal_arrays(plan.shape, "bfloat16")
    if not plan.frame_pairs:
        assert violations(replace(plan, gpsimd_pairs=True))
        return
    done = [
        run_plan(replace(plan, gpsimd_pairs=paired), pieces_of(x, plan), w, bias).outputs
        for paired in (False, True)
    ]
    assert np.array_equal(*map(np.asarray, done))


def test_a_residual_that_comes_last_is_not_added_first():
    plan = replace(case_of("rows"), epilogue=ENDS["relu_then_residual"][0], gpsimd_residual=True)
    assert any("it comes last" in rule for rule in violations(plan))
    none = replace(case_of("rows"), gpsimd_residual=True)
    assert any("there is none" in rule for rule in violations(none))
    assert not replace(case_of("rows"), gpsimd_residual=True).is_reproducible
    unshared = replace(case_of("rows"), shares_residual=True)
    assert any("it adds none" in rule for rule in violations(unshared))


def test_master_weights_are_rounded_once():
    plan = case_of("frames")
    x, _, bias = integers(plan)
    w = np.random.default_rng(0).standard_normal((32, 32, 3, 3, 3)).astype(np.float32)
    exact = forward(x, w, bias, plan.shape)
    rounded = w.astype(x.dtype)
    from_master = np.asarray(run_plan(plan, [x], w, bias).outputs).astype(np.float64)
    from_rounded = np.asarray(run_plan(plan, [x], rounded, bias).outputs).astype(np.float64)
    assert np.square(from_master - exact).mean() < np.square(from_rounded - exact).mean()


@pytest.mark.parametrize(
    "function", [kernel.winograd_of_one, kernel.winograd_of_two, kernel.winograd_of_three]
)
def test_the_kernels_keep_to_the_python_of_nki(function):
    assert lint(function).findings == ()

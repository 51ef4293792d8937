"""Fast convolutions against the definition: exactly on integers, within derived bounds on noise."""

from dataclasses import replace

import numpy as np
import pytest

from conv_arrays import normal_arrays, numpy_dtype
from fast_bounds import fast_bound
from nkisim.lint import lint
from tolerance import assert_within
from trnconv.geometry import conv_shape
from trnconv.kernels.fast import fast
from trnconv.plan.ends import End
from trnconv.plan.fast_legality import broken_rules
from trnconv.plan.fast_plan import FastPlan
from trnconv.reference import forward
from trnconv.runtime.fast import run_fast

FRAMES, ROWS = 0, 1
_BY_FRAMES = {"axis": FRAMES, "units": 2, "rows": 4, "columns": 99, "x_slots": 6, "v_slots": 2}
_BY_ROWS = {"axis": ROWS, "units": 4, "rows": 4, "columns": 99, "x_slots": 6, "v_slots": 6}
_PAIR = {"units": 1, "body_blocks": 2}
_FOUR = {"transform": "F(4,3)"}

CASES = {
    "frames": ((1, 32, 6, 8, 10), (32, 32, 3, 3, 3), (0, 1, 1), _BY_FRAMES),
    "frames_in_column_blocks": (
        (1, 96, 6, 9, 11),
        (96, 96, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | {"columns": 4, "pieces": (2, 4)},
    ),
    "rests_of_channels": (
        (1, 192, 6, 5, 11),
        (192, 192, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | {"columns": 6, "pieces": (1, 1, 4)},
    ),
    "rests_in_pairs_of_rows": (
        (1, 192, 6, 5, 11),
        (192, 192, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | {"columns": 6, "paired_rows": True},
    ),
    "rests_in_column_tiles": (
        (1, 192, 6, 5, 11),
        (192, 192, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | {"columns": 6, "machine": "trn2+column-tiles"},
    ),
    "causal": ((2, 40, 4, 6, 11), (140, 40, 3, 3, 3), ((2, 0), 1, 1), _BY_FRAMES | {"columns": 6}),
    "taps_along_frames_only": ((1, 40, 6, 7, 11), (70, 40, 3, 1, 1), 0, _BY_FRAMES),
    "frames_in_a_loop": (
        (1, 40, 6, 37, 11),
        (70, 40, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | {"rolled": True},
    ),
    "frames_from_an_odd_one": (
        (1, 40, 7, 9, 11),
        (70, 40, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | {"units": 3, "body_blocks": 2, "x_slots": 4, "anchor": 1},
    ),
    "whole_sums": (
        (1, 40, 6, 9, 11),
        (70, 40, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | {"midgroup": False},
    ),
    "groups_of_weights": (
        (1, 40, 6, 9, 11),
        (260, 40, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | {"group": 2},
    ),
    "streamed_weights": (
        (1, 40, 6, 9, 11),
        (200, 40, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | {"streamed": 3},
    ),
    "weights_streamed_in_parts": (
        (1, 640, 4, 6, 10),
        (32, 640, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | _PAIR | {"x_slots": 8, "streamed": 2},
    ),
    "rows": ((1, 40, 4, 7, 11), (70, 40, 3, 3, 3), ((2, 0), 1, 1), _BY_ROWS | {"columns": 6}),
    "rows_of_one_frame": (
        (1, 150, 3, 7, 11),
        (70, 150, 3, 3, 3),
        (0, 1, 1),
        _BY_ROWS | _PAIR | {"x_slots": 3},
    ),
    "image": (
        (2, 40, 1, 7, 12),
        (70, 40, 1, 3, 3),
        (0, 1, 1),
        _BY_ROWS | _PAIR | {"x_slots": 2, "v_slots": 2},
    ),
    "even_frames_in_a_loop": (
        (1, 40, 6, 36, 11),
        (70, 40, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | {"rolled": True, "even_rows": True, "columns": 6, "pieces": (2, 4)},
    ),
    "even_frames_and_a_rest": (
        (1, 192, 4, 14, 11),
        (70, 192, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_FRAMES | {"rolled": True, "even_rows": True, "body_blocks": 2},
    ),
    "even_rows_in_a_loop": (
        (1, 40, 6, 36, 11),
        (70, 40, 3, 3, 3),
        (0, 1, 1),
        _BY_ROWS | {"rolled": True, "even_rows": True, "pieces": (1, 1, 4)},
    ),
    "even_rows_below": (
        (2, 64, 4, 17, 11),
        (70, 64, 3, 3, 3),
        ((2, 0), (0, 1), 1),
        _BY_ROWS | {"rolled": True, "even_rows": True},
    ),
    "rows_in_a_loop": (
        (1, 40, 6, 37, 11),
        (70, 40, 3, 3, 3),
        (0, 1, 1),
        _BY_ROWS | {"rolled": True},
    ),
    "rows_from_an_odd_one": (
        (1, 40, 6, 9, 11),
        (70, 40, 3, 3, 3),
        (0, (2, 1), 1),
        _BY_ROWS | {"anchor": 3},
    ),
    "no_padding": ((1, 20, 6, 8, 9), (33, 20, 3, 3, 3), 0, _BY_ROWS | {"rows": 2}),
    "four_frames": (
        (1, 40, 6, 37, 11),
        (70, 40, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | _PAIR | _FOUR,
    ),
    "four_frames_in_a_loop": (
        (1, 40, 10, 37, 11),
        (70, 40, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | _FOUR | {"x_slots": 10, "rolled": True},
    ),
    "four_frames_from_the_third": (
        (1, 40, 7, 9, 11),
        (70, 40, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | _FOUR | {"anchor": 3, "x_slots": 10},
    ),
    "four_rows": (
        (1, 40, 6, 37, 11),
        (70, 40, 3, 3, 3),
        (0, 1, 1),
        _BY_ROWS | _FOUR | {"rows": 8, "streamed": 4},
    ),
}


_EVERYWHERE = ("replicate", "replicate", "replicate")

REPLICATED = {
    "causal_frames": (
        (2, 40, 4, 9, 11),
        (70, 40, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_FRAMES | {"columns": 6},
        _EVERYWHERE,
    ),
    "frames_on_both_sides": (
        (1, 40, 4, 6, 11),
        (70, 40, 3, 3, 3),
        1,
        _BY_FRAMES | {"pieces": (1, 3)},
        _EVERYWHERE,
    ),
    "two_of_each": (
        (1, 40, 4, 6, 11),
        (70, 40, 3, 3, 3),
        (0, (2, 1), (1, 2)),
        _BY_FRAMES | _PAIR | {"x_slots": 8},
        _EVERYWHERE,
    ),
    "frames_in_a_loop": (
        (1, 40, 4, 37, 11),
        (70, 40, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_FRAMES | {"rolled": True},
        _EVERYWHERE,
    ),
    "rests_of_channels": (
        (1, 192, 4, 5, 11),
        (192, 192, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_FRAMES | {"columns": 6, "paired_rows": True},
        _EVERYWHERE,
    ),
    "three_copies": (
        (1, 32, 4, 6, 11),
        (32, 32, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_FRAMES | {"columns": 6},
        _EVERYWHERE,
    ),
    "rows": (
        (1, 150, 3, 7, 11),
        (70, 150, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_ROWS | {"units": 3, "x_slots": 5, "v_slots": 10, "columns": 6, "body_blocks": 2},
        _EVERYWHERE,
    ),
    "rows_in_a_loop": (
        (1, 64, 4, 37, 11),
        (70, 64, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_ROWS | {"rolled": True},
        _EVERYWHERE,
    ),
    "even_frames": (
        (1, 64, 4, 16, 11),
        (70, 64, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_FRAMES | {"rolled": True, "even_rows": True},
        _EVERYWHERE,
    ),
    "even_rows": (
        (1, 40, 4, 16, 11),
        (70, 40, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_ROWS | {"rolled": True, "even_rows": True},
        _EVERYWHERE,
    ),
    "rows_from_an_odd_one": (
        (1, 40, 6, 9, 11),
        (70, 40, 3, 3, 3),
        (0, (2, 1), 1),
        _BY_ROWS | {"anchor": 3},
        _EVERYWHERE,
    ),
    "columns_only": (
        (1, 40, 4, 7, 11),
        (70, 40, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_ROWS,
        ("zeros", "zeros", "replicate"),
    ),
    "rows_only": (
        (1, 40, 4, 7, 11),
        (70, 40, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_FRAMES,
        ("zeros", "replicate", "zeros"),
    ),
    "four_frames": (
        (1, 40, 8, 9, 11),
        (70, 40, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_FRAMES | _FOUR | {"x_slots": 10},
        _EVERYWHERE,
    ),
    "four_rows": (
        (1, 40, 4, 37, 11),
        (70, 40, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_ROWS | _FOUR | {"rows": 8, "streamed": 4},
        _EVERYWHERE,
    ),
}
EVERY_CASE = [*CASES, *(f"replicated_{name}" for name in REPLICATED)]


def case_of(name):
    if name.startswith("replicated_"):
        x_shape, w_shape, padding, decisions, modes = REPLICATED[name.removeprefix("replicated_")]
    else:
        x_shape, w_shape, padding, decisions = CASES[name]
        modes = "zeros"
    shape = conv_shape(x_shape, w_shape, padding=padding, padding_mode=modes)
    fixed = {"machine": "trn2", "dtype": "bfloat16", "transform": "F(2,3)", "group": 9}
    plan = FastPlan(shape, **(fixed | decisions))
    assert broken_rules(plan) == []
    return plan


def pieces_of(x, plan):
    ends = np.cumsum(plan.frames)
    return [
        np.ascontiguousarray(x[:, :, e - n : e]) for n, e in zip(plan.frames, ends, strict=True)
    ]


def integers(plan):
    """x, w and bias whose transforms and sums are all exact: w are multiples of 24."""
    rng = np.random.default_rng(plan.shape.c_out)
    shape, kind = plan.shape, numpy_dtype("bfloat16")
    x = rng.integers(-2, 3, (shape.batch, shape.c_in, *shape.size))
    w = 24 * rng.integers(-2, 3, (shape.c_out, shape.c_in, *shape.kernel))
    bias = rng.integers(-99, 100, shape.c_out)
    return x.astype(kind), w.astype(kind), bias.astype(kind)


@pytest.mark.parametrize("name", EVERY_CASE)
def test_integers_come_out_exactly(name):
    plan = case_of(name)
    x, w, bias = integers(plan)
    y = np.asarray(run_fast(plan, pieces_of(x, plan), w, bias).outputs)
    assert np.array_equal(y, forward(x, w, bias, plan.shape).astype(x.dtype))


@pytest.mark.fast
@pytest.mark.parametrize("name", EVERY_CASE)
def test_noise_stays_within_the_derived_bound(name):
    plan = case_of(name)
    x, w, bias = normal_arrays(plan.shape, "bfloat16")
    y = np.asarray(run_fast(plan, pieces_of(x, plan), w, bias).outputs)
    exact = forward(x, w, bias, plan.shape)
    assert_within(y, exact, fast_bound(x, w, bias, exact, plan))


def test_a_wrong_transform_is_outside_the_bound():
    plan = case_of("frames")
    x, w, bias = normal_arrays(plan.shape, "bfloat16")
    y = np.asarray(run_fast(plan, [x], np.flip(w, 2), bias).outputs)
    exact = forward(x, w, bias, plan.shape)
    with pytest.raises(AssertionError, match="outside their bound"):
        assert_within(y, exact, fast_bound(x, w, bias, exact, plan))


@pytest.mark.parametrize("name", ["causal_frames", "rows", "rests_of_channels"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_border_left_at_zero_is_outside_the_bound(name, axis):
    plan = case_of(f"replicated_{name}")
    modes = list(plan.shape.modes)
    modes[axis] = "zeros"
    zeros = replace(plan, shape=replace(plan.shape, modes=tuple(modes)))
    x, w, bias = normal_arrays(plan.shape, "bfloat16")
    y = np.asarray(run_fast(zeros, pieces_of(x, plan), w, bias).outputs)
    exact = forward(x, w, bias, plan.shape)
    with pytest.raises(AssertionError, match="outside their bound"):
        assert_within(y, exact, fast_bound(x, w, bias, exact, plan))


ENDS = {
    "relu": (End("relu"), lambda y, _: np.maximum(y, 0)),
    "residual": (End("identity", "before"), lambda y, r: y + r),
    "relu_then_residual": (End("relu", "after"), lambda y, r: np.maximum(y, 0) + r),
    "residual_then_relu": (End("relu", "before"), lambda y, r: np.maximum(y + r, 0)),
    "float32": (End(dtype="float32"), lambda y, _: y),
}


@pytest.mark.fast
@pytest.mark.parametrize(
    "name", ["causal", "rows", "four_frames", "whole_sums", "replicated_rests_of_channels"]
)
@pytest.mark.parametrize("end", ENDS)
def test_ends_are_those_of_the_direct_kernel(name, end):
    ending, expected = ENDS[end]
    plan = replace(case_of(name), end=ending)
    x, w, bias = integers(plan)
    added = None
    exact = forward(x, w, bias, plan.shape)
    if ending.residual != "none":
        added = np.random.default_rng(1).integers(-9, 10, exact.shape).astype(x.dtype)
    y = np.asarray(run_fast(plan, pieces_of(x, plan), w, bias, added).outputs)
    wanted = expected(exact, 0.0 if added is None else added.astype(np.float64))
    assert np.array_equal(y, wanted.astype(ending.dtype or x.dtype))


def test_master_weights_are_rounded_once():
    plan = case_of("frames")
    x, _, bias = integers(plan)
    w = np.random.default_rng(0).standard_normal((32, 32, 3, 3, 3)).astype(np.float32)
    exact = forward(x, w, bias, plan.shape)
    rounded = w.astype(x.dtype)
    from_master = np.asarray(run_fast(plan, [x], w, bias).outputs).astype(np.float64)
    from_rounded = np.asarray(run_fast(plan, [x], rounded, bias).outputs).astype(np.float64)
    assert np.square(from_master - exact).mean() < np.square(from_rounded - exact).mean()


def test_the_kernel_keeps_to_the_python_of_nki():
    assert lint(fast).findings == ()

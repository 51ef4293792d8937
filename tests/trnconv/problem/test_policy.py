"""What a policy allows, what a range refuses, and what stays the same however frames are cut."""

import numpy as np
import pytest

from conv_arrays import normal_arrays, numpy_dtype
from fast_bounds import fast_bound
from nkisim.machine import TRN2
from repetition import few
from tolerance import assert_within
from trnconv.algorithms.direct.plan import DirectPlan
from trnconv.algorithms.winograd.error import (
    RangeError,
    error_bound,
    expected_error,
    expected_ratio,
    range_limit,
    relative_rounding,
)
from trnconv.algorithms.winograd.plan import WinogradPlan
from trnconv.algorithms.winograd.rules import unsupported_policy, unsupported_shape, violations
from trnconv.algorithms.winograd.transforms import F23, F43, OUTER, TRANSFORMS, nested
from trnconv.errors import PlanError, TrnconvError
from trnconv.geometry import conv_shape
from trnconv.planner.best import choose
from trnconv.planner.explain import explain_algorithms
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.policy import Policy
from trnconv.reference import forward
from trnconv.runtime import LaunchOptions, convolve_pieces
from trnconv.runtime.ranges import Ranges, calibrate

NESTED = {both.name: both for both in (nested(OUTER, inner) for inner in TRANSFORMS.values())}
EVERY = TRANSFORMS | NESTED
WIDE = conv_shape((1, 128, 6, 12, 160), (128, 128, 3, 3, 3), padding=(0, 1, 1))


def chosen(shape, **asked):
    """Between a direct plan and Winograd ones, however small the convolution; and the direct."""
    choice = choose(ConvProblem(shape, TRN2, algorithms=("direct", "winograd"), **asked))
    (direct,) = [offer for offer in choice.offers if offer.algorithm == "direct"]
    return choice, direct


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_the_matrices_compute_a_filter(transform):
    rng = np.random.default_rng(0)
    d, w = rng.integers(-9, 10, transform.products), rng.integers(-9, 10, 3)
    b, g, a = (
        np.array([[float(value) for value in row] for row in matrix])
        for matrix in (transform.b_t, transform.g, transform.a_t)
    )
    y = a @ ((g @ w) * (b @ d))
    assert y == pytest.approx(np.correlate(d, w, "valid"), abs=1e-9)


@pytest.mark.parametrize("inner", TRANSFORMS.values(), ids=TRANSFORMS)
def test_nested_matrices_compute_a_filter_of_two_axes(inner):
    both = nested(OUTER, inner)
    rng = np.random.default_rng(2)
    d = rng.integers(-9, 10, (OUTER.products, inner.products))
    w = rng.integers(-9, 10, (3, 3))
    b, g, a = (
        np.array([[float(value) for value in row] for row in matrix])
        for matrix in (both.b_t, both.g, both.a_t)
    )
    y = a @ ((g @ w.ravel()) * (b @ d.ravel()))
    expected = [
        (d[row : row + 3, column : column + 3] * w).sum()
        for row in range(OUTER.outputs)
        for column in range(inner.outputs)
    ]
    assert y == pytest.approx(np.array(expected), abs=1e-9)


@pytest.mark.parametrize("transform", EVERY.values(), ids=EVERY)
def test_the_steps_compute_the_input_transform(transform):
    rng = np.random.default_rng(1)
    n = transform.products
    values = dict(enumerate(rng.integers(-9, 10, n).astype(float)))
    d = np.array([values[at] for at in range(n)])
    for step in transform.steps:
        values[step.dst] = step.scale * values[step.a] + values[step.b]
    b = np.array([[float(value) for value in row] for row in transform.b_t])
    assert np.array_equal([values[n + at] for at in range(n)], b @ d)


def test_limits_of_the_policies():
    assert 1.0 < expected_ratio(F23, "bfloat16") < 1.05 < expected_ratio(F43, "bfloat16") < 1.2
    assert unsupported_policy(F23, "bfloat16", Policy("bf16")) == ""
    assert "allows 1.05x" in unsupported_policy(F43, "bfloat16", Policy("bf16"))
    assert unsupported_policy(F43, "bfloat16", Policy("fast")) == ""
    assert "policy is direct" in unsupported_policy(F23, "bfloat16", Policy("direct"))
    assert "allows 1.2x" in unsupported_policy(F23, "float32", Policy("fast"))
    assert unsupported_policy(F23, "float32", Policy("half")) == ""
    twice, wide = (nested(OUTER, inner) for inner in (F23, F43))
    assert unsupported_policy(twice, "bfloat16", Policy("bf16")) == ""
    assert "half is for F(2,3)" in unsupported_policy(twice, "float32", Policy("half"))
    assert "allows 1.2x" in unsupported_policy(wide, "bfloat16", Policy("fast"))
    assert unsupported_policy(wide, "bfloat16", Policy("fastest")) == ""
    with pytest.raises(PlanError, match="one of direct, bf16, fast, fastest, half"):
        Policy("exact")


def test_ranges_of_the_transforms():
    assert range_limit(F23) == 32752
    assert range_limit(F43) == pytest.approx(6550.4)
    assert "fp16 transforms take 6550" in unsupported_policy(F43, "bfloat16", Policy("fast", 7e3))
    assert unsupported_policy(F23, "bfloat16", Policy("fast", 7e3)) == ""
    assert "take 32752" in unsupported_policy(F23, "bfloat16", Policy("bf16", 33e3))


@pytest.mark.slow
def test_where_no_fast_program_is_short_enough_it_is_said():
    shape = conv_shape((1, 192, 6, 360, 640), (192, 192, 3, 3, 3), padding=(0, 1, 1))
    budget = 1_600
    found, direct = chosen(shape, budget=budget)
    assert found.taken == direct.plans[0]
    assert found.taken.cost.instructions <= budget
    assert (
        f"F(2,3), frames: no plan with at most {budget} static instructions"
        in explain_algorithms(found)
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_floor_is_what_rounding_normal_values_costs(dtype):
    values = np.random.default_rng(3).standard_normal(1 << 18)
    rounded = values.astype(numpy_dtype(dtype)).astype(np.float64)
    assert relative_rounding(dtype) == pytest.approx(
        np.sqrt(np.square(rounded - values).mean()), 0.02
    )


def test_the_default_takes_f23_and_fast_may_take_f43():
    default, direct = chosen(WIDE)
    assert isinstance(default.taken.plan, WinogradPlan)
    assert default.taken.plan.transform == "F(2,3)"
    assert default.taken.cost.total_ns < direct.best.cost.total_ns
    asked, _ = chosen(WIDE, policy=Policy("direct"))
    assert isinstance(asked.taken.plan, DirectPlan)
    text = explain_algorithms(default)
    assert "expected error 1.015x  F(2,3) along" in text
    assert "not possible  F(4,3): expected error" in text


def test_inputs_beyond_fp16_are_refused():
    shape = conv_shape((1, 16, 4, 6, 8), (16, 16, 3, 3, 3), padding=(0, 1, 1))
    x, w, bias = normal_arrays(shape, "bfloat16")
    x[0, 3, 1, 2, 5] = 4e4
    plan = WinogradPlan(shape, "trn2", "bfloat16", "F(2,3)", 0, 1, 6, 8, 4, 2, 1, body_blocks=2)
    with pytest.raises(RangeError, match=r"reaches 3\.994e\+04: F\(2,3\) in fp16 takes"):
        convolve_pieces([x], w, bias, padding=(0, 1, 1), launch=LaunchOptions(plans=(plan,)))


def test_calibration_records_and_refuses(tmp_path):
    ranges = calibrate({"up.0": [np.float32([1, -3]), np.float32([2])], "raw": [np.float32([2e4])]})
    assert ranges.largest == {"up.0": 3.0, "raw": 2e4}
    ranges.save(tmp_path / "ranges.json")
    assert Ranges.load(tmp_path / "ranges.json") == ranges
    known = ranges.policy("raw", Policy("bf16"))
    choice, _ = chosen(WIDE, policy=known)
    assert isinstance(choice.taken.plan, DirectPlan)
    assert any("|x| up to 4e+04" in offer.refused for offer in choice.offers)
    with pytest.raises(TrnconvError, match="was not sampled"):
        ranges.policy("mid", Policy())
    with pytest.raises(TrnconvError, match="finite data"):
        calibrate({"bad": [np.float32([np.inf])]})


def test_what_has_no_fast_algorithm_says_why():
    strided = conv_shape((1, 16, 5, 8, 8), (16, 16, 3, 3, 3), stride=2)
    assert "stride" in unsupported_shape(strided, 0)[0]
    image = conv_shape((1, 16, 1, 8, 8), (16, 16, 1, 3, 3))
    assert unsupported_shape(image, 0) == ["1 taps along frames: the transforms are for 3"]
    assert unsupported_shape(image, 1) == []
    around = conv_shape((1, 16, 5, 8, 8), (16, 16, 3, 3, 3), padding=1, padding_mode="circular")
    assert unsupported_shape(around, 0) == ["circular padding: the kernel has zeros and replicate"]
    doubled = conv_shape((1, 16, 5, 8, 8), (16, 16, 3, 3, 3), padding=1, upsample=(1, 2, 2))
    assert "read upsampled" in unsupported_shape(doubled, 0)[0]
    plan = WinogradPlan(WIDE, "trn2", "bfloat16", "F(2,3)", 0, 2, 4, 160, 5, 2, 1)
    assert "use a divisor" in violations(plan)[0]


def test_the_a_priori_bound_holds():
    shape = conv_shape((1, 24, 6, 6, 8), (20, 24, 3, 3, 3), padding=(0, 1, 1))
    x, w, _ = normal_arrays(shape, "bfloat16", bias=False)
    for transform, units, body in (("F(2,3)", 2, 1), ("F(4,3)", 1, 2)):
        plan = WinogradPlan(
            shape, "trn2", "bfloat16", transform, 0, units, 6, 8, 6, 2, 1, body_blocks=body
        )
        y = convolve_pieces([x], w, padding=(0, 1, 1), launch=LaunchOptions(plans=(plan,))).y
        y = y.astype(np.float64)
        exact = forward(x, w, None, shape)
        sums = np.abs(w.astype(np.float64)).sum(axis=(1, 2, 3, 4))
        most = error_bound(plan.transforms, float(np.abs(x).max()), float(sums.max()))
        error = np.abs(y - exact)
        assert error.max() <= most + 2.0**-8 * np.abs(exact).max()


@few(2)
@pytest.mark.parametrize(
    ("transform", "axis", "cut"),
    [
        *(("F(2,3)", axis, cut) for axis in (0, 1) for cut in (1, 2, 3)),
        *(("F(4,3)", 1, cut) for cut in (1, 2, 3)),
        ("F(4,3)", 0, 4),
    ],
)
def test_chunks_have_the_bits_of_the_whole(transform, axis, cut):
    """A sequence in two calls, the second with the last two frames of the first as a cache.

    An output of F(2,3) is computed from its own three inputs only, so a tile may be cut. One of
    F(4,3) meets all inputs of its tile, which cancel but for rounding: only whole tiles will do.
    """
    m = TRANSFORMS[transform].outputs
    x, w, bias = normal_arrays(
        conv_shape((1, 20, 7, 6, 9), (24, 20, 3, 3, 3), padding=((2, 0), 1, 1)), "bfloat16"
    )
    whole = _chunk([x], w, bias, (transform, axis, 0, 2))
    first = _chunk([x[:, :, :cut]], w, bias, (transform, axis, 0, 2))
    cached = [np.ascontiguousarray(x[:, :, max(0, cut - 2) : cut]), x[:, :, cut:]]
    second = _chunk(cached, w, bias, (transform, axis, cut % m, max(0, 2 - cut)))
    assert np.array_equal(np.concatenate([first, second], 2), whole)


def _chunk(pieces, w, bias, how):
    transform, axis, anchor, zeros = how
    pieces = [np.ascontiguousarray(piece) for piece in pieces]
    frames = tuple(piece.shape[2] for piece in pieces)
    padding = ((zeros, 0), 1, 1)
    shape = conv_shape((*pieces[0].shape[:2], sum(frames), 6, 9), w.shape, padding=padding)
    n = TRANSFORMS[transform].products
    plan = WinogradPlan(
        shape,
        "trn2",
        "bfloat16",
        transform,
        axis,
        units=1,
        rows=4,
        columns=9,
        x_slots=6 if axis else n,
        v_slots=6 if axis else 2,
        group=1,
        pieces=frames,
        anchor=0 if axis else anchor,
        body_blocks=2,
    )
    return convolve_pieces(pieces, w, bias, padding=padding, launch=LaunchOptions(plans=(plan,))).y


def test_a_reproducible_policy_takes_the_same_algorithm_for_any_number_of_frames():
    found = set()
    for frames in (1, 2, 3, 4):
        shape = conv_shape((1, 128, frames + 2, 64, 160), (128, 128, 3, 3, 3), padding=(0, 1, 1))
        choice, _ = chosen(shape, reproducible=True)
        assert isinstance(choice.taken.plan, WinogradPlan)
        found.add((choice.taken.plan.transform, choice.taken.plan.axis))
    assert found == {("F(2,3)", 1)}


def test_float32_data_through_products_of_fp16():
    """Named and opt-in: the bound is that of fp16 transforms, with nothing to round at the end."""
    shape = conv_shape((1, 128, 6, 12, 64), (128, 128, 3, 3, 3), padding=(0, 1, 1))
    x, w, bias = normal_arrays(shape, "float32")
    half = LaunchOptions(cores=1, policy=Policy("half", least_macs=0))
    done = convolve_pieces([x], w, bias, padding=(0, 1, 1), launch=half)
    ((plan,),) = done.plans
    assert isinstance(plan, WinogradPlan)
    assert done.y.dtype == np.float32
    exact = forward(x, w, bias, shape)
    assert_within(done.y, exact, fast_bound(x, w, bias, exact, plan))
    error = np.sqrt(np.square(done.y - exact).mean() / np.square(exact).mean())
    assert 0.5 < error / expected_error(F23, "float32") < 1.5
    every = LaunchOptions(cores=1, policy=Policy(least_macs=0))
    plain = convolve_pieces([x], w, bias, padding=(0, 1, 1), launch=every)
    assert isinstance(plain.plans[0][0], DirectPlan)

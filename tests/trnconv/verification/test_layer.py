"""Verification: right kernels pass, wrong ones do not, and bounds are those derived elsewhere."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import tolerance
from fast_bounds import fast_bound
from nkisim.machine import TRN2
from repetition import few
from trnconv.algorithms.winograd.plan import WinogradPlan
from trnconv.cases import BENCHMARK, EDGE, find
from trnconv.crop import crop, describe, effort, under_its_plan
from trnconv.geometry import conv_shape
from trnconv.planner.best import best_plan
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.policy import ALWAYS_DIRECT, Policy
from trnconv.reference import forward
from trnconv.verification import layer as verification
from trnconv.verification.bounds import half_steps, largest_errors
from trnconv.verification.layer import errors_of, random_data, verify_layer

EAGER = Policy("bf16", least_macs=0)


def problem(key, policy=ALWAYS_DIRECT):
    case = find(key)
    return ConvProblem(case.shape, TRN2, case.dtype, policy=policy)


@few(2)
@pytest.mark.parametrize(
    "key", ["image_2x8", "patches_4x8x8", "ragged_channels", "signal", "causal"]
)
def test_a_right_kernel_passes(key):
    verdict = verify_layer(problem(key))
    assert verdict.passed
    assert verdict.cut == ""
    assert verdict.errors.outside == 0
    assert 0 < verdict.errors.worst_of_bound <= 1
    if find(key).dtype == "float32":
        assert verdict.errors.over_floor is None
    else:
        # a direct convolution is the exact sum, rounded
        assert verdict.errors.over_floor == pytest.approx(1, abs=0.01)


def test_other_data_with_another_seed():
    one, two = (verify_layer(problem("image_2x8"), seed).errors.rms for seed in (0, 1))
    assert one != two


def test_a_fast_kernel_is_held_to_its_promise():
    shape = conv_shape((1, 96, 6, 6, 20), (96, 96, 3, 3, 3), padding=(0, 1, 1))
    verdict = verify_layer(ConvProblem(shape, TRN2, policy=EAGER))
    assert isinstance(verdict.plan.plan, WinogradPlan)
    assert verdict.passed
    assert verdict.most_over_floor == 1.05
    assert 1 < verdict.errors.over_floor < 1.05
    worse = replace(verdict, errors=replace(verdict.errors, over_floor=1.06))
    assert not worse.passed


def wrong(monkeypatch, change):
    right = verification.convolve_shape

    def convolve(*arguments):
        done = right(*arguments)
        y = done.y.copy()
        change(y)
        return replace(done, y=y)

    monkeypatch.setattr(verification, "convolve_shape", convolve)


def shift(y):
    y[...] = np.roll(y, 1, axis=4)


def spoil_one(y):
    y[0, 3, 0, 1, 2] += 1


def lose_one(y):
    y[0, 3, 0, 1, 2] = np.nan


@pytest.mark.parametrize(("change", "outside"), [(shift, 100), (spoil_one, 1), (lose_one, 1)])
def test_a_wrong_kernel_is_noticed(monkeypatch, change, outside):
    wrong(monkeypatch, change)
    verdict = verify_layer(problem("image_2x8"))
    assert not verdict.passed
    assert verdict.errors.outside >= outside


def test_a_wrong_fast_kernel_is_noticed(monkeypatch):
    """One product too few in every output: far within the bound, which is for the worst data."""
    shape = conv_shape((1, 96, 6, 6, 20), (96, 96, 3, 3, 3), padding=(0, 1, 1))
    right = verification.convolve_shape

    def convolve(pieces, w, *others):
        short = w.copy()
        short[:, 5, 1, 1, 1] = 0
        return right(pieces, short, *others)

    monkeypatch.setattr(verification, "convolve_shape", convolve)
    assert not verify_layer(ConvProblem(shape, TRN2, policy=EAGER)).passed


@pytest.mark.parametrize("key", ["causal", "padding_all_different", "c_in_33"])
def test_the_direct_bound_is_that_of_the_tests(key):
    case = find(key)
    x, w, bias = random_data(case.shape, case.dtype, 0)
    plan = best_plan(problem(key)).plan
    exact = forward(x, w, bias, case.shape)
    off = largest_errors(x, w, bias, case.shape, plan)
    mine = off + half_steps(np.abs(exact) + off, x.dtype)
    theirs = tolerance.forward_bound(x, w, bias, case.shape, exact)
    np.testing.assert_allclose(mine, theirs, rtol=1e-12)


def test_the_fast_bound_is_never_tighter_than_that_of_the_tests():
    shape = conv_shape((1, 96, 6, 6, 20), (96, 96, 3, 3, 3), padding=(0, 1, 1))
    plan = best_plan(ConvProblem(shape, TRN2, policy=EAGER)).plan
    x, w, bias = random_data(shape, "bfloat16", 0)
    exact = forward(x, w, bias, shape)
    off = largest_errors(x, w, bias, shape, plan)
    mine = off + half_steps(np.abs(exact) + off, x.dtype)
    assert (mine >= fast_bound(x, w, bias, exact, plan)).all()


def test_statistics_by_hand():
    exact = np.array([1.0, 2.0, -4.0, 3.0]).reshape(1, 1, 1, 1, 4)
    y = np.array([1.0, 2.0, -4.0, 3.5]).reshape(exact.shape).astype(ml_dtypes.bfloat16)
    errors = errors_of(y, exact, np.full(exact.shape, 0.25))
    assert errors.outputs == 4
    assert errors.outside == 1
    assert errors.largest == 0.125
    assert errors.rms == pytest.approx(0.25 / np.sqrt(30 / 4))
    assert errors.worst_of_bound == 2


@pytest.mark.parametrize("case", BENCHMARK + EDGE, ids=lambda case: case.name)
def test_every_layer_can_be_cut_and_keeps_channels_and_taps(case):
    small = crop(case.shape, 10**9)
    kept = ("c_in", "c_out", "kernel", "stride", "dilation", "pad_before", "pad_after", "groups")
    assert all(getattr(small, name) == getattr(case.shape, name) for name in kept)
    assert effort(small) <= effort(case.shape)
    assert (small == case.shape) == (describe(case.shape, small) == "")
    if effort(case.shape) <= 10**9:
        assert small == case.shape


def test_a_piece_under_the_plan_of_the_layer():
    shape = conv_shape((1, 96, 3, 60, 104), (96, 96, 3, 3, 3), padding=(0, 1, 1))
    asked = ConvProblem(shape, TRN2, policy=ALWAYS_DIRECT)
    taken = best_plan(asked)
    piece, same = under_its_plan(asked, taken, 2)
    assert piece.shape.out_size(1) == 2 * taken.plan.rows
    assert same.plan.row_span == (0, 2 * taken.plan.rows)
    whole = {"shape": shape, "reduced": taken.plan.reduced, "rows_of": taken.plan.rows_of}
    assert replace(same.plan, **whole) == taken.plan
    assert describe(shape, piece.shape) == f"{2 * taken.plan.rows} of 60 rows"


def test_a_large_layer_is_cut_and_that_is_said(monkeypatch):
    monkeypatch.setattr(verification, "MOST_EFFORT", 10**8)
    shape = conv_shape((1, 32, 3, 64, 96), (32, 32, 3, 3, 3), padding=(0, 1, 1))
    verdict = verify_layer(ConvProblem(shape, TRN2, policy=ALWAYS_DIRECT))
    assert verdict.passed
    assert "of 64 rows" in verdict.cut
    assert effort(verdict.shape) < effort(shape)

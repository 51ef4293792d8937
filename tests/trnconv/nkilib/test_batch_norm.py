"""Batch norms of nki-library's conv3d, by their definition in float64."""

import numpy as np
import pytest

from conv_arrays import integer_arrays, normal_arrays
from tolerance import forward_bound
from trnconv import nkilib
from trnconv.errors import ShapeError, UnsupportedError
from trnconv.geometry import ConvShape
from trnconv.nkilib import BatchNormMode
from trnconv.reference import forward

pytestmark = pytest.mark.integrations
SHAPE = ConvShape(2, 6, 5, (2, 4, 6), (1, 3, 3), pad_before=(0, 1, 1), pad_after=(0, 1, 1))
PADDING = (0, 0, 1, 1, 1, 1)
EPS = 1e-3
STEP = 2.0**-24  # half a step of float32


def layout(w):
    return np.ascontiguousarray(w.transpose(2, 3, 4, 1, 0))


def norm_arrays():
    rng = np.random.default_rng(3)
    gamma, beta, mean = rng.standard_normal((3, 5)).astype(np.float32)
    return gamma, beta, mean, rng.uniform(0.5, 2.0, 5).astype(np.float32)


def asked(**more):
    gamma, beta, mean, variance = norm_arrays()
    return {
        "gamma": gamma,
        "beta": beta,
        "running_means": mean,
        "running_variances": variance.reshape(5, 1),
        "batch_norm_eps": EPS,
        "padding": PADDING,
        **more,
    }


def upright(values):
    return np.asarray(values, np.float64).reshape(1, -1, 1, 1, 1)


def normed(sums, mean, variance):
    gamma, beta = norm_arrays()[:2]
    scale = gamma / np.sqrt(np.asarray(variance, np.float64) + EPS)
    return (sums - upright(mean)) * upright(scale) + upright(beta), np.abs(upright(scale))


def test_eval_is_the_norm_by_running_statistics():
    x, w, bias = normal_arrays(SHAPE, "float32")
    y = nkilib.conv3d(x, layout(w), bias, batch_norm_mode=BatchNormMode.EVAL, **asked())
    sums = forward(x, w, bias, SHAPE)
    _, beta, mean, variance = norm_arrays()
    expected, scale = normed(sums, mean, variance)
    magnitude = forward(np.abs(x), np.abs(w), np.abs(bias), SHAPE) + np.abs(upright(mean))
    # The scale carries three roundings, the folded filter and bias two more each, beta one.
    room = scale * (forward_bound(x, w, bias, SHAPE, sums) + 8 * STEP * magnitude)
    assert (np.abs(y - expected) <= room + 4 * STEP * np.abs(upright(beta)) + 2.0**-23).all()
    assert y.dtype == np.float32


def test_training_returns_what_the_library_returns():
    """Sums of small integers are exact, so the statistics are those of the exact sums."""
    x, w, bias = integer_arrays(SHAPE, "float32")
    options = asked(batch_norm_mode=BatchNormMode.TRAINING, momentum=0.25, output_pre_norm=True)
    y, sums, means, variances, new_means, new_variances = nkilib.conv3d(
        x, layout(w), bias, **options
    )
    exact = forward(x, w, bias, SHAPE)
    assert (sums == exact).all()
    mean, variance = exact.mean(axis=(0, 2, 3, 4)), exact.var(axis=(0, 2, 3, 4))
    for found, expected in ((means, mean), (variances, variance)):
        assert found.dtype == np.float32
        assert found.shape == (5,)
        assert (np.abs(found - expected) <= STEP * np.abs(expected)).all()
    expected, scale = normed(exact, mean, variance)
    room = 8 * STEP * (scale * (np.abs(exact) + np.abs(upright(mean))) + np.abs(expected) + 1)
    assert (np.abs(y - expected) <= room).all()
    _, _, old_mean, old_variance = norm_arrays()
    count = sums.size // 5
    running = variance * count / (count - 1)
    for found, old, new in (
        (new_means, old_mean, mean),
        (new_variances, old_variance, running),
    ):
        assert found.shape == (5, 1)
        expected = 0.75 * old.astype(np.float64) + 0.25 * new
        room = 8 * STEP * (np.abs(old) + np.abs(new))
        assert (np.abs(found[:, 0] - expected) <= room).all()
    assert len(nkilib.conv3d(x, layout(w), bias, **options | {"output_pre_norm": False})) == 5


def test_the_activation_and_the_residual_follow_the_norm():
    x, w, _ = integer_arrays(SHAPE, "float32", bias=False)
    residual = np.random.default_rng(5).standard_normal((2, 5, 2, 4, 6)).astype(np.float32)
    options = asked(batch_norm_mode=BatchNormMode.TRAINING)
    plain = nkilib.conv3d(x, layout(w), **options)[0].astype(np.float64)
    silu = nkilib.ActFnType.SiLU
    for place in (nkilib.ResidualAddLoc.PRE_ACT, nkilib.ResidualAddLoc.POST_ACT):
        y = nkilib.conv3d(
            x,
            layout(w),
            activation_fn=silu,
            residual_add_loc=place,
            residuals_in=residual,
            **options,
        )[0]
        inside = plain + residual if place is nkilib.ResidualAddLoc.PRE_ACT else plain
        expected = inside / (1 + np.exp(-inside))
        if place is nkilib.ResidualAddLoc.POST_ACT:
            expected = expected + residual
        assert (np.abs(y - expected) <= 2.0**-20 * (1 + np.abs(inside))).all()


def test_what_is_missing_or_contradicts_is_refused():
    x, w, _ = normal_arrays(SHAPE, "float32")
    with pytest.raises(ShapeError, match="EVAL without gamma, running_variances"):
        nkilib.conv3d(
            x,
            layout(w),
            batch_norm_mode=BatchNormMode.EVAL,
            **asked(gamma=None, running_variances=None),
        )
    with pytest.raises(UnsupportedError, match=r"output_pre_norm=True in BatchNormMode\.EVAL"):
        nkilib.conv3d(
            x, layout(w), batch_norm_mode=BatchNormMode.EVAL, **asked(output_pre_norm=True)
        )
    with pytest.raises(ShapeError, match=r"gamma \(4,\): \[5\] or \[5, 1\]"):
        nkilib.conv3d(
            x,
            layout(w),
            batch_norm_mode=BatchNormMode.EVAL,
            **asked(gamma=np.ones(4, np.float32)),
        )

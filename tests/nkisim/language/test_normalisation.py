"""nl.softmax, nl.rms_norm and nl.where against NumPy."""

import ml_dtypes
import numpy as np
import pytest

import nkisim.language as nl
from nkisim.errors import NkiValidationError
from tile_function import on_tiles

RNG = np.random.default_rng(13)
EPS = np.finfo(np.float32).eps
X = (3 * RNG.standard_normal((64, 6, 8))).astype(np.float32)


@pytest.mark.parametrize("axis", [-1, 2, (1, 2)])
def test_softmax(axis):
    result = on_tiles(lambda x: nl.softmax(x, axis=axis), X)
    wide = X.astype(np.float64)
    powers = np.exp(wide - wide.max(axis, keepdims=True))
    reference = powers / powers.sum(axis, keepdims=True)
    # Results are at most 1; a difference of magnitude 32 at most is rounded before exp, and 48
    # terms are added at most.
    np.testing.assert_allclose(result, reference, rtol=0, atol=(32 + 48) * EPS)


def test_softmax_of_large_numbers_does_not_overflow():
    result = on_tiles(nl.softmax, np.array([[1e4, 1e4 - 200, 1e4]], np.float32))
    np.testing.assert_allclose(result, [[0.5, 0, 0.5]], rtol=0, atol=2 * EPS)


@pytest.mark.parametrize("machine", ["trn1", "trn2", "trn3"])
def test_rms_norm(machine):
    x, w = X.reshape(64, 48), RNG.standard_normal((64, 48)).astype(np.float32)
    function = lambda tile, weight: nl.rms_norm(tile, weight, axis=1, n=48)  # noqa: E731
    result = on_tiles(function, x, w, machine=machine)
    wide = x.astype(np.float64)
    reference = wide / np.sqrt((wide**2).sum(1, keepdims=True) / 48 + 1e-6) * w
    # A sum of 48 positive terms, and a root, two products: relative errors add.
    np.testing.assert_allclose(result, reference, rtol=(48 / 2 + 6) * EPS)


def test_epsilon_keeps_rows_of_zeros_finite():
    zeros, w = np.zeros((4, 3), np.float32), np.ones((4, 3), np.float32)
    result = on_tiles(lambda x, weight: nl.rms_norm(x, weight, axis=1, n=3), zeros, w)
    np.testing.assert_array_equal(result, zeros)
    ones = np.ones((4, 3), np.float32)
    result = on_tiles(lambda x, weight: nl.rms_norm(x, weight, 1, 3, epsilon=3.0), ones, w)
    np.testing.assert_allclose(result, 0.5, rtol=4 * EPS)


def test_rms_norm_rounds_between_its_instructions_if_asked():
    x, w = X.reshape(64, 48), np.ones((64, 48), np.float32)

    def coarse(tile, weight):
        return nl.rms_norm(tile, weight, axis=1, n=48, compute_dtype=nl.bfloat16)

    fine = on_tiles(lambda tile, weight: nl.rms_norm(tile, weight, axis=1, n=48), x, w)
    result = on_tiles(coarse, x, w)
    assert (result == result.astype(ml_dtypes.bfloat16).astype(np.float32)).all()
    assert not np.array_equal(result, fine)


def test_where_is_exact():
    condition = RNG.integers(0, 2, (64, 48)).astype(np.float32)
    x, y = X.reshape(64, 48), -X.reshape(64, 48)
    x[0], y[1] = np.inf, np.nan  # cond * x + (1 - cond) * y would spoil both
    result = on_tiles(nl.where, condition, x, y)
    np.testing.assert_array_equal(result, np.where(condition != 0, x, y))


def test_where_casts_to_the_dtype_asked_for():
    condition = np.array([[1, 0, 1]], np.float32)
    x, y = np.array([[1.25, 2, 3]], np.float32), np.array([[7, 8, 9]], np.int32)
    result = on_tiles(lambda c, a, b: nl.where(c, a, b, dtype=nl.bfloat16), condition, x, y)
    assert result.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(result.astype(np.float32), [[1.25, 8, 3]])


def test_where_of_unequal_shapes_is_refused():
    with pytest.raises(NkiValidationError, match="elements"):
        on_tiles(lambda c: nl.where(c, c[:, :2], c), np.ones((4, 3), np.float32))

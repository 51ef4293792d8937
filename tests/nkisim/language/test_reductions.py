"""Reductions of nki.language against NumPy."""

import ml_dtypes
import numpy as np
import pytest

import nkisim.language as nl
from nkisim.errors import NkiValidationError
from tile_function import on_tiles

RNG = np.random.default_rng(11)
EPS = np.finfo(np.float32).eps
WHOLE = RNG.integers(-3, 4, (32, 3, 4, 5)).astype(np.float32)  # sums are exact
AXES = [3, -1, (2, 3), (1, 2, 3), [2, 3]]
EXACT = {"sum": np.sum, "max": np.max, "min": np.min}


def tuple_of(axis):
    return tuple(axis) if isinstance(axis, (list, tuple)) else axis


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("keepdims", [True, False])
def test_sum_max_and_min_over_trailing_axes(name, axis, keepdims):
    function, reference = getattr(nl, name), EXACT[name]
    result = on_tiles(lambda x: function(x, axis, keepdims=keepdims), WHOLE)
    wanted = reference(WHOLE, axis=tuple_of(axis), keepdims=keepdims)
    if wanted.ndim == 1:
        wanted = wanted[:, None]  # a tile has a free dimension
    np.testing.assert_array_equal(result, wanted)


def test_prod_and_all():
    x = RNG.choice([-2.0, -1.0, 0.5, 1.0], (32, 7)).astype(np.float32)
    result = on_tiles(lambda tile: nl.prod(tile, 1), x)
    np.testing.assert_array_equal(result, np.prod(x, axis=1, keepdims=True))
    flags = RNG.integers(0, 8, (32, 9)).astype(np.float32)
    result = on_tiles(lambda tile: nl.all(tile, axis=1, dtype=nl.uint8), flags)
    np.testing.assert_array_equal(result, np.all(flags, axis=1, keepdims=True))
    assert 0 < result.sum() < 32


def test_max_and_min_are_operators_too():
    x = WHOLE.reshape(32, 60)
    np.testing.assert_array_equal(
        on_tiles(lambda tile: nl.max(tile, axis=1), x), x.max(axis=1, keepdims=True)
    )
    assert nl.max.name == "max"


@pytest.mark.parametrize("axis", [3, (2, 3), (1, 2, 3)])
def test_mean_and_variance_in_float32(axis):
    x = RNG.standard_normal((32, 3, 4, 5)).astype(np.float32)
    axes = tuple_of(axis)
    count = np.prod([x.shape[each] for each in np.atleast_1d(axes)])
    wide = x.astype(np.float64)
    result = on_tiles(lambda tile: nl.mean(tile, axis, keepdims=True), x)
    # A sum of `count` terms of magnitude 4 at most, each addition and the scaling rounded once.
    bound = 4 * (count + 1) * EPS
    np.testing.assert_allclose(result, wide.mean(axes, keepdims=True), rtol=0, atol=bound)
    result = on_tiles(lambda tile: nl.var(tile, axis), x)
    # The mean squared distance: terms of magnitude 64 at most, from distances with that error.
    bound = 64 * (count + 3) * EPS
    np.testing.assert_allclose(result, wide.var(axes, keepdims=True), rtol=0, atol=bound)


def test_a_mean_of_narrow_floats_sums_in_float32():
    x = np.full((4, 257), 1.0, ml_dtypes.bfloat16)  # bf16 has no 257
    result = on_tiles(lambda tile: nl.mean(tile, 1), x)
    assert result.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(result.astype(np.float32), np.ones((4, 1)))


@pytest.mark.parametrize("axis", [0, 1, (1, 3)])
def test_axes_that_are_not_the_last_ones_are_refused(axis):
    with pytest.raises(NkiValidationError, match="tensor_reduce") as caught:
        on_tiles(lambda x: nl.sum(x, axis), WHOLE)
    assert caught.value.remedy

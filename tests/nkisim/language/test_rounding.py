"""nl.floor, nl.ceil and nl.trunc against NumPy."""

import ml_dtypes
import numpy as np
import pytest

import nkisim.language as nl
from tile_function import on_tiles

EDGES = [0.0, 0.5, 1.0, 1.5, 2.5, 3.2, 3.7, 0.49999997, 8388607.5, 8388608.0, 16777217.0]
HUGE = [2.0**31, 3e9, 1e20, np.inf]
FUNCTIONS = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc}


def edge_cases(dtype):
    values = np.array([*EDGES, *HUGE], np.float32)
    spread = np.random.default_rng(3).standard_normal(34).astype(np.float32) * 100
    row = np.concatenate([values, -values, spread]).astype(dtype)
    return np.tile(row, (4, 1))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("machine", ["trn1", "trn2", "trn3"])
def test_edges_and_large_numbers(name, dtype, machine):
    x = edge_cases(np.float32)
    with np.errstate(over="ignore"):  # the largest are infinite in float16
        x = x.astype(dtype)
    result = on_tiles(getattr(nl, name), x, machine=machine)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, FUNCTIONS[name](x.astype(np.float32)).astype(dtype))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nan_stays_nan_and_integers_stay_as_they_are(name):
    result = on_tiles(getattr(nl, name), np.full((4, 2), np.nan, np.float32))
    assert np.isnan(result).all()
    whole = np.array([[-3, 0, 2**24 + 1]], np.int32)
    np.testing.assert_array_equal(on_tiles(getattr(nl, name), whole), whole)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_dtype_of_the_result(name):
    x = np.array([[1.5, -1.5, 2.25]], np.float32)
    result = on_tiles(lambda tile: getattr(nl, name)(tile, dtype=nl.int8), x)
    np.testing.assert_array_equal(result, FUNCTIONS[name](x).astype(np.int8))
    assert result.dtype == np.int8

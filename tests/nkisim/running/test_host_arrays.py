"""Arrays of other libraries, as JAX's: read through NumPy, given back by their own namespace."""

import ml_dtypes
import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim import NkiValidationError, compare, run, simulate


class Namespace:
    """What `__array_namespace__` returns."""

    @staticmethod
    def asarray(values):
        return ForeignArray(values)


class ForeignArray:
    """An array that cannot be written, and is no NumPy array: all that is used of JAX's."""

    def __init__(self, values):
        self._values = np.array(values)

    shape = property(lambda self: self._values.shape)
    dtype = property(lambda self: self._values.dtype)

    def __array__(self, dtype=None, copy=None):
        return np.array(self._values, dtype)

    def __array_namespace__(self, *, api_version=None):
        return Namespace


def foreign_arrays():
    """A stand-in, and JAX's own if it is installed."""
    yield pytest.param(ForeignArray, id="stand-in")
    try:
        import jax.numpy as jnp
    except ImportError:
        return
    yield pytest.param(jnp.asarray, id="jax")


def doubled(x):
    tile = nl.ndarray(x.shape, x.dtype)
    nisa.dma_copy(tile, x)
    nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


@pytest.mark.parametrize("made", list(foreign_arrays()))
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int32])
def test_arrays_of_other_libraries_go_in_and_come_out(made, dtype):
    x = np.arange(64).reshape(8, 8).astype(dtype)
    given = made(x)
    got = simulate(doubled, machine="trn2")(given)
    assert type(got) is type(given)
    assert got.dtype == x.dtype
    assert np.array_equal(np.asarray(got).astype(np.float64), 2.0 * np.arange(64).reshape(8, 8))
    assert np.array_equal(np.asarray(given), x)
    assert compare(got, made(2.0 * x.astype(np.float32))).ok


@pytest.mark.parametrize("made", list(foreign_arrays()))
def test_an_argument_that_cannot_be_written_is_refused(made):
    def kernel(x):
        tile = nl.ndarray(x.shape, x.dtype)
        nisa.dma_copy(tile, x)
        nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
        nisa.dma_copy(x, tile)
        return x

    with pytest.raises(NkiValidationError, match="cannot be written") as refusal:
        run(kernel, made(np.ones((8, 8), np.float32)), machine="trn2")
    assert "pass a NumPy array" in refusal.value.remedy


@pytest.mark.parametrize("made", list(foreign_arrays()))
def test_shapes_are_enough_for_a_run_without_values(made):
    ran = run(doubled, made(np.ones((8, 8), np.float32)), machine="trn2", values=False)
    assert ran.output_shapes == (((8, 8), "float32"),)

"""summation="fixed": an element of a product has the same bits whatever stands beside it."""

import ml_dtypes
import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from kernel_steps import give, load, specs
from nkisim.errors import NkiValidationError, UnsupportedError
from nkisim.isa import product as products
from nkisim.machine import PARTITIONS, TRN2
from nkisim.running.kernel import run

BANK = TRN2.psum_bank_fp32_elems
TYPES = (np.float32, ml_dtypes.bfloat16, np.float16)


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def normal(rng, *shape, dtype=np.float32):
    return rng.standard_normal(shape, np.float32).astype(dtype)


def multiply(a, b):
    stationary, moving = load(a), load(b)
    psum = nl.ndarray((a.shape[1], b.shape[1]), nl.float32, nl.psum)
    nisa.nc_matmul(psum, stationary, moving)
    return give(psum)


def fixed(a, b):
    return run(multiply, a, b, machine="trn2", summation="fixed").outputs


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("depth", [1, 7, 81, 96, PARTITIONS])
def test_a_column_has_the_same_bits_at_every_place(rng, depth, dtype):
    a, column = normal(rng, depth, 96, dtype=dtype), normal(rng, depth, 1, dtype=dtype)
    alone = fixed(a, column)
    everywhere = fixed(a, np.repeat(column, BANK, axis=1))
    np.testing.assert_array_equal(everywhere, np.repeat(alone, BANK, axis=1))


@pytest.mark.parametrize("dtype", TYPES)
def test_a_column_has_the_same_bits_among_any_neighbours(rng, dtype):
    a, column = normal(rng, 100, PARTITIONS, dtype=dtype), normal(rng, 100, 1, dtype=dtype)
    alone = fixed(a, column)
    for columns in (2, 3, 31, 32, 33, 100, 257, BANK):
        place = int(rng.integers(columns))
        b = normal(rng, 100, columns, dtype=dtype)
        b[:, place] = column[:, 0]
        np.testing.assert_array_equal(fixed(a, b)[:, place], alone[:, 0])


@pytest.mark.parametrize("dtype", TYPES)
def test_a_row_has_the_same_bits_among_any_neighbours(rng, dtype):
    filters, b = normal(rng, 90, 1, dtype=dtype), normal(rng, 90, 70, dtype=dtype)
    alone = fixed(filters, b)
    for rows in (2, 3, 33, 64, 127, PARTITIONS):
        place = int(rng.integers(rows))
        a = normal(rng, 90, rows, dtype=dtype)
        a[:, place] = filters[:, 0]
        np.testing.assert_array_equal(fixed(a, b)[place], alone[0])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("zeros_in", ["both", "stationary", "moving"])
def test_lines_of_zeros_change_nothing(rng, zeros_in, dtype):
    """Between other lines it is all the same which operand has them; at the end they may go."""
    a, b = normal(rng, 64, 50, dtype=dtype), normal(rng, 64, 60, dtype=dtype)
    gone = [0, 3, 17, 18, 19, 40, *range(50, 64)]
    bare = [np.where(np.isin(np.arange(64), gone)[:, None], 0, it).astype(dtype) for it in (a, b)]
    left = a if zeros_in == "moving" else bare[0]
    right = b if zeros_in == "stationary" else bare[1]
    np.testing.assert_array_equal(fixed(left, right), fixed(bare[0][:50], bare[1][:50]))


def test_the_sum_is_that_of_the_products(rng):
    a = rng.integers(-8, 9, (PARTITIONS, 96)).astype(np.float32)
    b = rng.integers(-8, 9, (PARTITIONS, 300)).astype(np.float32)
    np.testing.assert_array_equal(fixed(a, b), a.T.astype(np.float64) @ b)


def test_two_rows_on_every_partition_are_summed_one_after_the_other(rng):
    """double_row has twice the depth of the array."""
    a = rng.integers(-4, 5, (PARTITIONS, 2, 64)).astype(ml_dtypes.float8_e4m3)
    b = rng.integers(-4, 5, (PARTITIONS, 2, 90)).astype(ml_dtypes.float8_e4m3)

    def kernel(x, y):
        stationary, moving = load(x), load(y)
        psum = nl.ndarray((64, 90), nl.float32, nl.psum)
        mode = nisa.matmul_perf_mode.double_row
        nisa.nc_matmul(psum, stationary, moving, perf_mode=mode)
        return give(psum)

    results = [run(kernel, a, b, machine="trn2", summation=it).outputs for it in ("fast", "fixed")]
    np.testing.assert_array_equal(results[1], results[0])


def test_an_infinity_stays_in_its_column(rng):
    a, b = normal(rng, 40, 20), normal(rng, 40, 50)
    b[3, 7] = np.inf
    columns = np.isfinite(fixed(a, b)).all(axis=0)
    assert list(np.flatnonzero(~columns)) == [7]


def test_the_trace_is_the_same(rng):
    a, b = normal(rng, 40, 20), normal(rng, 40, 50)
    traces = [run(multiply, a, b, machine="trn2", summation=it).trace for it in ("fast", "fixed")]
    assert traces[0].key() == traces[1].key()
    shapes = run(multiply, *specs(a, b), machine="trn2", values=False, summation="fixed")
    assert shapes.trace.key() == traces[1].key()


def test_an_unknown_order_is_refused(rng):
    with pytest.raises(NkiValidationError, match=r"summation='exact'(.|\n)*fast, fixed"):
        run(multiply, normal(rng, 4, 4), normal(rng, 4, 4), summation="exact")


def test_a_blas_that_looks_at_places_is_refused(rng, monkeypatch):
    whole = products._panel_products

    def by_place(stationary, moving):
        found = whole(stationary, moving)
        found[..., -1] = np.nextafter(found[..., -1], np.float32(0))
        return found

    monkeypatch.setattr(products, "_panel_products", by_place)
    products._require_one_order.cache_clear()
    with pytest.raises(UnsupportedError, match="sums equal columns of one product"):
        fixed(normal(rng, 4, 4), normal(rng, 4, 4))
    products._require_one_order.cache_clear()

"""Loads, stores, copies, transposes, products, broadcasts and prints of nki.language."""

import ml_dtypes
import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.errors import NkiValidationError, UnsupportedError
from nkisim.running.host_arrays import Spec
from nkisim.running.kernel import run
from tile_function import instructions, on_tiles

RNG = np.random.default_rng(17)
X = RNG.standard_normal((96, 40)).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int32])
def test_load_and_store_return_what_went_in(dtype):
    x = (10 * X).astype(dtype)
    result = on_tiles(lambda tile: tile, x)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, x)


def test_load_casts_and_a_vector_becomes_a_column():
    def kernel(x):
        tile = nl.load(x, dtype=nl.bfloat16)
        assert tile.shape == (40, 1)
        assert tile.buffer == nl.sbuf
        out = nl.ndarray((40,), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    result = run(kernel, X[0]).outputs
    np.testing.assert_array_equal(result, X[0].astype(ml_dtypes.bfloat16).astype(np.float32))


def test_a_loaded_tile_can_be_assigned_to_a_part_of_another():
    def kernel(x):
        tile = nl.zeros((96, 80), dtype=nl.float32)
        tile[:, 20:60] = nl.load(x)
        out = nl.ndarray((96, 80), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    np.testing.assert_array_equal(run(kernel, X).outputs, np.pad(X, ((0, 0), (20, 20))))


def test_copy_brings_psum_to_sbuf_by_the_vector_engine():
    def through_psum(x):
        tile = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.psum)
        nisa.tensor_copy(tile, x)
        result = nl.copy(tile, dtype=nl.bfloat16)
        assert result.buffer == nl.sbuf
        return result

    np.testing.assert_array_equal(on_tiles(through_psum, X), X.astype(ml_dtypes.bfloat16))
    assert instructions(nl.copy, X) == [("vector", "tensor_copy")]


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("machine", ["trn1", "trn2", "trn3"])
def test_transpose_lands_in_psum(dtype, machine):
    x = X.astype(dtype)

    def transposed(tile):
        result = nl.transpose(tile)
        assert nl.is_psum(result.buffer)
        return result

    result = on_tiles(transposed, x, machine=machine)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, x.T)


def test_transpose_in_another_dtype():
    result = on_tiles(lambda tile: nl.transpose(tile, dtype=nl.bfloat16), X)
    np.testing.assert_array_equal(result, X.T.astype(ml_dtypes.bfloat16))


def test_load_transpose2d():
    def kernel(x):
        tile = nl.load_transpose2d(x)
        out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    np.testing.assert_array_equal(run(kernel, X).outputs, X.T)


def test_matmul_contracts_over_partitions():
    x = RNG.integers(-4, 5, (96, 40)).astype(np.float32)
    y = RNG.integers(-4, 5, (96, 200)).astype(np.float32)
    result = on_tiles(lambda a, b: nl.matmul(a, b, transpose_x=True), x, y)
    np.testing.assert_array_equal(result, x.T @ y)


def test_matmul_of_an_x_that_is_not_transposed_is_refused_with_the_way_around_it():
    x = RNG.integers(-4, 5, (40, 96)).astype(np.float32)
    y = RNG.integers(-4, 5, (96, 64)).astype(np.float32)
    with pytest.raises(UnsupportedError, match=r"nl\.matmul: transpose_x=False") as caught:
        on_tiles(nl.matmul, x, y)
    assert "nl.copy(nl.transpose(x))" in caught.value.remedy
    way_around = lambda a, b: nl.matmul(nl.copy(nl.transpose(a)), b, transpose_x=True)  # noqa: E731
    np.testing.assert_array_equal(on_tiles(way_around, x, y), x @ y)


def test_expand_dims_is_a_view():
    def kernel(x):
        tile = nl.load(x)
        shapes = [nl.expand_dims(tile, axis).shape for axis in (1, 2, -1)]
        assert shapes == [(96, 1, 40), (96, 40, 1), (96, 40, 1)]
        assert nl.expand_dims(tile, 1).storage is tile.storage

    run(kernel, X)


@pytest.mark.parametrize("partitions", [1, 20, 32, 100, 128])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int32])
def test_one_partition_is_repeated_bit_for_bit(partitions, dtype):
    row = (100 * X[:1]).astype(dtype)
    result = on_tiles(lambda tile: nl.broadcast_to(tile, (partitions, 40)), row)
    np.testing.assert_array_equal(result, np.broadcast_to(row, (partitions, 40)))


def test_free_dimensions_are_repeated_by_one_copy():
    x = X.reshape(96, 1, 40)

    def grown(tile):
        return nl.broadcast_to(tile, (96, 3, 40), dtype=nl.float16)

    reference = np.broadcast_to(x, (96, 3, 40)).astype(np.float16)
    np.testing.assert_array_equal(on_tiles(grown, x), reference)
    assert [op for _, op in instructions(grown, x)] == ["tensor_copy"]


def test_broadcast_to_the_same_shape_is_the_tile_itself():
    def kernel(x):
        tile = nl.load(x)
        assert nl.broadcast_to(tile, (96, 40)) is tile
        assert nl.broadcast_to(tile, [96, 40], dtype=nl.float32) is tile

    run(kernel, X)


def test_gather_flattened_takes_elements_of_its_own_partition():
    indices = RNG.integers(0, 40, (96, 24)).astype(np.uint32)
    result = on_tiles(nl.gather_flattened, X, indices)
    np.testing.assert_array_equal(result, np.take_along_axis(X, indices.astype(int), axis=1))


REFUSALS = [
    (nl.load, NkiValidationError, r"nl\.load: src lives in sbuf"),
    (lambda x: nl.store(x, x), NkiValidationError, r"nl\.store: dst lives in sbuf"),
    (lambda _: nl.copy(1.0), NkiValidationError, r"nl\.copy: x=1\.0"),
    (lambda x: nl.transpose(x.reshape((96, 4, 10))), NkiValidationError, "2 dimensions"),
    (lambda x: nl.broadcast_to(x, (96, 80)), NkiValidationError, "grow from 1"),
    (lambda x: nl.broadcast_to(x, (96, 40, 2)), NkiValidationError, "the same rank"),
    (lambda x: nl.gather_flattened(x, x, axis=1), UnsupportedError, "axis=1"),
    (lambda x: nl.device_print(3, x), NkiValidationError, "a string known at compile time"),
    (lambda x: nl.device_print("x", nl.transpose(x)), NkiValidationError, "lives in psum"),
]


@pytest.mark.parametrize(("function", "error", "message"), REFUSALS)
def test_refusals(function, error, message):
    with pytest.raises(error, match=message) as caught:
        on_tiles(function, X)
    assert caught.value.remedy


def test_device_print_shows_values_or_in_a_shape_only_run_the_shape(capsys):
    def kernel(x):
        nl.device_print("tile", nl.load(x))

    run(kernel, np.array([[1.5, -2.0]], np.float32))
    assert capsys.readouterr().out == "tile [[ 1.5 -2. ]]\n"
    run(kernel, Spec((1, 2), "float32"), values=False)
    assert capsys.readouterr().out == "tile float32 (1, 2)\n"


def test_regions_are_told_apart():
    regions = (nl.sbuf, nl.psum, nl.private_hbm, nl.shared_hbm)
    assert [nl.is_hbm(each) for each in regions] == [False, False, True, True]
    assert [nl.is_on_chip(each) for each in regions] == [True, True, False, False]
    assert [nl.is_psum(each) for each in regions] == [False, True, False, False]
    assert [nl.is_sbuf(each) for each in regions] == [True, False, False, False]

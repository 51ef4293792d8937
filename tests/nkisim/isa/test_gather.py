"""local_gather and nc_n_gather against NumPy, and their rules."""

import ml_dtypes
import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from isa_tiles import Psum, after, assert_shape_only_agrees, refused, zeros


@pytest.fixture
def rng():
    return np.random.default_rng(18)


def gather(**options):
    return lambda dst, src, index: nisa.local_gather(dst, src, index, **options)


def gathered(src, index, run, count):
    """16 partitions share the indices in their rows of `index`, read partition by partition."""
    flat = src.reshape(len(src), -1)
    result = np.empty((len(src), count, run), src.dtype)
    for start in range(0, len(src), 16):
        indices = [int(index[start + i % 16, i // 16]) for i in range(count)]
        for partition in range(start, start + 16):
            for place, first in enumerate(indices):
                result[partition, place] = flat[partition, first : first + run]
    return result.reshape(len(src), count * run)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.uint8])
@pytest.mark.parametrize(("run", "used"), [(1, None), (4, None), (32, 50), (2, 1)])
def test_a_group_of_partitions_shares_its_indices(rng, dtype, run, used):
    src = rng.integers(0, 200, size=(64, 10, 20)).astype(dtype)
    index = rng.integers(0, 200 - run + 1, size=(64, 4)).astype(np.uint16)
    count = 64 if used is None else used
    issue = gather(num_elem_per_idx=run, num_valid_indices=used)
    tiles = (zeros(64, count * run, dtype=dtype), src, index)
    np.testing.assert_array_equal(after(issue, *tiles)[0], gathered(src, index, run, count))
    assert_shape_only_agrees(issue, *tiles)


def test_dst_may_have_several_axes(rng):
    src = rng.normal(size=(16, 40)).astype(np.float32)
    index = rng.integers(0, 36, size=(16, 2)).astype(np.uint16)
    issue = gather(num_elem_per_idx=4, num_valid_indices=32)
    result = after(issue, zeros(16, 8, 4, 4), src, index)[0]
    np.testing.assert_array_equal(result.reshape(16, -1), gathered(src, index, 4, 32))


U2, U4 = np.uint16, np.uint32


@pytest.mark.parametrize(
    ("issue", "tiles", "limit"),
    [
        (gather(), (zeros(24, 16), zeros(24, 9), zeros(24, 1, dtype=U2)), "a multiple of 16"),
        (gather(), (zeros(16, 16), zeros(32, 9), zeros(16, 1, dtype=U2)), "number of partitions"),
        (gather(), (zeros(16, 16), zeros(16, 9), zeros(16, 1, dtype=U4)), "uint16"),
        (
            gather(),
            (zeros(16, 16, dtype=np.int32), zeros(16, 9), zeros(16, 1, dtype=U2)),
            "the same dtype",
        ),
        (
            gather(num_elem_per_idx=3),
            (zeros(16, 48), zeros(16, 9), zeros(16, 1, dtype=U2)),
            r"\(1, 2, 4, 8, 16, 32\) elements",
        ),
        (
            gather(num_valid_indices=17),
            (zeros(16, 17), zeros(16, 9), zeros(16, 1, dtype=U2)),
            "1..16 indices; the index tile holds 16 per core",
        ),
        (
            gather(),
            (zeros(16, 4112), zeros(16, 9), zeros(16, 257, dtype=U2)),
            "1..4096 indices; the index tile holds 4112 per core",
        ),
        (
            gather(),
            (zeros(16, 15), zeros(16, 9), zeros(16, 1, dtype=U2)),
            "16 indices x 1 elements",
        ),
        (gather(), (zeros(16, 16), Psum(zeros(16, 9)), zeros(16, 1, dtype=U2)), "live in sbuf"),
    ],
)
def test_local_gather_is_refused_for(issue, tiles, limit):
    with refused("local_gather", limit):
        after(issue, *tiles)


def test_local_gather_stays_inside_the_partition():
    index = np.full((16, 1), 7, np.uint16)
    issue = gather(num_elem_per_idx=2)
    after(issue, zeros(16, 32), zeros(16, 9), index)
    with refused("local_gather", "9 elements per partition"):
        after(issue, zeros(16, 32), zeros(16, 9), index + np.uint16(1))


def pick(dst, data, indices):
    nisa.nc_n_gather(dst, data, indices)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int16])
def test_every_partition_has_its_own_indices(rng, dtype):
    data = rng.integers(0, 99, size=(40, 6, 7)).astype(dtype)
    indices = rng.integers(0, 42, size=(40, 50)).astype(np.uint32)
    tiles = (zeros(40, 5, 10, dtype=dtype), data, indices)
    result = after(pick, *tiles)[0]
    expected = np.take_along_axis(data.reshape(40, 42), indices.astype(np.int64), axis=1)
    np.testing.assert_array_equal(result.reshape(40, 50), expected)
    assert_shape_only_agrees(pick, *tiles)


def test_the_data_may_be_a_strided_view(rng):
    data = rng.normal(size=(8, 12)).astype(np.float32)
    indices = np.tile(np.array([[5, 0]], np.uint32), (8, 1))

    def issue(dst, tile, index):
        nisa.nc_n_gather(dst, tile[:, 1:12:2], index)

    np.testing.assert_array_equal(after(issue, zeros(8, 2), data, indices)[0], data[:, [11, 1]])


@pytest.mark.parametrize(
    ("tiles", "limit"),
    [
        ((zeros(8, 4), zeros(8, 9), zeros(8, 5, dtype=U4)), "same number of elements"),
        ((zeros(8, 4), zeros(7, 9), zeros(8, 4, dtype=U4)), "same number of partitions"),
        ((zeros(8, 4), zeros(8, 9), zeros(8, 4, dtype=np.int32)), "uint32"),
        ((zeros(8, 4, dtype=np.int32), zeros(8, 9), zeros(8, 4, dtype=U4)), "the same dtype"),
        ((zeros(8, 4), Psum(zeros(8, 9)), zeros(8, 4, dtype=U4)), "may live in sbuf"),
        ((zeros(8, 4), zeros(8, 9), np.full((8, 4), 9, U4)), "9 elements per partition"),
    ],
)
def test_nc_n_gather_is_refused_for(tiles, limit):
    with refused("nc_n_gather", limit):
        after(pick, *tiles)


def test_gathers_take_no_indirect_views():
    def issue(dst, data, indices):
        index = nl.ndarray((16, 1), nl.uint16, nl.sbuf)
        nisa.nc_n_gather(dst, data.indirect(index, 4), indices)

    with refused("nc_n_gather", "does not support tensor indirection"):
        after(issue, zeros(16, 4), zeros(16, 9), zeros(16, 4, dtype=U4), machine="trn3")

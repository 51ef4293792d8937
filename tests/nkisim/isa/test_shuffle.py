"""nc_stream_shuffle against NumPy, and its rules."""

import ml_dtypes
import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from isa_tiles import Psum, after, assert_shape_only_agrees, refused, zeros

KEEP = 255


@pytest.fixture
def rng():
    return np.random.default_rng(17)


def shuffle(mask):
    return lambda dst, src: nisa.nc_stream_shuffle(dst, src, mask)


def shuffled(dst, src, mask):
    """The definition, one partition at a time."""
    result = dst.copy()
    for partition in range(len(dst)):
        quadrant, lane = divmod(partition, 32)
        if mask[lane] != KEEP:
            result[partition] = src[32 * quadrant + mask[lane]]
    return result


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8])
@pytest.mark.parametrize("places", [(np.asarray, np.asarray), (Psum, np.asarray), (Psum, Psum)])
def test_every_quadrant_is_permuted_alike(rng, dtype, places):
    src = rng.integers(-100, 100, size=(128, 6)).astype(dtype)
    mask = [int(lane) for lane in rng.permutation(32)]
    tiles = places[0](zeros(128, 6, dtype=dtype)), places[1](src)
    result = after(shuffle(mask), *tiles)[0]
    np.testing.assert_array_equal(result, shuffled(zeros(128, 6, dtype=dtype), src, mask))
    assert_shape_only_agrees(shuffle(mask), *tiles)


def test_255_keeps_dst(rng):
    src, dst = rng.normal(size=(2, 64, 5)).astype(np.float32)
    mask = [0, KEEP] * 16
    result = after(shuffle(mask), dst, src)[0]
    np.testing.assert_array_equal(result, shuffled(dst, src, mask))
    np.testing.assert_array_equal(result[1::2], dst[1::2])


def test_one_partition_is_broadcast_to_a_quadrant(rng):
    src = rng.normal(size=(128, 5)).astype(np.float32)

    def issue(tile):
        for quadrant in range(4):
            nisa.nc_stream_shuffle(tile[nl.ds(32 * quadrant, 32)], tile[0:1], [0] * 32)

    np.testing.assert_array_equal(after(issue, src)[0], np.tile(src[:1], (128, 1)))


def test_it_works_in_place(rng):
    src = rng.normal(size=(32, 3, 4)).astype(np.float32)
    mask = list(range(31, -1, -1))
    result = after(lambda tile: nisa.nc_stream_shuffle(tile, tile, mask), src)[0]
    np.testing.assert_array_equal(result, src[::-1])


def test_dst_may_have_fewer_partitions_than_a_quadrant(rng):
    src = rng.normal(size=(32, 4)).astype(np.float32)
    mask = [31 - lane for lane in range(32)]
    np.testing.assert_array_equal(after(shuffle(mask), zeros(5, 4), src)[0], src[:-6:-1])


IDENTITY = list(range(32))


def at(dst_start, src_start, dst_count=32, src_count=32, mask=IDENTITY):
    def issue(dst, src):
        to = dst[dst_start : dst_start + dst_count]
        nisa.nc_stream_shuffle(to, src[src_start : src_start + src_count], mask)

    return issue, zeros(128, 4), zeros(128, 4)


@pytest.mark.parametrize("starts", [(0, 96), (64, 32), (96, 0)])
def test_quadrants_may_start_anywhere(starts):
    after(*at(*starts))


@pytest.mark.parametrize(
    ("case", "limit"),
    [
        ((shuffle([0] * 31), zeros(32, 4), zeros(32, 4)), "32 integers"),
        ((shuffle([32] + [0] * 31), zeros(32, 4), zeros(32, 4)), "each 0..31, or 255"),
        ((shuffle([-1] + [0] * 31), zeros(32, 4), zeros(32, 4)), "each 0..31, or 255"),
        ((shuffle(IDENTITY), zeros(32, 4), zeros(32, 5)), "same number of elements"),
        ((shuffle(IDENTITY), zeros(32, 4), zeros(32, 4, dtype=np.int32)), "the same dtype"),
        (at(0, 96, 64, 32, [0] * 32), "64 active partitions start at partition 0, 64"),
        (at(32, 0, 32, 96), "96 active partitions start at partition 0"),
        (at(0, 0, 64, 32, [0] * 32), "src has 32 partitions"),
        (at(0, 0, 32, 8), "src has 8 partitions"),
    ],
)
def test_it_is_refused_for(case, limit):
    with refused("nc_stream_shuffle", limit):
        after(*case)


def test_a_partition_that_is_kept_needs_no_source(rng):
    dst, src = rng.normal(size=(64, 4)).astype(np.float32), rng.normal(size=(32, 4))
    with refused("nc_stream_shuffle", "src has 32 partitions"):
        after(shuffle([0] + [KEEP] * 31), dst, src.astype(np.float32))
    result = after(shuffle([KEEP] * 32), dst, src.astype(np.float32))[0]
    np.testing.assert_array_equal(result, dst)

"""bn_stats and bn_aggr against mean and variance of NumPy, and their rules."""

import ml_dtypes
import numpy as np
import pytest

import nkisim.isa as nisa
from isa_tiles import Psum, after, assert_shape_only_agrees, issued, refused, run_tiles, zeros
from nkisim.enums import engine

UNIT_ROUNDOFF = 2.0**-24


def floats(*shape):
    return np.random.default_rng(2).normal(size=shape).astype(np.float32)


def test_the_documented_example():
    data = np.array([[1, 2, 3, 4]], np.float32)

    def issue(stats, result, x):
        nisa.bn_stats(stats, x)
        nisa.bn_aggr(result, stats)

    stats, result, _ = after(issue, zeros(1, 6), zeros(1, 2), data)
    np.testing.assert_array_equal(stats, [[2, 2, 2, 2, 3, 2]])
    np.testing.assert_array_equal(result, [[2.5, 1.25]])


def mean_bound(rows):
    """n terms summed in float32 in any order are off by less than n * sum(|x|) roundoffs."""
    return rows.shape[1] * np.abs(rows).mean(axis=1) * UNIT_ROUNDOFF


def spread_bound(rows):
    """The same for sum((x - mean)**2): the sum's own error, and what the mean's error adds."""
    count, distance = rows.shape[1], np.abs(rows - rows.mean(axis=1, keepdims=True))
    shift = mean_bound(rows) + UNIT_ROUNDOFF * np.abs(rows).max(axis=1)
    own = (count + 3) * UNIT_ROUNDOFF * np.square(distance).sum(axis=1)
    return own + 2 * shift * distance.sum(axis=1) + count * shift**2


@pytest.mark.parametrize("count", [1, 2, 7, 512])
def test_bn_stats_of_even_and_odd_elements(count):
    data = floats(128, count)
    ran = run_tiles(nisa.bn_stats, zeros(128, 6), data)
    wide = data.astype(np.float64)
    for half, first in ((wide[:, 0::2], 0), (wide[:, 1::2], 3)):
        number, mean, spread = ran.outputs[0][:, first : first + 3].T
        np.testing.assert_array_equal(number, half.shape[1])
        if not half.size:
            np.testing.assert_array_equal([mean, spread], 0)
            continue
        assert (np.abs(mean - half.mean(axis=1)) <= mean_bound(half)).all()
        expected = half.var(axis=1) * half.shape[1]
        assert (np.abs(spread - expected) <= spread_bound(half)).all()
    assert issued(ran, "bn_stats").engine is engine.vector


def test_bn_stats_numbers_elements_along_the_view_and_casts_the_result():
    data = np.arange(24, dtype=np.float32).reshape(2, 3, 4).astype(ml_dtypes.bfloat16)

    def issue(dst, x):
        nisa.bn_stats(dst, x.permute((0, 2, 1)))

    result = after(issue, zeros(2, 6, dtype=ml_dtypes.bfloat16), Psum(data))[0]
    rows = data.astype(np.float32).transpose(0, 2, 1).reshape(2, 12)
    means = np.stack([rows[:, 0::2].mean(axis=1), rows[:, 1::2].mean(axis=1)], axis=1)
    np.testing.assert_array_equal(result[:, [1, 4]], means.astype(ml_dtypes.bfloat16))


def test_bn_aggr_pools_unequal_pieces():
    data = floats(64, 700)

    def issue(result, stats, x):
        nisa.bn_stats(stats[:, 0:6], x[:, 0:512])
        nisa.bn_stats(stats[:, 6:12], x[:, 512:700])
        nisa.bn_aggr(result, stats)

    result = after(issue, zeros(64, 2), zeros(64, 12), data)[0]
    wide = data.astype(np.float64)
    # The pieces add fewer terms than the whole row, and pooling them a handful more.
    assert (np.abs(result[:, 0] - wide.mean(axis=1)) <= mean_bound(wide)).all()
    assert (np.abs(result[:, 1] - wide.var(axis=1)) <= spread_bound(wide) / 700).all()


def test_bn_aggr_ignores_triples_that_count_nothing():
    data = np.array([[2, 5, 4, 0, np.nan, 7, 2, 9, 0]], np.float32)
    result = after(nisa.bn_aggr, zeros(1, 2), data)[0]
    np.testing.assert_array_equal(result, [[7, (4 + 2 * 4 + 2 * 4) / 4]])


def test_refusals():
    with refused("bn_stats", "^512 elements per partition"):
        after(nisa.bn_stats, zeros(4, 6), zeros(4, 513))
    with refused("bn_stats", "6 elements per partition: count, mean and variance"):
        after(nisa.bn_stats, zeros(4, 2), zeros(4, 8))
    with refused("bn_stats", "same number of partitions"):
        after(nisa.bn_stats, zeros(2, 6), zeros(4, 8))
    with refused("bn_aggr", "a multiple of 3 elements"):
        after(nisa.bn_aggr, zeros(4, 2), zeros(4, 8))
    with refused("bn_aggr", "2 elements per partition: mean and variance"):
        after(nisa.bn_aggr, zeros(4, 6), zeros(4, 6))
    with refused("bn_aggr", "same number of partitions"):
        after(nisa.bn_aggr, zeros(2, 2), zeros(4, 6))


def test_shape_only_runs_issue_the_same():
    def issue(result, stats, x):
        nisa.bn_stats(stats, x)
        nisa.bn_aggr(result, stats)

    assert_shape_only_agrees(issue, zeros(4, 2), zeros(4, 6), zeros(4, 8))
    with refused("bn_stats", "512 elements per partition"):
        run_tiles(nisa.bn_stats, zeros(4, 6), zeros(4, 600), values=False)

"""compare: right within a derived bound, and otherwise where, how many and how far."""

import ml_dtypes
import numpy as np
import pytest

from nkisim import NkiValidationError, compare

RNG = np.random.default_rng(7)
A = RNG.standard_normal((300, 700)).astype(np.float32)
B = RNG.standard_normal((700, 600)).astype(np.float32)
WANT = A.astype(np.float64) @ B.astype(np.float64)
SUMS = np.abs(A.astype(np.float64)) @ np.abs(B.astype(np.float64))


def summed_one_by_one():
    """The worst order that a machine would take: float32, a term at a time."""
    total = np.zeros(WANT.shape, np.float32)
    for a, b in zip(A.T, B, strict=True):
        total += a[:, None] * b[None, :]
    return total


def product(dtype):
    return summed_one_by_one().astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
def test_sums_are_within_the_bound_and_a_dropped_term_is_not(dtype):
    found = compare(product(dtype), WANT, terms=700, magnitudes=SUMS)
    assert found.ok
    assert 0 < found.worst_share <= 1
    largest = np.abs(A[:, :, None] * B[None, :, 5:6]).argmax(axis=1)[:, 0]
    short = summed_one_by_one()
    short[:, 5] -= A[np.arange(300), largest] * B[largest, 5]
    seen = compare(short.astype(np.float32), WANT, terms=700, magnitudes=SUMS)
    assert seen.wrong >= 290
    assert {cut[0] for cut in seen.first.free} == {5}


def test_one_rounding_is_allowed_and_two_units_are_not():
    exact = np.linspace(1, 2, 1001)
    for dtype, roundoff in ((np.float32, 2.0**-24), (ml_dtypes.bfloat16, 2.0**-8)):
        rounded = exact.astype(dtype)
        assert compare(rounded, exact, terms=0).ok
        worse = (exact * (1 + 4 * roundoff)).astype(dtype)
        assert not compare(worse, exact, terms=0).ok


def test_terms_that_passed_a_narrow_type_may_be_off_by_it():
    narrow = A.astype(ml_dtypes.bfloat16).astype(np.float64)
    got = (narrow @ B.astype(np.float64)).astype(np.float32)
    exact = {"terms": 700, "magnitudes": SUMS}
    assert not compare(got, WANT, **exact).ok
    assert compare(got, WANT, through="bfloat16", **exact).ok


def test_the_first_wrong_tile_is_named():
    got = WANT.astype(np.float32)
    got[131, 520:530] = 0
    got[140, 525] = np.nan
    got[299, 3] += 1
    found = compare(got, WANT, terms=700, magnitudes=SUMS)
    assert (found.wrong, found.wrong_tiles, found.tiles) == (12, 2, 6)
    assert found.first.slices == ((128, 256), (512, 600))
    assert (found.first.partitions, found.first.free) == ((3, 12), ((8, 18),))
    assert (found.first.wrong, found.first.worst) == (11, (140, 525))
    text = str(found).splitlines()
    assert text[0] == "wrong: 12 of 180,000 elements, in 2 of 6 tiles (float32, 700 terms)"
    assert text[1] == "first wrong tile: [128:256, 512:600], 11 of 11,264 elements"
    assert text[2].split() == ["partitions", "3,", "12"]


def test_tiles_have_the_shape_that_is_asked_for():
    want = np.zeros((4, 6, 8))
    got = want.astype(np.float32)
    got[2:, 3:, 5] = 1
    found = compare(got, want, tile=(1, 2, 4)).first
    assert found.slices == ((2, 3), (2, 4), (4, 8))
    assert (found.partitions, found.free) == ((1,), ((1, 2),))
    whole = compare(got, want, tile=(4, 6, 8)).first
    assert (whole.partitions, whole.free) == ((2, 3), ((3, 6), (5, 6)))


def test_integers_have_to_be_equal():
    assert compare(np.arange(4), np.arange(4)).ok
    found = compare(np.arange(4, dtype=np.int32), np.array([0, 1, 3, 3]))
    assert found.wrong == 1
    assert str(found).endswith("off by 1, and nothing is allowed")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_equal_themselves_only(value):
    want = np.array([[1.0, value]])
    assert compare(want.astype(np.float32), want).ok
    assert compare(np.ones((1, 2), np.float32), want).wrong == 1
    assert compare(want.astype(np.float32), np.ones((1, 2))).wrong == 1


@pytest.mark.parametrize(
    ("how", "limit"),
    [
        ({"terms": -1}, "0 to 16,777,215"),
        ({"terms": 2**24}, "0 to 16,777,215"),
        ({"tile": (128,)}, "each of the 2 axes"),
        ({"through": "int32"}, "a type of floats"),
    ],
)
def test_what_makes_no_bound_is_refused(how, limit):
    with pytest.raises(NkiValidationError, match=limit):
        compare(np.ones((2, 2), np.float32), np.ones((2, 2)), **how)


def test_shapes_have_to_be_equal():
    with pytest.raises(NkiValidationError, match="equal shapes"):
        compare(np.ones((2, 2), np.float32), np.ones(4))

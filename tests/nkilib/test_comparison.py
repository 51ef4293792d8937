"""The rule that decides whether a kernel of the library agrees with its reference."""

import numpy as np
import pytest

from nki_library import EXACT, Entry, Tolerance, compare

EXPECTED = np.array([[1.0, -4.0], [0.5, np.inf]], np.float32)


def test_the_largest_finite_reference_is_the_measure():
    output = EXPECTED + np.array([[0.0, 0.0], [0.0625, 0.0]], np.float32)
    assert compare(output, EXPECTED, Tolerance(0.01, 0.03)) == (0.0625 / 4, 0.01 + 0.03 / 4)
    with pytest.raises(AssertionError):
        compare(output, EXPECTED, Tolerance(0.01, 0.02))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_agrees_with_the_reference_only(wrong):
    for place in [(0, 0), (1, 1)]:
        output = EXPECTED.copy()
        output[place] = wrong
        if np.array_equal(output, EXPECTED):
            continue
        with pytest.raises(AssertionError):
            compare(output, EXPECTED, Tolerance(1.0, 1e9))


def test_a_reference_of_zeros_leaves_only_the_absolute_tolerance():
    zeros = np.zeros(3, np.float32)
    assert compare(zeros + 1e-3, zeros, Tolerance(1.0, 2e-3))[0] == pytest.approx(1e-3)
    with pytest.raises(AssertionError):
        compare(zeros + 1e-3, zeros, EXACT)


def test_integers_are_equal_whatever_the_tolerance():
    indices = np.array([3, 500], np.int32)
    assert compare(indices, indices, Tolerance(0.1, 0.0)) == (0.0, 0.0)
    with pytest.raises(AssertionError):
        compare(indices + 1, indices, Tolerance(0.1, 10.0))


def test_shapes_are_equal():
    with pytest.raises(AssertionError):
        compare(EXPECTED[:1], EXPECTED[0], EXACT)


def test_the_case_nearest_to_its_bound_is_recorded():
    entry = Entry(cases=2, cores={2, 1}, dtypes={"float32"}, notes={"why"})
    entry.add(0.02, 0.1)
    entry.add(0.01, 0.02)
    assert entry.row("k", "trn2", (0.0, 0.0), "abc") == {
        "kernel": "k",
        "commit": "abc",
        "cases": 2,
        "max_error": 0.01,
        "tolerance": 0.02,
        "machine": "trn2",
        "note": "inputs float32; cores 1 and 2; why",
    }

"""nl.sin, nl.cos and nl.tan, far outside of the Scalar engine's range."""

import numpy as np
import pytest

import nkisim.language as nl
from tile_function import instructions, on_tiles

EPS = np.finfo(np.float32).eps
TURNS = np.random.default_rng(5).uniform(-1, 1, (64, 100)).astype(np.float32)


@pytest.mark.parametrize("most", [3.0, 100.0, 1e4])
@pytest.mark.parametrize("machine", ["trn1", "trn2", "trn3"])
def test_sine_and_cosine(most, machine):
    x = TURNS * np.float32(most)
    # A sine moves no faster than its argument: the angle is off by the rounding of one product
    # with the low part of a turn (below 0.002 a turn), of sums not above 2 pi, and of pi itself.
    turns = most / 6
    bound = EPS * (0.002 * turns + 8)
    reference = np.sin(x.astype(np.float64))
    np.testing.assert_allclose(on_tiles(nl.sin, x, machine=machine), reference, rtol=0, atol=bound)
    # For the cosine a quarter turn is added first, rounded at the magnitude of x.
    reference = np.cos(x.astype(np.float64))
    result = on_tiles(nl.cos, x, machine=machine)
    np.testing.assert_allclose(result, reference, rtol=0, atol=bound + EPS * most)


def test_half_turns_stay_in_the_range_of_the_engine():
    x = np.float32(np.pi) * np.arange(-9, 10, dtype=np.float32).reshape(1, -1)
    result = on_tiles(nl.sin, x)
    reference = np.sin(x.astype(np.float64))
    np.testing.assert_allclose(result, reference, rtol=0, atol=8 * EPS)


def test_tangent_where_it_is_not_steep():
    x = TURNS  # [-1, 1]: the cosine is above 0.5
    reference = np.tan(x.astype(np.float64))
    np.testing.assert_allclose(on_tiles(nl.tan, x), reference, rtol=0, atol=64 * EPS)


def test_the_sine_is_made_of_instructions():
    issued = [op for _, op in instructions(nl.sin, TURNS)]
    assert issued[-1] == "activation"
    assert issued.count("scalar_tensor_tensor") == 2

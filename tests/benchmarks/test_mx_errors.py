"""`python -m benchmarks mx`: MX against its format by hand and nkisim, and what the study finds."""

import ml_dtypes
import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.fast_errors import DECODER, WHITE, arrays
from benchmarks.mx_errors import (
    Coding,
    differing,
    errors_of,
    least_time,
    quantized,
    shape_of,
    simulated,
    split,
    summed_in_bf16,
    within,
)

BF16 = ml_dtypes.bfloat16


def test_a_block_of_32_channels_shares_a_scale():
    """3 is scaled to 192: e4m3fn has steps of 1/8 of a power of two down to 2**-6, then 2**-9."""
    x = np.zeros((1, 64, 1))
    x[0, :5, 0] = 3.0, 1.0625, -1.07, 3.0 * 2.0**-20, 0.0
    x[0, 40, 0] = 2.0**-20
    found = quantized(x)[0, :, 0]
    smallest = 2.0**-9 / 64
    assert found[:5].tolist() == [3.0, 1.0, -1.125, 3 * 2.0**-20 // smallest * smallest, 0.0]
    assert found[40] == 2.0**-20
    assert np.count_nonzero(found) == 4


def test_nkisim_quantises_to_the_same_values():
    others, count = differing()
    assert others == 0
    assert count >= 128 * 400


def test_nkisim_multiplies_quantised_matrices():
    """float32 sums of n terms are off by at most n * 2**-24 of the sum of magnitudes."""
    x, w = arrays(shape_of(512), DECODER)
    columns, filters = x[0, :, 0].reshape(512, -1), w[:, :, 0, 0, 0].T
    left, right = quantized(filters[None])[0], quantized(columns[None])[0]
    bound = 512 * 2.0**-24 * (np.abs(left).T @ np.abs(right))
    assert np.all(np.abs(simulated(columns, filters) - left.T @ right) <= bound)


@pytest.mark.parametrize("data", [DECODER, WHITE])
def test_two_terms_hold_bf16_exactly(data):
    """8 bits are 4 and a signed rest of 4, for values of at least 2**-13 of their block's largest.

    That is scaled to 2**7 or more, and e4m3fn has 4 bits down to 2**-6: hi is within a sixteenth.
    The largest rest is below 2**-4 of the block's largest power of two; it, too, is scaled to 2**7
    or more, so that steps of 2**-9 are at most 2**-20 of the power, where the bits of bf16 end.
    """
    x, w = arrays(shape_of(96), data)
    for values in (x.astype(np.float64), w.astype(np.float64)):
        high, low = split(values)
        blocks = np.abs(values).reshape(len(values), 3, 32, *values.shape[2:])
        large = (blocks >= 2.0**-13 * blocks.max(axis=2, keepdims=True)).reshape(values.shape)
        assert np.mean(large) > 0.99
        assert np.all((high + low == values)[large])


def test_sums_in_bf16_are_rounded_after_every_matmul():
    """256, then 1 from every tap: 256 + 1 is a tie, and rounded to the even 256."""
    shape = shape_of(256)
    x = np.zeros((1, 256, *shape.size), BF16)
    x[0, 0] = x[0, 128] = 1
    w = np.zeros((128, 256, 3, 3, 3), BF16)
    w[:, 0], w[:, 128] = 0, 1
    w[:, 0, 0, 0, 0] = 256
    y = summed_in_bf16(x, w, shape)
    assert np.all(y[:, :, :, 1:-1, 1:-1] == 256)


@pytest.mark.parametrize(
    ("algorithm", "coding", "expected"),
    [
        ("direct", Coding.both, 1 / 4),
        ("direct", Coding.split, 3 / 4),
        ("F(2,3)", Coding.halves, 2 / 3),
        ("F(2,3)", Coding.split, 1 / 2),
        ("F(4,3)", Coding.both, 1 / 8),
        ("F(4,3)", Coding.inputs, 1 / 2),
    ],
)
def test_time_is_products_over_their_rate(algorithm, coding, expected):
    assert least_time(algorithm, coding) == pytest.approx(expected)


def test_one_term_fits_no_accuracy_and_two_only_without_a_transform():
    """A rounding to 4 bits is 16 times one to 8, and two of them, independent, 2**0.5 times that.

    Two terms leave out lo times lo: 0.73 / 3**0.5 * 2**-4 squared, over 0.73 / 3**0.5 * 2**-8.
    The RMS of n errors is known to (2 n)**-0.5, 0.26 % here, and that of the floor as well: three
    times that for both, and 0.4 % for ties, which 8 bits that become 4 have often.
    """
    found = {(each.algorithm, each.coding): each.rms for each in errors_of(96, WHITE)}
    lost = 0.73 / 3**0.5
    assert found["direct", Coding.halves] == 1
    assert found["direct", Coding.inputs] == pytest.approx(16, rel=0.015)
    assert found["direct", Coding.both] == pytest.approx(16 * 2**0.5, rel=0.015)
    assert found["direct", Coding.split] == pytest.approx((1 + lost**2) ** 0.5, rel=0.015)
    assert {key for key, rms in found.items() if within(rms) != "-"} == {
        ("direct", Coding.halves),
        ("direct", Coding.split),
        ("F(2,3)", Coding.halves),
        ("F(4,3)", Coding.halves),
    }


@pytest.mark.fast
def test_the_command_prints_a_line_for_each_coding(capsys):
    assert main(["mx", "--channels", "96"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith(("direct", "F(")) for line in lines) == 6 + 5 + 5
    assert lines[-1].endswith("otherwise: 0 of 61440")

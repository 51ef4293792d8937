"""Rounding to and widening from narrow floats, over every bit pattern.

The references are the definition of each type (sign, exponent, fraction) and ml_dtypes itself.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkisim.numerics import dtypes
from repetition import examples


@dataclass(frozen=True)
class Layout:
    """A float type by its fields; `nan_codes` are its non-negative codes that are NaN."""

    name: str
    exponent_bits: int
    fraction_bits: int
    bias: int
    nan_codes: range
    inf_code: int | None

    @property
    def width(self):
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def bits(self):
        return np.dtype(f"uint{self.width}")

    @property
    def native(self):
        return np.dtype(self.name)

    def magnitudes(self):
        """The finite values of the codes 0, 1, 2, ... in float64, which holds them all."""
        end = self.inf_code if self.inf_code is not None else self.nan_codes[0]
        codes = np.arange(end)
        exponent = codes >> self.fraction_bits
        fraction = codes & (2**self.fraction_bits - 1)
        normal = exponent > 0
        significand = fraction / 2**self.fraction_bits + normal
        return np.ldexp(significand, np.maximum(exponent, 1) - self.bias)


BFLOAT16 = Layout("bfloat16", 8, 7, 127, range(0x7F81, 0x8000), 0x7F80)
FLOAT16 = Layout("float16", 5, 10, 15, range(0x7C01, 0x8000), 0x7C00)
E4M3 = Layout("float8_e4m3", 4, 3, 7, range(0x79, 0x80), 0x78)
E4M3FN = Layout("float8_e4m3fn", 4, 3, 7, range(0x7F, 0x80), None)
E5M2 = Layout("float8_e5m2", 5, 2, 15, range(0x7D, 0x80), 0x7C)
LAYOUTS = [BFLOAT16, FLOAT16, E4M3, E4M3FN, E5M2]

every_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)


def all_codes(layout):
    return np.arange(2**layout.width).astype(layout.bits)


def same_floats(left, right):
    """Equal bit for bit, except that any NaN equals any NaN."""
    left, right = np.float32(left), np.float32(right)
    equal = left.view(np.uint32) == right.view(np.uint32)
    return bool(np.all(equal | (np.isnan(left) & np.isnan(right))))


def by_ml_dtypes(values, native):
    with np.errstate(all="ignore"):
        return values.astype(native).astype(np.float32)


@every_layout
def test_every_bit_pattern_is_the_value_its_fields_say(layout):
    held = dtypes.from_bits(all_codes(layout), layout.name)
    magnitudes = layout.magnitudes()
    half = 2 ** (layout.width - 1)
    assert held.dtype == np.float32
    assert np.array_equal(held[: magnitudes.size], magnitudes)
    assert np.array_equal(held[half : half + magnitudes.size], -magnitudes)
    assert np.all(np.signbit(held[half : half + magnitudes.size]))
    for sign in (0, half):
        assert np.all(np.isnan(held[[sign + code for code in layout.nan_codes]]))
    if layout.inf_code is not None:
        assert held[layout.inf_code] == np.inf
        assert held[half + layout.inf_code] == -np.inf


@every_layout
def test_every_bit_pattern_widens_as_in_ml_dtypes(layout):
    codes = all_codes(layout)
    with np.errstate(invalid="ignore"):
        expected = codes.view(layout.native).astype(np.float32)
    assert same_floats(dtypes.from_bits(codes, layout.name), expected)


@every_layout
def test_bits_survive_being_held_nans_included(layout):
    codes = all_codes(layout)
    held = dtypes.from_bits(codes, layout.name)
    assert np.array_equal(dtypes.bits_of(held, layout.name), codes)
    assert np.array_equal(
        dtypes.bits_of(held.copy().reshape(16, -1).T, layout.name).T.ravel(), codes
    )


@every_layout
def test_a_nan_whose_payload_is_lost_stays_a_nan(layout):
    nans = np.array([0x7F800001, 0xFF800001, 0x7FC00000, 0xFFFFFFFF], np.uint32).view(np.float32)
    codes = dtypes.bits_of(nans, layout.name).astype(np.int64)
    signs, magnitudes = np.divmod(codes, 2 ** (layout.width - 1))
    assert signs.tolist() == [0, 1, 0, 1]
    assert all(code in layout.nan_codes for code in magnitudes.tolist())


@every_layout
def test_representable_values_round_to_themselves(layout):
    held = dtypes.from_bits(all_codes(layout), layout.name)
    assert same_floats(dtypes.round_floats(held, layout.name), held)


@every_layout
def test_midpoints_round_to_the_even_code_and_their_neighbours_to_the_nearer_value(layout):
    magnitudes = layout.magnitudes()
    low, high = magnitudes[:-1], magnitudes[1:]
    middle = ((low + high) / 2).astype(np.float32)
    assert np.array_equal(middle, (low + high) / 2), "float32 must hold every midpoint"
    even = np.where(np.arange(low.size) % 2 == 0, low, high)
    below = np.nextafter(middle, np.float32(0))
    above = np.nextafter(middle, np.float32(np.inf))
    for values, expected in [(middle, even), (below, low), (above, high)]:
        for sign in (np.float32(1), np.float32(-1)):
            rounded = dtypes.round_floats(sign * values, layout.name)
            assert same_floats(rounded, sign * expected)
            assert same_floats(rounded, by_ml_dtypes(sign * values, layout.native))


@every_layout
def test_beyond_the_largest_value_rounding_overflows(layout):
    largest, before = layout.magnitudes()[[-1, -2]]
    limit = np.float32(largest + (largest - before) / 2)
    values = np.array([np.nextafter(limit, np.float32(0)), np.nextafter(limit, np.float32(np.inf))])
    inside, outside = dtypes.round_floats(values, layout.name)
    assert inside == largest
    assert np.isnan(outside) if layout is E4M3FN else outside == np.inf
    negative = dtypes.round_floats(-values, layout.name)
    assert same_floats(negative, by_ml_dtypes(-values, layout.native))


def test_the_documented_largest_values():
    largest = {layout.name: layout.magnitudes()[-1] for layout in LAYOUTS}
    assert largest["float8_e4m3"] == 240
    assert largest["float8_e4m3fn"] == 448
    assert largest["float8_e5m2"] == 57344
    assert largest["float16"] == 65504


@pytest.mark.parametrize("name", [layout.name for layout in LAYOUTS] + ["float8_e8m0fnu"])
@examples(200)
@given(value=st.floats(width=32))
def test_any_float_rounds_as_in_ml_dtypes(name, value):
    values = np.array([value], np.float32)
    assert same_floats(dtypes.round_floats(values, name), by_ml_dtypes(values, np.dtype(name)))


def test_e8m0_is_a_power_of_two_for_every_code():
    codes = np.arange(256, dtype=np.uint8)
    held = dtypes.from_bits(codes, "float8_e8m0fnu")
    assert np.array_equal(held[:255], np.ldexp(np.float64(1), np.arange(255) - 127))
    assert np.isnan(held[255])
    assert np.array_equal(dtypes.bits_of(held, "float8_e8m0fnu"), codes)


def test_e8m0_has_neither_zero_nor_sign():
    rounded = dtypes.round_floats(np.array([0.0, -1.0, 2.0, np.inf], np.float32), "float8_e8m0fnu")
    assert np.isnan(rounded[[0, 1, 3]]).all()
    assert rounded[2] == 2.0


def tfloat32_by_fractions(value):
    """The nearest of the multiples of the value's unit in the tenth place, exactly."""
    _, exponent = np.frexp(value)
    unit = Fraction(2) ** (max(int(exponent) - 1, -126) - 10)
    rounded = round(Fraction(float(value)) / unit) * unit
    return np.inf if rounded >= Fraction(2) ** 128 else float(rounded)


def tfloat32_samples():
    rng = np.random.default_rng(1)
    patterns = rng.integers(0, 0x7F800000, 3000, dtype=np.uint32)
    ties = (patterns & 0xFFFFE000) | 0x1000
    edges = np.array([0, 1, 0x0FFF, 0x1000, 0x1001, 0x3000, 0x007FFFFF, 0x3FFFFFFF, 0x7F7FFFFF])
    return np.concatenate([patterns, ties, ties - 1, ties + 1, edges]).astype(np.uint32)


def test_tfloat32_keeps_ten_fraction_bits_ties_to_even():
    values = tfloat32_samples().view(np.float32)
    expected = np.array([tfloat32_by_fractions(value) for value in values], np.float32)
    assert np.array_equal(dtypes.round_floats(values, "tfloat32"), expected)
    assert np.array_equal(dtypes.round_floats(-values, "tfloat32"), -expected)


def test_tfloat32_keeps_nan_infinity_and_signed_zero():
    values = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    assert same_floats(dtypes.round_floats(values, "tfloat32"), values)
    lowest_payload = np.array([0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(dtypes.round_floats(lowest_payload, "tfloat32")).all()


def test_tfloat32_bits_are_rounded_when_read():
    bits = np.array([0x3F801001, 0x3F800FFF], np.uint32)
    held = dtypes.from_bits(bits, "tfloat32")
    assert held.tolist() == [1 + 2**-10, 1.0]
    assert dtypes.bits_of(held, "tfloat32").tolist() == [0x3F802000, 0x3F800000]

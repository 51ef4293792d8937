"""The bound of tolerance.py: it holds for every honest rounding, and for little else."""

from dataclasses import replace
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from conv_arrays import integer_arrays, normal_arrays, numpy_dtype
from tolerance import (
    accumulation_bound,
    assert_convolution,
    assert_within,
    excess,
    forward_bound,
    output_rounding,
    sums_are_exact,
)
from trnconv.geometry import conv_shape
from trnconv.reference import forward

DTYPES = ("bfloat16", "float16", "float32")
PADDED = conv_shape((2, 20, 3, 4, 5), (12, 20, 3, 3, 3), padding=1)
STRIDED = conv_shape((1, 9, 4, 7, 6), (5, 9, 2, 3, 3), stride=2, padding=((1, 0), 1, (0, 2)))
DILATED = conv_shape((1, 8, 4, 7, 9), (6, 8, 2, 3, 3), dilation=2, padding=2)
MANY_TERMS = conv_shape((1, 1500, 1, 2, 2), (3, 1500, 1, 3, 3), padding=1)
SHAPES = {"padded": PADDED, "strided": STRIDED, "dilated": DILATED, "many terms": MANY_TERMS}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))


def float32_terms(x, w, bias, shape):
    """Every product of every output, each rounded to float32: [n, o, d, h, w, term]."""
    widths = [(0, 0), (0, 0), *zip(shape.pad_before, shape.pad_after, strict=True)]
    padded = np.pad(x.astype(np.float32), widths)
    columns = []
    for tap in np.ndindex(*shape.kernel):
        spans = []
        for axis in range(3):
            first = tap[axis] * shape.dilation[axis]
            last = first + (shape.out_size(axis) - 1) * shape.stride[axis]
            spans.append(slice(first, last + 1, shape.stride[axis]))
        window = padded[(slice(None), slice(None), *spans)]
        filters = w[(slice(None), slice(None), *tap)].astype(np.float32)
        columns.append(np.moveaxis(window[:, None] * filters[None, :, :, None, None, None], 2, -1))
    if bias is not None:
        ones = np.ones((shape.batch, shape.c_out, *shape.out_sizes(), 1), np.float32)
        columns.append(ones * bias.astype(np.float32)[None, :, None, None, None, None])
    return np.concatenate(columns, axis=-1)


def summed_in_order(terms, order):
    """One float32 addition after the other."""
    total = np.zeros(terms.shape[:-1], np.float32)
    for index in order:
        total = total + terms[..., index]
    return total


@pytest.mark.parametrize("dtype", DTYPES)
@shapes
def test_float32_sums_in_any_order_are_within(shape, dtype):
    x, w, bias = normal_arrays(shape, dtype)
    terms = float32_terms(x, w, bias, shape)
    forwards = np.arange(terms.shape[-1])
    by_size = np.argsort(np.abs(terms).mean(axis=tuple(range(5))))
    for order in (forwards, forwards[::-1], by_size, by_size[::-1]):
        y = summed_in_order(terms, order).astype(x.dtype)
        assert_convolution(y, x, w, bias, shape)


def test_the_order_matters_so_the_test_above_is_one():
    x, w, bias = normal_arrays(MANY_TERMS, "float32")
    terms = float32_terms(x, w, bias, MANY_TERMS)
    order = np.arange(terms.shape[-1])
    assert np.any(summed_in_order(terms, order) != summed_in_order(terms, order[::-1]))


def dropped_tap(w, tap):
    changed = w.copy()
    changed[(slice(None), slice(None), *tap)] = 0
    return changed


@pytest.mark.parametrize("arrays", [normal_arrays, integer_arrays])
@pytest.mark.parametrize("dtype", DTYPES)
@shapes
def test_a_dropped_tap_is_noticed(shape, dtype, arrays):
    """Every tap of these shapes meets the image somewhere."""
    x, w, bias = arrays(shape, dtype)
    exact = forward(x, w, bias, shape)
    bound = forward_bound(x, w, bias, shape, exact)
    for tap in np.ndindex(*shape.kernel):
        y = forward(x, dropped_tap(w, tap), bias, shape).astype(x.dtype)
        assert (excess(y, exact, bound) > 0).any(), tap


@pytest.mark.parametrize("dtype", DTYPES)
@shapes
def test_one_wrong_product_among_integers_is_noticed(shape, dtype):
    x, w, bias = integer_arrays(shape, dtype)
    exact = forward(x, w, bias, shape)
    bound = forward_bound(x, w, bias, shape, exact)
    channel, filters = np.argwhere(w[:, :, 0, 1, 1] != 0)[0][::-1]
    changed = w.copy()
    changed[filters, channel, 0, 1, 1] = 0
    y = forward(x, changed, bias, shape).astype(x.dtype)
    wrong = excess(y, exact, bound) > 0
    assert wrong[:, filters].any()
    assert not np.delete(wrong, filters, axis=1).any()


def test_summing_in_bfloat16_is_noticed():
    x, w, bias = normal_arrays(PADDED, "bfloat16")
    terms = float32_terms(x, w, bias, PADDED)
    total = np.zeros(terms.shape[:-1], ml_dtypes.bfloat16)
    for index in range(terms.shape[-1]):
        total = (total + terms[..., index]).astype(ml_dtypes.bfloat16)
    with pytest.raises(AssertionError, match="outside their bound"):
        assert_convolution(total, x, w, bias, PADDED)


def test_truncating_the_output_is_noticed():
    """Rounding towards zero moves by up to a whole step, not half of one."""
    x, w, bias = normal_arrays(PADDED, "bfloat16")
    bits = forward(x, w, bias, PADDED).astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    truncated = bits.view(np.float32).astype(ml_dtypes.bfloat16)
    with pytest.raises(AssertionError, match="outside their bound"):
        assert_convolution(truncated, x, w, bias, PADDED)


def test_a_forgotten_bias_and_a_nan_are_noticed():
    x, w, bias = normal_arrays(PADDED, "float16")
    with pytest.raises(AssertionError, match="outside their bound"):
        assert_convolution(forward(x, w, None, PADDED).astype(x.dtype), x, w, bias, PADDED)
    y = forward(x, w, bias, PADDED).astype(x.dtype)
    y[1, 2, 0, 3, 4] = np.nan
    with pytest.raises(AssertionError, match=r"1 of 1440 .* y\[1, 2, 0, 3, 4\] = nan"):
        assert_convolution(y, x, w, bias, PADDED)


def test_wrong_shapes_and_types_are_noticed():
    x, w, bias = integer_arrays(PADDED, "float16")
    y = forward(x, w, bias, PADDED)
    with pytest.raises(AssertionError, match="the output is float64, the input float16"):
        assert_convolution(y, x, w, bias, PADDED)
    with pytest.raises(AssertionError, match="the output is"):
        assert_convolution(y[:1].astype(np.float16), x, w, bias, PADDED)


@pytest.mark.parametrize("dtype", DTYPES)
def test_integers_are_summed_exactly_and_normal_numbers_are_not(dtype):
    assert sums_are_exact(*integer_arrays(PADDED, dtype), PADDED)
    assert not sums_are_exact(*normal_arrays(PADDED, dtype), PADDED)


def test_integers_are_exact_up_to_two_to_the_24():
    shape = conv_shape((1, 4, 1), (1, 4, 1))
    x = np.full((1, 4, 1, 1, 1), 2.0**11, np.float32)
    w = np.full((1, 4, 1, 1, 1), 2.0**11, np.float32)
    assert sums_are_exact(x, w, None, shape)  # 4 * 2**22
    assert not sums_are_exact(x, w, np.ones(1, np.float32), shape)
    half = np.full(1, 0.5, np.float32)
    assert sums_are_exact(x, w / 2, 2 * half, shape)
    assert not sums_are_exact(x, w / 2, half, shape)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_a_step_is_what_rounding_can_cost(dtype):
    """Against the gaps between all numbers of the type."""
    kind = numpy_dtype(dtype)
    infinity = int(np.array(np.inf, kind).view(np.uint16))
    numbers = np.arange(infinity, dtype=np.uint16).view(kind).astype(np.float64)  # 0 and up
    gaps = np.diff(numbers)
    assert gaps.min() == 2.0 ** (
        int(ml_dtypes.finfo(kind).minexp) - int(ml_dtypes.finfo(kind).nmant)
    )
    np.testing.assert_array_equal(output_rounding(numbers[:-1], kind), gaps / 2)


def test_a_value_that_rounds_into_the_next_binade_stays_within():
    value = 2.0 - 2.0**-9  # bfloat16 rounds it to 2
    rounded = float(np.float32(value).astype(ml_dtypes.bfloat16))
    assert rounded == 2.0
    assert rounded - value <= output_rounding(np.array(value), numpy_dtype("bfloat16"))


def test_float32_outputs_are_the_sum_itself():
    assert output_rounding(np.array([1.0, 1e30]), np.dtype(np.float32)).tolist() == [0, 0]


def test_products_that_underflow_are_allowed_for():
    shape = conv_shape((1, 3, 1), (1, 3, 1))
    tiny = np.full((1, 3, 1, 1, 1), 2.0**-75 * 1.5, np.float32).astype(ml_dtypes.bfloat16)
    y = np.zeros((1, 1, 1, 1, 1), np.float32)
    for channel in range(3):
        y += np.float32(tiny[0, channel]) * np.float32(tiny[0, channel])
    exact = Fraction(float(tiny[0, 0, 0, 0, 0])) ** 2 * 3
    error = abs(float(Fraction(float(y[0, 0, 0, 0, 0])) - exact))
    assert 0 < error <= accumulation_bound(tiny, tiny, None, shape)[0, 0, 0, 0, 0]


def test_fewer_terms_meet_a_corner_than_the_middle():
    x, w, _ = (np.ones_like(each) for each in normal_arrays(PADDED, "float32"))
    w = w * np.float32(1 + 2.0**-23)  # not an integer
    bound = accumulation_bound(x, w, None, PADDED)[0, 0]
    corner, middle = 8 * 20, 27 * 20
    ratio = (corner * (corner + 1)) / (middle * (middle + 1))
    assert bound[0, 0, 0] / bound[1, 1, 1] == pytest.approx(ratio, rel=1e-3)


def test_outputs_beyond_the_type_are_refused():
    x, w, bias = normal_arrays(PADDED, "float16")
    large = (x.astype(np.float32) * 2000).astype(np.float16)
    with pytest.raises(ValueError, match=r"float16 ends at 6\.55e\+04"):
        forward_bound(large, w, bias, PADDED, forward(large, w, bias, PADDED))


def test_the_message_says_where_it_is_wrong():
    exact = np.zeros((2, 3, 4, 5, 6))
    y = exact.astype(np.float32)
    y[1, 2, 1:3, 4, 5] = 0.5
    with pytest.raises(AssertionError, match=r"image 1..1, channel 2..2, frame 1..2, row 4..4"):
        assert_within(y, exact, np.full(exact.shape, 0.25))


def test_the_same_problem_gets_the_same_numbers():
    for arrays in (normal_arrays, integer_arrays):
        for one, other in zip(arrays(PADDED, "float16"), arrays(PADDED, "float16"), strict=True):
            np.testing.assert_array_equal(one, other)
        elsewhere = arrays(replace(PADDED, stride=(2, 1, 1)), "float16")[0]
        assert np.any(arrays(PADDED, "float16")[0] != elsewhere)
        assert np.any(arrays(PADDED, "float16")[0] != arrays(PADDED, "float16", seed=1)[0])


@pytest.mark.parametrize("dtype", DTYPES)
@shapes
def test_nearly_all_outputs_of_integers_are_numbers_of_the_type(shape, dtype):
    x, w, bias = integer_arrays(shape, dtype)
    exact = forward(x, w, bias, shape)
    held = exact.astype(x.dtype).astype(np.float64) == exact
    assert held.mean() > 0.99

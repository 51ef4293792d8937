"""The Scalar engine's functions against Python's math, point by point."""

import math

import numpy as np
import pytest

from nkisim.numerics import operators
from nkisim.numerics.operators import error_function

ONE_ULP = 2.0**-23
SMALLEST_FLOAT32 = 2.0**-149

SIZES = [1e-30, 1e-3, 0.1, 0.4999, 0.5, 0.75, 1, 1.5, 2, 3, 3.14, 4, 5.5, 9.2, 12, 20, 60, 88]
SAMPLES = np.float32([*SIZES, *(-size for size in SIZES), 0.0])
POSITIVE = np.float32(SIZES)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def gelu(x):
    return x * math.erfc(-x / math.sqrt(2)) / 2


def tanh_gelu(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def softplus(x):
    return max(x, 0) + math.log1p(math.exp(-abs(x)))


DEFINITIONS = {
    "copy": lambda x: x,
    "square": lambda x: x * x,
    "abs": abs,
    "sign": lambda x: (x > 0) - (x < 0),
    "relu": lambda x: max(x, 0.0),
    "exp": math.exp,
    "tanh": math.tanh,
    "erf": math.erf,
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * math.exp(-x * x),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "gelu": gelu,
    "gelu_apprx_sigmoid": lambda x: x * sigmoid(1.702 * x),
    "softplus": softplus,
    "mish": lambda x: x * math.tanh(softplus(x)),
    "arctan": math.atan,
}
OF_POSITIVE = {
    "log": math.log,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "reciprocal": lambda x: 1 / x,
}
DERIVATIVES = {
    "gelu_dx": gelu,
    "silu_dx": lambda x: x * sigmoid(x),
    "gelu_apprx_sigmoid_dx": lambda x: x * sigmoid(1.702 * x),
    "erf_dx": math.erf,
}


def assert_one_ulp(got, expected, slack=0.0):
    """Half an ulp is the rounding to float32, the other half is left to the computation."""
    assert got.dtype == np.float32
    assert np.all(np.abs(got - expected) <= ONE_ULP * np.abs(expected) + SMALLEST_FLOAT32 + slack)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_functions_of_any_number(name):
    expected = np.array([DEFINITIONS[name](x) for x in SAMPLES.tolist()])
    assert_one_ulp(operators.OPERATORS[name].activate(SAMPLES), expected)


@pytest.mark.parametrize("name", OF_POSITIVE)
def test_functions_of_positive_numbers(name):
    expected = np.array([OF_POSITIVE[name](x) for x in POSITIVE.tolist()])
    assert_one_ulp(operators.OPERATORS[name].activate(POSITIVE), expected)


def test_gelu_by_tanh():
    """The textbook form loses what 1 + tanh cancels: float64's roundoff times |x|."""
    expected = np.array([tanh_gelu(x) for x in SAMPLES.tolist()])
    slack = np.abs(SAMPLES.astype(np.float64)) * 2.0**-52
    assert_one_ulp(operators.gelu_apprx_tanh.activate(SAMPLES), expected, slack)


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_are_the_slopes_of_their_functions(name):
    """A five-point difference of step h errs by h**4 / 30 * f'''''(x) and roundoff * |x| / h."""
    f, h = DERIVATIVES[name], 1e-3
    for x in SAMPLES[np.abs(SAMPLES) <= 12].tolist():
        slope = (8 * (f(x + h) - f(x - h)) - (f(x + 2 * h) - f(x - 2 * h))) / (12 * h)
        bound = h**4 + 2.0**-52 * (1 + abs(x)) / h + ONE_ULP
        assert abs(operators.OPERATORS[name].activate(np.float32([x]))[0] - slope) <= bound


def test_erf_is_accurate_everywhere():
    x = np.concatenate([np.linspace(-7, 7, 5001), np.geomspace(1e-30, 1, 500)]).astype(np.float32)
    expected = np.array([math.erf(value) for value in x.tolist()])
    got = operators.erf.activate(x)
    assert np.abs(got - expected).max() <= 2.0**-24
    assert_one_ulp(got, expected)


def test_the_error_functions_keep_the_accuracy_they_state():
    x = np.concatenate([np.linspace(-10, 10, 4001), np.geomspace(1e-30, 1, 500)])
    x = x[x != 0]
    for ours, reference in [(error_function.erf, math.erf), (error_function.erfc, math.erfc)]:
        expected = np.array([reference(value) for value in x.tolist()])
        assert np.all(np.abs(ours(x) - expected) <= 1e-9 * np.abs(expected))


def test_gelu_is_accurate_in_its_tail():
    x = np.linspace(-14, 0, 2001).astype(np.float32)
    assert_one_ulp(operators.gelu.activate(x), np.array([gelu(value) for value in x.tolist()]))


@pytest.mark.parametrize(
    "name", [*DEFINITIONS, *OF_POSITIVE, *DERIVATIVES, "sin", "gelu_apprx_tanh"]
)
def test_nan_stays_nan(name):
    assert np.isnan(operators.OPERATORS[name].activate(np.float32([np.nan])))[0]


@pytest.mark.parametrize(
    ("name", "left", "right"),
    [
        ("copy", -math.inf, math.inf), ("square", math.inf, math.inf), ("abs", math.inf, math.inf),
        ("sign", -1, 1), ("relu", 0, math.inf), ("exp", 0, math.inf), ("tanh", -1, 1),
        ("erf", -1, 1), ("erf_dx", 0, 0), ("sigmoid", 0, 1), ("silu", 0, math.inf),
        ("silu_dx", 0, 1), ("gelu", 0, math.inf), ("gelu_dx", 0, 1),
        ("gelu_apprx_tanh", 0, math.inf), ("gelu_apprx_sigmoid", 0, math.inf),
        ("gelu_apprx_sigmoid_dx", 0, 1), ("softplus", 0, math.inf), ("mish", 0, math.inf),
        ("reciprocal", 0, 0), ("arctan", np.float32(-math.pi / 2), np.float32(math.pi / 2)),
    ],
)  # fmt: skip
def test_limits_at_infinity_and_far_from_zero(name, left, right):
    ends = operators.OPERATORS[name].activate(np.float32([-np.inf, np.inf]))
    assert ends.tolist() == [left, right]
    far = operators.OPERATORS[name].activate(np.float32([-1e30, 1e30]))
    assert np.all(np.isfinite(far) | np.isinf(ends))


def test_singular_points():
    zeros = np.float32([0.0, -0.0])
    assert operators.reciprocal.activate(zeros).tolist() == [math.inf, -math.inf]
    assert operators.rsqrt.activate(zeros[:1]).tolist() == [math.inf]
    assert operators.log.activate(zeros).tolist() == [-math.inf, -math.inf]
    for op in (operators.log, operators.sqrt, operators.rsqrt):
        assert np.isnan(op.activate(np.float32([-1.0])))[0]
        assert np.isfinite(op.activate(np.float32([1.0])))[0]


def test_prelu_reads_its_slope():
    x = np.float32([[-2, 0, 3], [-4, -0.5, np.inf]])
    slopes = np.float32([[0.5], [-1]])
    assert operators.prelu.activate(x).tolist() == [[0, 0, 3], [0, 0, math.inf]]
    assert operators.prelu.activate(x, 0.25).tolist() == [[-0.5, 0, 3], [-1, -0.125, math.inf]]
    assert operators.prelu.activate(x, slopes).tolist() == [[-1, 0, 3], [4, 0.5, math.inf]]
    assert np.isnan(operators.prelu.activate(np.float32([np.nan]), 0.5))[0]


def test_the_slope_changes_no_other_function():
    x = np.float32([-2, 3])
    assert operators.relu.activate(x, 0.5).tolist() == [0, 3]


def test_sin_inside_its_range():
    x = np.linspace(-math.pi, math.pi, 1001).astype(np.float32)
    expected = np.array([math.sin(value) for value in x.tolist()])
    assert_one_ulp(operators.sin.activate(x), expected)


def test_sin_extrapolates_a_cubic_outside():
    assert operators.sin.activate(np.float32([9.0]))[0] == pytest.approx(27.65, abs=0.005)
    x = np.float32([3.5, 4.25, 6.0, 9.0, 100.0])
    got = operators.sin.activate(x).astype(np.float64)
    cubic = np.polynomial.Polynomial([0, -1, 0, 1 / 6])
    assert_one_ulp(operators.sin.activate(x), cubic(x.astype(np.float64) - math.pi))
    assert np.array_equal(operators.sin.activate(-x), -got)
    assert np.isinf(operators.sin.activate(np.float32([np.inf])))[0]


@pytest.mark.parametrize("name", ["abs", "square", "relu", "rsqrt", "reciprocal"])
def test_unary_operators_of_the_alu_are_the_same_functions(name):
    op = operators.OPERATORS[name]
    assert np.array_equal(op.apply(POSITIVE), op.activate(POSITIVE))
    assert op.arity == 1


RANGES = {
    "log": (2.0**-64, 2.0**64),
    "sin": (-math.pi, math.pi),
    "arctan": (-math.pi / 2, math.pi / 2),
    "sqrt": (2.0**-116, 2.0**118),
    "rsqrt": (2.0**-87, 2.0**97),
    "reciprocal": (2.0**-42, 2.0**42),
}


def test_only_documented_functions_have_a_range():
    bounded = {name: op.valid_range for name, op in operators.OPERATORS.items() if op.valid_range}
    assert bounded == RANGES


@pytest.mark.parametrize("name", RANGES)
def test_values_outside_the_valid_range_are_noticed(name):
    op = operators.OPERATORS[name]
    low, high = np.float32(RANGES[name])
    infinity = np.float32(np.inf)
    outside_low, outside_high = np.nextafter(low, -infinity), np.nextafter(high, infinity)
    assert not op.out_of_range(np.float32([low, high, np.nan]))
    assert op.out_of_range(np.float32([high, outside_low]))
    assert op.out_of_range(np.float32([outside_high, low]))


def test_the_range_of_reciprocal_is_one_of_magnitudes():
    assert not operators.reciprocal.out_of_range(np.float32([-1, -(2.0**42)]))
    assert operators.reciprocal.out_of_range(np.float32([-(2.0**43)]))
    assert operators.reciprocal.out_of_range(np.float32([0]))
    assert not operators.gelu.out_of_range(np.float32([np.inf]))

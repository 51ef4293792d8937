"""Element-wise functions of nki.language against NumPy, and what they refuse."""

import math

import ml_dtypes
import numpy as np
import pytest

import nkisim.language as nl
from nkisim.errors import NkiValidationError, UnsupportedError
from nkisim.running.host_arrays import Spec
from nkisim.running.kernel import run
from tile_function import instructions, on_tiles, run_on_tiles

RNG = np.random.default_rng(7)
X = RNG.standard_normal((128, 64)).astype(np.float32)
Y = RNG.standard_normal((128, 64)).astype(np.float32)
SMALL = RNG.integers(0, 4, (128, 64)).astype(np.float32)  # many equal pairs
FLAGS = RNG.integers(0, 2, (2, 128, 64)).astype(np.float32)
BITS = RNG.integers(0, 256, (2, 128, 64)).astype(np.uint8)

ARITHMETIC = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
COMPARISONS = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}
LOGIC = {
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}
BITWISE = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}


@pytest.mark.parametrize("name", ARITHMETIC)
@pytest.mark.parametrize("machine", ["trn1", "trn2", "trn3"])
def test_arithmetic_of_two_tiles_and_of_a_tile_and_a_number(name, machine):
    function, reference = getattr(nl, name), ARITHMETIC[name]
    np.testing.assert_array_equal(on_tiles(function, X, Y, machine=machine), reference(X, Y))
    half = np.float32(0.5)
    result = on_tiles(lambda x: function(x, 0.5), X, machine=machine)
    np.testing.assert_array_equal(result, reference(X, half))
    result = on_tiles(lambda x: function(0.5, x), X, machine=machine)
    np.testing.assert_array_equal(result, reference(half, X))


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_give_ones_and_zeros_in_the_dtype_of_the_input(name):
    function, reference = getattr(nl, name), COMPARISONS[name]
    other = SMALL[::-1].copy()
    result = on_tiles(function, SMALL, other)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, reference(SMALL, other))
    result = on_tiles(lambda x: function(x, 2, dtype=nl.uint8), SMALL)
    assert result.dtype == np.uint8
    np.testing.assert_array_equal(result, reference(SMALL, 2))


@pytest.mark.parametrize("name", LOGIC)
def test_logic_on_zeros_and_ones(name):
    result = on_tiles(getattr(nl, name), *FLAGS)
    np.testing.assert_array_equal(result, LOGIC[name](*FLAGS))


@pytest.mark.parametrize("name", BITWISE)
def test_bitwise_functions_on_integers(name):
    function = getattr(nl, name)
    np.testing.assert_array_equal(on_tiles(function, *BITS), BITWISE[name](*BITS))
    result = on_tiles(lambda x: function(x, 0x3C), BITS[0])
    np.testing.assert_array_equal(result, BITWISE[name](BITS[0], np.uint8(0x3C)))


def test_shifts():
    words = RNG.integers(0, 2**16, (128, 64)).astype(np.int32)
    result = on_tiles(lambda x: nl.left_shift(x, 3), words)
    np.testing.assert_array_equal(result, words << 3)
    result = on_tiles(lambda x: nl.right_shift(x, 3), words)
    np.testing.assert_array_equal(result, words >> 3)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32])
def test_invert_flips_every_bit(dtype):
    words = RNG.integers(0, 100, (128, 64)).astype(dtype)
    np.testing.assert_array_equal(on_tiles(nl.invert, words), ~words)


def test_logical_not_and_negative():
    np.testing.assert_array_equal(on_tiles(nl.logical_not, FLAGS[0]), 1 - FLAGS[0])
    np.testing.assert_array_equal(on_tiles(nl.negative, X), -X)


def test_power_of_two_tiles_within_rounding_of_float32():
    base, exponent = np.abs(X) + 0.5, SMALL
    result = on_tiles(nl.power, base, exponent)
    reference = base.astype(np.float64) ** exponent
    np.testing.assert_allclose(result, reference, rtol=4 * np.finfo(np.float32).eps)


@pytest.mark.parametrize(("name", "choose"), [("abs_max", np.greater), ("abs_min", np.less)])
def test_abs_max_and_abs_min_keep_the_sign_and_take_a_column(name, choose):
    y = -X[:, :1].copy()
    result = on_tiles(getattr(nl, name), X, y, machine="trn3")
    reference = np.where(choose(np.abs(X), np.abs(y)), X, np.broadcast_to(y, X.shape))
    np.testing.assert_array_equal(result, reference)


UNARY = {
    "abs": np.abs,
    "square": np.square,
    "exp": np.exp,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "sign": np.sign,
    "arctan": np.arctan,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "erf": np.vectorize(math.erf),
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x),
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
    "gelu_apprx_sigmoid": lambda x: x / (1 + np.exp(-1.702 * x)),
}
POSITIVE = {
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
}


@pytest.mark.parametrize("name", UNARY)
def test_unary_functions_within_a_few_roundings_of_float32(name):
    x = np.clip(X, -1.5, 1.5)  # inside the valid range of all of them
    result = on_tiles(getattr(nl, name), x)
    reference = UNARY[name](x.astype(np.float64))
    # Each is a few float32 operations on values of magnitude 5 at most.
    np.testing.assert_allclose(result, reference, rtol=0, atol=5 * 8 * np.finfo(np.float32).eps)


@pytest.mark.parametrize("name", POSITIVE)
def test_unary_functions_of_positive_numbers(name):
    x = np.abs(X) + 0.5
    result = on_tiles(getattr(nl, name), x)
    reference = POSITIVE[name](x.astype(np.float64))
    np.testing.assert_allclose(result, reference, rtol=0, atol=2 * np.finfo(np.float32).eps)


@pytest.mark.parametrize("name", ["gelu_dx", "gelu_apprx_tanh", "gelu_apprx_sigmoid_dx", "silu_dx"])
def test_the_remaining_activations_are_one_instruction_of_the_scalar_engine(name):
    assert instructions(getattr(nl, name), X) == [("scalar", "activation")]


def test_a_result_is_rounded_once_to_the_dtype_asked_for():
    x = X.astype(ml_dtypes.bfloat16)
    result = on_tiles(nl.multiply, x, x)
    assert result.dtype == ml_dtypes.bfloat16
    wide = x.astype(np.float32)
    np.testing.assert_array_equal(result, (wide * wide).astype(ml_dtypes.bfloat16))
    result = on_tiles(lambda t: nl.add(t, 1.0, dtype=nl.float16), x)
    np.testing.assert_array_equal(result, (wide + 1).astype(np.float16))


def test_functions_issue_the_instruction_of_their_engine():
    assert instructions(nl.add, X, Y) == [("vector", "tensor_tensor")]
    assert instructions(lambda x: nl.add(x, 1.0), X) == [("vector", "tensor_scalar")]
    assert instructions(nl.exp, X) == [("scalar", "activation")]
    assert instructions(nl.rsqrt, np.abs(X) + 1) == [("gpsimd", "tensor_scalar")]
    assert instructions(nl.reciprocal, np.abs(X) + 1) == [("vector", "reciprocal")]
    assert instructions(nl.power, np.abs(X), Y) == [("gpsimd", "tensor_tensor")]


def test_a_shape_only_run_has_the_same_trace():
    def both(x, y):
        return nl.add(nl.exp(x), nl.negative(y))

    spec = Spec(X.shape, "float32")
    shapes = run_on_tiles(both, spec, spec, values=False)
    assert shapes.trace.key() == run_on_tiles(both, X, Y).trace.key()


REFUSALS = [
    (lambda x: nl.add(x, x[:, :1]), "nl.add", "do not broadcast", "broadcast_to"),
    (lambda _: nl.add(1.0, 2.0), "nl.add", "is a tile", "nl.full"),
    (lambda _: nl.exp(2.0), "nl.exp", "is a tile", "nl.full"),
    (lambda x: nl.power(x, 2.0), "nl.power", "both operands are tiles", "nl.full"),
    (lambda x: nl.add(x, nl.copy(x, nl.bfloat16)), "nl.add", "dtype of the result", "dtype="),
    (nl.prelu, "nl.prelu", "no function", "op=nl.prelu"),
]


@pytest.mark.parametrize(("function", "name", "limit", "remedy"), REFUSALS)
def test_refusals_name_the_function_the_limit_and_the_remedy(function, name, limit, remedy):
    with pytest.raises(NkiValidationError) as caught:
        on_tiles(function, X)
    assert name in str(caught.value)
    assert limit in caught.value.limit
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("name", "remedy"), [("divide", "reciprocal"), ("mod", "nl.floor"), ("fmod", "nl.trunc")]
)
def test_division_is_refused_with_the_way_around_it(name, remedy):
    with pytest.raises(UnsupportedError) as caught:
        on_tiles(getattr(nl, name), X, Y)
    assert caught.value.instruction == f"nl.{name}"
    assert remedy in caught.value.remedy


def test_an_hbm_operand_is_refused_by_the_instruction():
    def kernel(x):
        nl.add(x, x)

    with pytest.raises(NkiValidationError, match="tensor_tensor: data1 lives in private_hbm"):
        run(kernel, X)


def test_operators_keep_their_identity_and_stay_usable_as_ops():
    assert {nl.silu: "silu"}[nl.silu] == "silu"
    assert nl.add is not nl.subtract
    assert callable(nl.add)

"""Operators as tokens and functions, the ALU's arithmetic and bits, and the reductions."""

import copy
import functools
import inspect
import itertools
import math
import operator
import pickle

import numpy as np
import pytest

from nkisim.errors import NkiValidationError
from nkisim.numerics import operators

BITVEC = {"invert", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"}
BINARY = {
    "add", "subtract", "multiply", "maximum", "minimum", "equal", "not_equal", "greater_equal",
    "greater", "less_equal", "less", "logical_and", "logical_or", "logical_xor", "power",
    "abs_max", "abs_min", "bypass",
}  # fmt: skip
UNARY = {"abs", "square", "relu", "rsqrt", "reciprocal"}
ACTIVATIONS = {
    "copy", "square", "sigmoid", "relu", "prelu", "gelu", "gelu_dx", "gelu_apprx_tanh",
    "gelu_apprx_sigmoid", "gelu_apprx_sigmoid_dx", "silu", "silu_dx", "tanh", "softplus", "mish",
    "erf", "erf_dx", "exp", "sign", "abs", "log", "sin", "arctan", "sqrt", "rsqrt", "reciprocal",
}  # fmt: skip
REDUCTIONS = {
    "bitwise_and", "bitwise_or", "bitwise_xor", "add", "subtract", "multiply", "maximum",
    "minimum", "logical_and", "logical_or", "logical_xor", "max", "min",
}  # fmt: skip

UNIT_ROUNDOFF = 2.0**-24

POINTS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, -3.0, 7.25, 1e-30, 1e30, -1e30, 1 / 3]
SPECIAL = [math.inf, -math.inf, math.nan]


def pairs(points):
    x, y = np.array(list(itertools.product(points, points)), np.float32).T
    return x, y


def names_where(predicate):
    return {name for name, op in operators.OPERATORS.items() if predicate(op)}


def test_the_table_is_complete():
    others = {"max", "min", "average"}
    assert set(operators.OPERATORS) == BITVEC | BINARY | UNARY | ACTIVATIONS | others
    assert names_where(lambda op: op.bitvec) == BITVEC
    assert names_where(lambda op: op.arithmetic) == BINARY | UNARY
    assert names_where(lambda op: op.activation) == ACTIVATIONS
    assert names_where(lambda op: op.reduction) == REDUCTIONS


def test_operators_of_the_fourth_generation():
    later = names_where(lambda op: op.minimum_generation == 4)
    assert later == {"abs_max", "abs_min", "square", "relu", "bypass"}
    assert names_where(lambda op: op.minimum_generation == 2) == set(operators.OPERATORS) - later


@pytest.mark.parametrize("name", operators.OPERATORS)
def test_an_operator_is_one_object_with_a_name(name):
    op = operators.OPERATORS[name]
    assert getattr(operators, name) is op
    assert op.name == op.__name__ == name
    assert repr(op) == f"nl.{name}"
    assert copy.copy(op) is op
    assert copy.deepcopy({"op": op})["op"] is op
    assert pickle.loads(pickle.dumps(op)) is op  # noqa: S301


def test_operators_compare_by_identity_and_are_keys():
    assert len({op: op.name for op in operators.OPERATORS.values()}) == len(operators.OPERATORS)
    assert operators.max != operators.maximum
    assert operators.add == operators.OPERATORS["add"]


def test_signatures_are_those_of_the_functions():
    assert str(inspect.signature(operators.add)) == "(x, y, dtype=None)"
    assert str(inspect.signature(operators.gelu)) == "(x, dtype=None)"
    assert str(inspect.signature(operators.invert)) == "(x, dtype=None)"
    for op in (operators.max, operators.min):
        assert str(inspect.signature(op)) == "(x, axis, dtype=None, keepdims=False)"


def test_a_call_goes_to_the_eager_function(monkeypatch):
    monkeypatch.setattr(operators.add, "eager", lambda *args, **kwargs: (args, kwargs))
    assert operators.add(1, 2, dtype="float32") == ((1, 2), {"dtype": "float32"})


def test_a_call_without_an_eager_function_names_the_operator(monkeypatch):
    monkeypatch.setattr(operators.average, "eager", None)
    with pytest.raises(NkiValidationError, match=r"nl\.average.*\n.*\n.*op=nl\.average"):
        operators.average(1)


EXACT = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "greater_equal": operator.ge,
    "greater": operator.gt,
    "less_equal": operator.le,
    "less": operator.lt,
    "logical_and": lambda x, y: bool(x) and bool(y),
    "logical_or": lambda x, y: bool(x) or bool(y),
    "logical_xor": lambda x, y: bool(x) != bool(y),
    "abs_max": lambda x, y: x if abs(x) > abs(y) else y,
    "abs_min": lambda x, y: x if abs(x) < abs(y) else y,
    "bypass": lambda x, y: x,  # noqa: ARG005
}


@pytest.mark.parametrize("name", EXACT)
def test_binary_operators_are_the_rounded_exact_result(name):
    """float64 holds the sum and product of two float32 well enough to be rounded twice."""
    x, y = pairs([*POINTS, *SPECIAL])
    with np.errstate(all="ignore"):
        reference = np.array(
            [EXACT[name](a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
        )
        expected = reference.astype(np.float32)
    result = operators.OPERATORS[name].apply(x, y)
    assert result.dtype == np.float32
    assert np.array_equal(result, expected, equal_nan=True)


@pytest.mark.parametrize(("name", "choose"), [("maximum", max), ("minimum", min)])
def test_maximum_and_minimum_keep_nan(name, choose):
    x, y = pairs([*POINTS, *SPECIAL])
    result = operators.OPERATORS[name].apply(x, y)
    for a, b, got in zip(x.tolist(), y.tolist(), result.tolist(), strict=True):
        if math.isnan(a) or math.isnan(b):
            assert math.isnan(got)
        else:
            assert got == choose(a, b)


def test_absolute_extremes_take_y_in_a_tie():
    x, y = np.float32([1, -1, 5, -5]), np.float32([-1, 1, -3, 3])
    assert operators.abs_max.apply(x, y).tolist() == [-1, 1, 5, -5]
    assert operators.abs_min.apply(x, y).tolist() == [-1, 1, -3, 3]


def test_power():
    x = np.float32([2, 2, -2, -2, 0, 0, 9, 1e20, 0.5, -8])
    y = np.float32([10, -1, 3, 2, 0, 2, 0.5, 2, 150, 1 / 3])
    result = operators.power.apply(x, y)
    assert result[:7].tolist() == [1024, 0.5, -8, 4, 1, 0, 3]
    assert result[7] == np.inf
    assert result[8] == 0.0
    assert np.isnan(result[9])


def test_operands_may_be_numbers_and_broadcast():
    tile = np.arange(6, dtype=np.float32).reshape(2, 3)
    column = np.float32([[10], [20]])
    assert operators.add.apply(tile, 0.5).tolist() == [[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]]
    assert operators.subtract.apply(1, tile).tolist() == [[1, 0, -1], [-2, -3, -4]]
    assert operators.add.apply(tile, column).tolist() == [[10, 11, 12], [23, 24, 25]]
    assert operators.bypass.apply(column, tile).tolist() == [[10] * 3, [20] * 3]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
def test_bit_operators_work_on_patterns(dtype):
    width = 8 * np.dtype(dtype).itemsize
    patterns = [0, 1, 2, 0x55, 0xAA, 2 ** (width - 1), 2**width - 1]
    unsigned = np.array(list(itertools.product(patterns, patterns)), f"uint{width}")
    x, y = unsigned.T.copy().view(dtype)
    meanings = {"bitwise_and": operator.and_, "bitwise_or": operator.or_}
    meanings["bitwise_xor"] = operator.xor
    for name, meaning in meanings.items():
        result = operators.OPERATORS[name].apply_bits(x, y)
        assert result.dtype == np.dtype(dtype)
        assert result.view(f"uint{width}").tolist() == [meaning(a, b) for a, b in unsigned.tolist()]
    inverted = operators.invert.apply_bits(x).view(f"uint{width}")
    assert inverted.tolist() == [2**width - 1 - a for a in unsigned[:, 0].tolist()]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
def test_shifts_are_logical(dtype):
    width = 8 * np.dtype(dtype).itemsize
    patterns = np.array([1, 0x53, 2 ** (width - 1), 2**width - 1], f"uint{width}")
    for count in [0, 1, 3, width - 1, width, width + 5]:
        counts = np.full(4, count, dtype)
        left = operators.left_shift.apply_bits(patterns.view(dtype), counts)
        right = operators.right_shift.apply_bits(patterns.view(dtype), counts)
        assert left.dtype == right.dtype == np.dtype(dtype)
        mask = 2**width - 1
        assert left.view(f"uint{width}").tolist() == [p << count & mask for p in patterns.tolist()]
        assert right.view(f"uint{width}").tolist() == [p >> count for p in patterns.tolist()]


def test_bit_operands_may_be_numbers_and_narrower_arrays():
    tile = np.array([[1, -1]], np.int32)
    assert operators.bitwise_and.apply_bits(tile, 0xFF).tolist() == [[1, 255]]
    assert operators.bitwise_xor.apply_bits(-1, tile).tolist() == [[-2, 0]]
    assert operators.right_shift.apply_bits(tile, np.array([[1], [2]], np.uint8)).tolist() == [
        [0, 2**31 - 1],
        [0, 2**30 - 1],
    ]


def test_bit_operators_refuse_floats():
    with pytest.raises(NkiValidationError, match=r"nl\.invert of float32"):
        operators.invert.apply_bits(np.float32([1]))
    with pytest.raises(NkiValidationError, match="Python numbers only"):
        operators.bitwise_and.apply_bits(1, 2)


@pytest.mark.parametrize(
    ("use", "wanted", "held"),
    [
        (operators.invert.apply, "an arithmetic", "a bitvec operator"),
        (operators.gelu.apply, "an arithmetic", "an activation function"),
        (lambda x: operators.add.apply_bits(x, x), "a bitvec", "operator and a reduction"),
        (lambda x: operators.power.reduce(x, 0), "a reduction", "an arithmetic operator"),
        (operators.add.activate, "an activation", "an arithmetic operator"),
    ],
)
def test_a_meaning_an_operator_lacks_is_refused(use, wanted, held):
    with pytest.raises(NkiValidationError, match=rf"as {wanted}[^\n]*\n.*it is .*{held}"):
        use(np.float32([1]))


def test_the_number_of_operands_is_checked():
    one = np.float32([1])
    with pytest.raises(NkiValidationError, match=r"nl\.add of 1 operands\n.*takes 2"):
        operators.add.apply(one)
    with pytest.raises(NkiValidationError, match=r"nl\.invert of 2 operands\n.*takes 1"):
        operators.invert.apply_bits(np.array([1]), np.array([1]))


AXES = [(0,), (1,), (-1,), (1, 2), (2, 1), (0, 2), (0, 1, 2), (-1, -2)]


def groups(array, axes):
    """For every kept index in row-major order, the elements that fold together, in order."""
    reduced = sorted(axis % array.ndim for axis in axes)
    kept = [axis for axis in range(array.ndim) if axis not in reduced]
    sizes = [array.shape[axis] for axis in kept]
    last = np.transpose(array, [*kept, *reduced])
    return sizes, [last[index].ravel().tolist() for index in np.ndindex(*sizes)]


def random_array():
    return np.random.default_rng(3).normal(size=(3, 4, 5)).astype(np.float32)


@pytest.mark.parametrize("axes", AXES, ids=str)
def test_sums_are_within_the_error_of_any_order(axes):
    array = random_array()
    sizes, elements = groups(array, axes)
    result = operators.add.reduce(array, axes)
    assert result.dtype == np.float32
    assert list(result.shape) == sizes
    for got, terms in zip(result.ravel().tolist(), elements, strict=True):
        bound = len(terms) * UNIT_ROUNDOFF * math.fsum(map(abs, terms))
        assert abs(got - math.fsum(terms)) <= bound


@pytest.mark.parametrize("axes", AXES, ids=str)
def test_products_averages_and_differences(axes):
    array = random_array()
    _, elements = groups(array, axes)
    product = operators.multiply.reduce(array, axes).ravel().tolist()
    average = operators.average.reduce(array, axes).ravel().tolist()
    difference = operators.subtract.reduce(array, axes).ravel().tolist()
    for i, terms in enumerate(elements):
        n, magnitude = len(terms), math.fsum(map(abs, terms))
        expected = math.prod(terms)
        # Of second order in the roundoff, so a factor of two is ample for these few factors.
        assert abs(product[i] - expected) <= 2 * n * UNIT_ROUNDOFF * abs(expected)
        assert abs(average[i] - math.fsum(terms) / n) <= (n + 1) * UNIT_ROUNDOFF * magnitude / n
        expected = terms[0] - math.fsum(terms[1:])
        assert abs(difference[i] - expected) <= n * UNIT_ROUNDOFF * magnitude


def test_differences_fold_from_the_first_element():
    array = np.float32([[10, 1, 2], [4, 5, 6]])
    assert operators.subtract.reduce(array, 1).tolist() == [7, -7]
    assert operators.subtract.reduce(array, (0, 1)).tolist() == 10 - 1 - 2 - 4 - 5 - 6


EXACT_REDUCTIONS = {
    "maximum": max,
    "minimum": min,
    "max": max,
    "min": min,
    "logical_and": lambda terms: float(all(terms)),
    "logical_or": lambda terms: float(any(terms)),
    "logical_xor": lambda terms: float(sum(map(bool, terms)) % 2),
    "abs_max": functools.partial(functools.reduce, EXACT["abs_max"]),
    "abs_min": functools.partial(functools.reduce, EXACT["abs_min"]),
}


@pytest.mark.parametrize("name", EXACT_REDUCTIONS)
@pytest.mark.parametrize("axes", AXES, ids=str)
def test_exact_reductions(name, axes):
    array = np.random.default_rng(4).integers(-2, 3, (3, 4, 5)).astype(np.float32)
    sizes, elements = groups(array, axes)
    result = operators.OPERATORS[name].reduce(array, axes)
    assert result.dtype == np.float32
    assert list(result.shape) == sizes
    assert result.ravel().tolist() == [EXACT_REDUCTIONS[name](terms) for terms in elements]


@pytest.mark.parametrize(
    ("name", "meaning"),
    [("bitwise_and", operator.and_), ("bitwise_or", operator.or_), ("bitwise_xor", operator.xor)],
)
def test_bit_reductions_keep_the_integer_type(name, meaning):
    array = np.random.default_rng(5).integers(0, 2**16, (3, 4, 5), np.uint16)
    for axes in AXES:
        _, elements = groups(array, axes)
        result = operators.OPERATORS[name].reduce(array, axes)
        assert result.dtype == np.uint16
        assert result.ravel().tolist() == [functools.reduce(meaning, terms) for terms in elements]


@pytest.mark.parametrize("name", sorted(REDUCTIONS | {"average", "abs_max", "abs_min"}))
def test_reductions_may_keep_their_axes(name):
    op = operators.OPERATORS[name]
    array = np.arange(24, dtype=np.int32 if op.bitvec else np.float32).reshape(2, 3, 4)
    kept = op.reduce(array, (0, 2), keepdims=True)
    assert kept.shape == (1, 3, 1)
    assert np.array_equal(kept.ravel(), op.reduce(array, (0, 2)))


@pytest.mark.parametrize(
    "name", ["add", "multiply", "maximum", "minimum", "max", "min", "abs_max", "abs_min"]
)
def test_the_identity_leaves_a_value_as_it_is(name):
    op = operators.OPERATORS[name]
    values = np.float32([-3, 0.5, 7, -np.inf, np.inf])
    assert np.array_equal(op.apply(np.float32(op.identity), values), values)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_the_identity_leaves_bits_as_they_are(name):
    op = operators.OPERATORS[name]
    values = np.array([0, 0x5A, 0xFF], np.uint8)
    assert np.array_equal(op.apply_bits(values, op.identity), values)


def test_nan_and_infinity_reduce_without_a_warning():
    array = np.float32([[np.inf, -np.inf], [np.nan, 1]])
    assert np.isnan(operators.add.reduce(array, 1)).all()
    assert np.isnan(operators.maximum.reduce(array, 1)).tolist() == [False, True]
    assert np.isinf(operators.multiply.reduce(np.float32([1e30, 1e30]), 0))

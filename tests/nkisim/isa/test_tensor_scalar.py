"""tensor_scalar against NumPy, and its rules."""

import ml_dtypes
import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from isa_tiles import Psum, after, assert_shape_only_agrees, issued, refused, run_tiles, zeros
from nkisim.enums import engine
from nkisim.errors import UnsupportedError

BFLOAT16 = ml_dtypes.bfloat16
UNIT_ROUNDOFF = 2.0**-24


def floats(*shape):
    return np.random.default_rng(11).normal(size=shape).astype(np.float32)


def step(op0, operand0, *rest, **options):
    return lambda dst, data, *_: nisa.tensor_scalar(dst, data, op0, operand0, *rest, **options)


def test_one_step_with_a_number():
    data = floats(128, 20)
    result = after(step(nl.multiply, 0.1), zeros(128, 20), data)[0]
    np.testing.assert_array_equal(result, data * np.float32(0.1))


def test_two_steps_round_in_between():
    data = floats(128, 20)
    result = after(step(nl.multiply, 0.1, False, nl.add, -3, False), zeros(128, 20), data)[0]
    np.testing.assert_array_equal(result, data * np.float32(0.1) + np.float32(-3))


@pytest.mark.parametrize("reverse0", [False, True])
@pytest.mark.parametrize("reverse1", [False, True])
def test_columns_are_spread_along_every_free_axis_and_steps_reverse(reverse0, reverse1):
    data, first, second = floats(64, 3, 4), floats(64, 1), floats(64, 1) * 2

    def issue(dst, x, a, b):
        nisa.tensor_scalar(dst, x, nl.subtract, a, reverse0, nl.subtract, b, reverse1)

    a, b = first[:, :, None], second[:, :, None]
    inner = a - data if reverse0 else data - a
    expected = b - inner if reverse1 else inner - b
    result = after(issue, zeros(64, 3, 4), Psum(data), first, Psum(second))[0]
    np.testing.assert_array_equal(result, expected)


def test_a_narrow_dst_is_rounded_once_and_integers_saturate():
    data = floats(16, 20)
    clamp = step(nl.maximum, -0.5, op1=nl.minimum, operand1=0.5)
    result = after(clamp, zeros(16, 20, dtype=BFLOAT16), data)[0]
    np.testing.assert_array_equal(result, np.clip(data, -0.5, 0.5).astype(BFLOAT16))
    result = after(step(nl.multiply, 1000.0), zeros(16, 20, dtype=np.int16), data * 40)[0]
    thousandfold = data * np.float32(40) * np.float32(1000)
    np.testing.assert_array_equal(result, np.clip(np.rint(thousandfold), -(2**15), 2**15 - 1))


def test_integers_are_cast_to_float32_first():
    data = np.array([[16777217, 5]], np.int32)
    result = after(step(nl.add, 0), zeros(1, 2, dtype=np.int32), data)[0]
    np.testing.assert_array_equal(result, [[16777216, 5]])


def test_in_place_on_a_strided_view():
    data = floats(8, 12)

    def issue(x):
        nisa.tensor_scalar(x[:, 1:12:3], x[:, 1:12:3], nl.multiply, 2.0)

    expected = data.copy()
    expected[:, 1::3] *= 2
    np.testing.assert_array_equal(after(issue, data)[0], expected)


def test_a_reversed_comparison():
    data = np.array([[1, 2, 3]], np.float32)
    result = after(step(nl.greater, 2.0, reverse0=True), zeros(1, 3, dtype=np.uint8), data)[0]
    np.testing.assert_array_equal(result, [[1, 0, 0]])


@pytest.mark.parametrize("operand", [None, 0, 0.0])
def test_unary_operators_take_no_operand(operand):
    data = floats(8, 12)
    result = after(step(nl.abs, operand), zeros(8, 12), data)[0]
    np.testing.assert_array_equal(result, np.abs(data))
    then = step(nl.abs, operand, op1=nl.multiply, operand1=2.0)
    np.testing.assert_array_equal(after(then, zeros(8, 12), data)[0], 2 * np.abs(data))


def test_square_and_relu_exist_on_trn3():
    data = floats(8, 12)
    result = after(step(nl.square, None), zeros(8, 12), data, machine="trn3")[0]
    np.testing.assert_array_equal(result, data * data)
    result = after(step(nl.relu, 0), zeros(8, 12), data, machine="trn3")[0]
    np.testing.assert_array_equal(result, np.maximum(data, 0))
    with refused("tensor_scalar", r"nl\.square from NeuronCore-v4 on"):
        after(step(nl.square, None), zeros(8, 12), data)


@pytest.mark.parametrize("asked", [engine.unknown, engine.gpsimd])
def test_rsqrt_runs_on_gpsimd(asked):
    data = np.square(floats(8, 12)) + 0.1
    ran = run_tiles(step(nl.rsqrt, 0.0, engine=asked), zeros(8, 12), data)
    expected = 1 / np.sqrt(data.astype(np.float64))
    np.testing.assert_allclose(ran.outputs[0], expected, rtol=UNIT_ROUNDOFF)
    assert issued(ran, "tensor_scalar").engine is engine.gpsimd


def test_rsqrt_runs_nowhere_else():
    for asked in (engine.vector, engine.scalar):
        with refused("tensor_scalar", r"nl\.rsqrt|nl\.multiply"):
            after(step(nl.rsqrt, 0.0, engine=asked), zeros(8, 12), zeros(8, 12))
    with refused("tensor_scalar", r"GpSimd runs nl\.rsqrt and nothing else"):
        after(step(nl.add, 0.0, engine=engine.gpsimd), zeros(8, 12), zeros(8, 12))
    with refused("tensor_scalar", "GpSimd engine does not reach PSUM"):
        after(step(nl.rsqrt, 0.0), zeros(8, 12), Psum(zeros(8, 12)))


@pytest.mark.parametrize(
    "steps",
    [
        {"op0": nl.multiply, "operand0": 2.0, "op1": nl.add, "operand1": 1.0},
        {"op0": nl.multiply, "operand0": 2.0},
        {"op0": nl.add, "operand0": 2.0},
    ],
)
def test_the_scalar_engine_scales_and_shifts(steps):
    def issue(dst, data):
        nisa.tensor_scalar(dst, data, engine=engine.scalar, **steps)

    data = floats(8, 12)
    ran = run_tiles(issue, zeros(8, 12), data)
    first = data * 2 if steps["op0"] is nl.multiply else data + 2
    np.testing.assert_array_equal(ran.outputs[0], first + 1 if "op1" in steps else first)
    assert issued(ran, "tensor_scalar").engine is engine.scalar


@pytest.mark.parametrize(
    "steps",
    [
        (nl.subtract, 1.0),
        (nl.add, 1.0, False, nl.multiply, 2.0),
        (nl.multiply, 1.0, False, nl.subtract, 2.0),
        (nl.maximum, 1.0),
    ],
)
def test_the_scalar_engine_does_nothing_else(steps):
    with refused("tensor_scalar", r"nl\.multiply then nl\.add, nl\.multiply alone, or nl\.add"):
        after(step(*steps, engine=engine.scalar), zeros(8, 12), zeros(8, 12))


def test_bits_with_numbers():
    data = np.array([[0b1010, 0xF0F0, 1]], np.uint16)
    masked = step(nl.right_shift, 1, op1=nl.bitwise_and, operand1=0xFF)
    result = after(masked, zeros(1, 3, dtype=np.uint16), data)[0]
    np.testing.assert_array_equal(result, (data >> 1) & 0xFF)
    shifted = after(step(nl.left_shift, 1, reverse0=True), zeros(1, 3, dtype=np.uint16), data % 9)
    np.testing.assert_array_equal(shifted[0], 1 << (data % 9))
    both = step(nl.bitwise_and, 3, op1=nl.left_shift, operand1=1, reverse1=True)
    powers = after(both, zeros(1, 3, dtype=np.uint16), data)[0]
    np.testing.assert_array_equal(powers, 1 << (data & 3))
    inverted = after(step(nl.invert, None), zeros(1, 3, dtype=np.uint16), data)[0]
    np.testing.assert_array_equal(inverted, ~data)


def test_bits_with_columns_are_exact_beyond_float32():
    data = np.array([[16777217, -1], [2**30 + 1, 7]], np.int32)
    mask = np.array([[16777217], [3]], np.int32)

    def issue(dst, x, column):
        nisa.tensor_scalar(dst, x, nl.bitwise_and, column)

    result = after(issue, zeros(2, 2, dtype=np.int32), data, mask)[0]
    np.testing.assert_array_equal(result, data & mask)


def test_bitvec_operators_need_the_vector_engine_and_integers():
    words = zeros(4, 8, dtype=np.int32)
    for asked in (engine.scalar, engine.gpsimd):
        with refused("tensor_scalar", "bitvec operators run on the Vector engine"):
            after(step(nl.bitwise_and, 1, engine=asked), words, words)
    with refused("tensor_scalar", "bitvec operators take integer types"):
        after(step(nl.bitwise_and, 1), words, zeros(4, 8))
    with refused("tensor_scalar", "bitvec operators take integers"):
        after(step(nl.bitwise_and, 1.5), words, words)
    with refused("tensor_scalar", "same number of bytes"):
        after(step(nl.bitwise_and, 1), words, zeros(4, 8, dtype=np.int8))


def test_both_operators_are_of_one_type():
    words = zeros(4, 8, dtype=np.int32)
    for first, second in ((nl.bitwise_and, nl.add), (nl.add, nl.bitwise_and)):
        with refused("tensor_scalar", "both operators are bitvec or both are arithmetic"):
            after(step(first, 1, op1=second, operand1=1), words, words)


@pytest.mark.parametrize("rest", [{"operand1": 1.0}, {"reverse1": True}, {"operand1": 0}], ids=str)
def test_what_belongs_to_a_second_step_needs_one(rest):
    with refused("tensor_scalar", "are for a second operator"):
        after(step(nl.add, 1.0, **rest), zeros(4, 8), zeros(4, 8))


@pytest.mark.parametrize(
    ("op", "operand", "limit"),
    [
        (None, 1.0, "an operator of nki.language"),
        (np.multiply, 1.0, "an operator of nki.language"),
        (nl.tanh, 0, "an element-wise ALU operator"),
        (nl.add, None, r"a Python number or a \(P, 1\) tile"),
        (nl.add, "1", r"a Python number or a \(P, 1\) tile"),
        (nl.abs, 2.0, "operand0 is None or 0 for a unary operator"),
        (nl.abs_max, 2.0, "from NeuronCore-v4 on"),
    ],
)
def test_operators_and_operands_that_do_not_fit(op, operand, limit):
    with refused("tensor_scalar", limit):
        after(step(op, operand), zeros(4, 8), zeros(4, 8))


def test_a_second_operator_needs_its_operand():
    with refused("tensor_scalar", r"operand1 of a binary operator"):
        after(step(nl.add, 1.0, op1=nl.add), zeros(4, 8), zeros(4, 8))
    with refused("tensor_scalar", "a unary operator has one input"):
        after(step(nl.abs, None, reverse0=True), zeros(4, 8), zeros(4, 8))


def with_column(dst, data, column):
    nisa.tensor_scalar(dst, data, nl.add, column)


def test_columns_are_float32_of_one_element():
    with refused("tensor_scalar", "float32 tiles"):
        after(with_column, zeros(4, 8), zeros(4, 8), zeros(4, 1, dtype=BFLOAT16))
    with refused("tensor_scalar", "1 element per partition"):
        after(with_column, zeros(4, 8), zeros(4, 8), zeros(4, 2))
    with refused("tensor_scalar", "same number of partitions"):
        after(with_column, zeros(4, 8), zeros(4, 8), zeros(1, 1))
    with refused("tensor_scalar", "same number of elements per partition"):
        after(with_column, zeros(4, 4), zeros(4, 8), zeros(4, 1))


def test_the_undocumented_address_arithmetic_is_named():
    words, column = zeros(4, 8, dtype=np.int32), zeros(4, 1, dtype=np.int32)
    with refused("tensor_scalar", "32-bit address arithmetic", UnsupportedError):
        after(with_column, words, words, column)


def test_the_column_is_read_and_the_operators_are_recorded():
    ran = run_tiles(with_column, zeros(4, 8), zeros(4, 8), zeros(4, 1))
    instruction = issued(ran, "tensor_scalar")
    assert [access.layout.elems for access in instruction.reads] == [8, 1]
    assert instruction.options == (("op0", "add"), ("op1", None))
    assert instruction.engine is engine.vector


def test_shape_only_runs_issue_the_same():
    assert_shape_only_agrees(with_column, zeros(4, 8), zeros(4, 8), zeros(4, 1))
    with refused("tensor_scalar", "float32 tiles"):
        column = zeros(4, 1, dtype=np.float16)
        run_tiles(with_column, zeros(4, 8), zeros(4, 8), column, values=False)

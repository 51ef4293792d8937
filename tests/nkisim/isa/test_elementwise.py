"""tensor_tensor, scalar_tensor_tensor and reciprocal against NumPy, and their rules."""

import ml_dtypes
import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from isa_tiles import Psum, after, assert_shape_only_agrees, issued, refused, run_tiles, zeros
from nkisim.enums import engine

BFLOAT16 = ml_dtypes.bfloat16


def floats(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def combine(op, **options):
    return lambda dst, a, b: nisa.tensor_tensor(dst, a, b, op, **options)


@pytest.mark.parametrize(
    ("op", "reference"),
    [
        (nl.add, np.add),
        (nl.subtract, np.subtract),
        (nl.multiply, np.multiply),
        (nl.maximum, np.maximum),
        (nl.greater_equal, np.greater_equal),
        (nl.logical_xor, np.logical_xor),
    ],
)
@pytest.mark.parametrize("machine", ["trn1", "trn2", "trn3"])
def test_tensor_tensor_is_float32_arithmetic(rng, op, reference, machine):
    a, b = floats(rng, 128, 48), floats(rng, 128, 48)
    a[:, ::3] = b[:, ::3]
    result = after(combine(op), zeros(128, 48), a, b, machine=machine)[0]
    np.testing.assert_array_equal(result, reference(a, b).astype(np.float32))


def test_tensor_tensor_casts_once_to_a_narrow_type(rng):
    a, b = floats(rng, 16, 32).astype(BFLOAT16), floats(rng, 16, 32)
    result = after(combine(nl.multiply), zeros(16, 32, dtype=BFLOAT16), a, b)[0]
    np.testing.assert_array_equal(result, (a.astype(np.float32) * b).astype(BFLOAT16))


def test_tensor_tensor_rounds_and_saturates_to_integers():
    a = np.array([[2.0, 3.0, -300.0, 300.0]], np.float32)
    b = np.full((1, 4), 0.5, np.float32)
    result = after(combine(nl.add), zeros(1, 4, dtype=np.int8), a, b)[0]
    np.testing.assert_array_equal(result, [[2, 4, -128, 127]])


def test_tensor_tensor_pairs_elements_in_row_major_order_whatever_the_ranks(rng):
    a, b = floats(rng, 8, 4, 6), floats(rng, 8, 24)

    def issue(dst, x, y):
        nisa.tensor_tensor(dst.permute((0, 2, 1)), x.permute((0, 2, 1)), y, nl.subtract)

    result = after(issue, zeros(8, 4, 6), a, b)[0]
    expected = a.transpose(0, 2, 1).reshape(8, 24) - b
    np.testing.assert_array_equal(result.transpose(0, 2, 1).reshape(8, 24), expected)


def test_tensor_tensor_broadcasts_through_a_stride_of_zero(rng):
    a, column = floats(rng, 8, 12), floats(rng, 8, 1)

    def issue(dst, x, y):
        nisa.tensor_tensor(dst, x, y.broadcast(1, 12), nl.add)

    result = after(issue, zeros(8, 12), a, column)[0]
    np.testing.assert_array_equal(result, a + column)


def test_tensor_tensor_in_place_and_on_slices(rng):
    a, b = floats(rng, 64, 20), floats(rng, 64, 20)

    def issue(x, y):
        nisa.tensor_tensor(x[32:64, 4:12:2], x[32:64, 4:12:2], y[0:32, 0:4], nl.add)

    result = after(issue, a, b)[0]
    expected = a.copy()
    expected[32:64, 4:12:2] += b[0:32, 0:4]
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("psum_first", [True, False])
def test_tensor_tensor_reads_one_input_from_psum_and_writes_to_it(rng, psum_first):
    a, b = floats(rng, 32, 16), floats(rng, 32, 16)
    inputs = (Psum(a), b) if psum_first else (a, Psum(b))
    result = after(combine(nl.subtract), Psum(zeros(32, 16)), *inputs)[0]
    np.testing.assert_array_equal(result, a - b)


WIDE = np.array([[2**31 - 1, -(2**31), 123456789, 16777217, -1]], np.int32)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
@pytest.mark.parametrize(
    ("op", "reference"),
    [(nl.add, np.add), (nl.subtract, np.subtract), (nl.multiply, np.multiply)],
)
def test_tensor_tensor_of_words_is_exact_on_gpsimd_and_wraps(op, reference, dtype):
    a, b = WIDE.view(dtype), WIDE[:, ::-1].copy().view(dtype)
    ran = run_tiles(combine(op), zeros(1, 5, dtype=dtype), a, b)
    with np.errstate(over="ignore"):
        expected = reference(a, b, dtype=dtype)
    np.testing.assert_array_equal(ran.outputs[0], expected)
    assert issued(ran, "tensor_tensor").engine is engine.gpsimd


def test_comparisons_of_words_see_the_last_bit():
    a = np.array([[16777216, 16777217]], np.int32)
    b = np.array([[16777217, 16777217]], np.int32)
    result = after(combine(nl.equal), zeros(1, 2, dtype=np.int32), a, b)[0]
    np.testing.assert_array_equal(result, [[0, 1]])


def test_words_of_mixed_signs_compare_as_numbers():
    a, b = np.array([[-1]], np.int32), np.array([[2**31]], np.uint32)
    result = after(combine(nl.less), zeros(1, 1, dtype=np.int32), a, b)[0]
    np.testing.assert_array_equal(result, [[1]])


@pytest.mark.parametrize("psum", ["dst", "data1"])
def test_words_go_through_float32_on_the_vector_engine_when_one_is_in_psum(psum):
    a, b = np.array([[16777217]], np.int32), np.array([[0]], np.int32)
    dst = zeros(1, 1, dtype=np.int32)
    tiles = (Psum(dst), a, b) if psum == "dst" else (dst, Psum(a), b)
    ran = run_tiles(combine(nl.add), *tiles)
    np.testing.assert_array_equal(ran.outputs[0], [[16777216]])
    assert issued(ran, "tensor_tensor").engine is engine.vector


def test_words_go_through_float32_where_the_vector_engine_is_asked_for():
    a, b = np.array([[16777217]], np.int32), np.array([[0]], np.int32)
    issue = combine(nl.add, engine=engine.vector)
    result = after(issue, zeros(1, 1, dtype=np.int32), a, b)[0]
    np.testing.assert_array_equal(result, [[16777216]])


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_power_runs_on_gpsimd(dtype):
    a = np.array([[2, 3, -2, 7]], dtype)
    b = np.array([[10, 4, 3, 0]], dtype)
    ran = run_tiles(combine(nl.power), zeros(1, 4, dtype=dtype), a, b)
    np.testing.assert_array_equal(ran.outputs[0], [[1024, 81, -8, 1]])
    assert issued(ran, "tensor_tensor").engine is engine.gpsimd


@pytest.mark.parametrize(
    ("op", "reference"),
    [
        (nl.bitwise_and, np.bitwise_and),
        (nl.bitwise_or, np.bitwise_or),
        (nl.bitwise_xor, np.bitwise_xor),
    ],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32])
def test_bitvec_operators_work_on_bits(rng, op, reference, dtype):
    limits = np.iinfo(dtype)
    a, b = (rng.integers(limits.min, limits.max, (4, 9), dtype, endpoint=True) for _ in "ab")
    ran = run_tiles(combine(op), zeros(4, 9, dtype=dtype), a, b)
    np.testing.assert_array_equal(ran.outputs[0], reference(a, b))
    assert issued(ran, "tensor_tensor").engine is engine.vector


def test_bits_are_written_to_the_other_signedness_as_they_are():
    a, b = np.array([[-1]], np.int16), np.array([[-256]], np.int16)
    result = after(combine(nl.bitwise_and), zeros(1, 1, dtype=np.uint16), a, b)[0]
    np.testing.assert_array_equal(result, [[0xFF00]])


def test_right_shift_is_logical():
    a, b = np.array([[-1]], np.int32), np.array([[28]], np.int32)
    result = after(combine(nl.right_shift), zeros(1, 1, dtype=np.int32), a, b)[0]
    np.testing.assert_array_equal(result, [[15]])


def test_tensor_tensor_refuses_unequal_sizes():
    with refused("tensor_tensor", "same number of elements per partition"):
        after(combine(nl.add), zeros(4, 8), zeros(4, 8), zeros(4, 1))
    with refused("tensor_tensor", "same number of partitions"):
        after(combine(nl.add), zeros(4, 8), zeros(4, 8), zeros(2, 8))


def test_tensor_tensor_refuses_two_inputs_from_psum():
    with refused("tensor_tensor", "one full-size input may come from PSUM"):
        after(combine(nl.add), zeros(4, 8), Psum(zeros(4, 8)), Psum(zeros(4, 8)))


@pytest.mark.parametrize(
    ("op", "limit"),
    [
        (np.add, "an operator of nki.language"),
        ("add", "an operator of nki.language"),
        (nl.abs, "a binary operator"),
        (nl.exp, "an element-wise ALU operator"),
        (nl.max, "an element-wise ALU operator"),
        (nl.abs_max, "from NeuronCore-v4 on"),
    ],
)
def test_tensor_tensor_refuses_other_operators(op, limit):
    with refused("tensor_tensor", limit):
        after(combine(op), zeros(4, 8), zeros(4, 8), zeros(4, 8))


def test_abs_max_exists_on_trn3():
    a, b = np.array([[-5, 1]], np.float32), np.array([[3, -1]], np.float32)
    result = after(combine(nl.abs_max), zeros(1, 2), a, b, machine="trn3")[0]
    np.testing.assert_array_equal(result, [[-5, -1]])


def test_tensor_tensor_refuses_engines_that_lack_the_operator():
    with refused("tensor_tensor", "nl.power runs on GpSimd"):
        after(combine(nl.power, engine=engine.vector), zeros(4, 8), zeros(4, 8), zeros(4, 8))
    with refused("tensor_tensor", r"runs on engine\.vector, engine\.gpsimd"):
        after(combine(nl.add, engine=engine.scalar), zeros(4, 8), zeros(4, 8), zeros(4, 8))
    words = zeros(4, 8, dtype=np.int32)
    with refused("tensor_tensor", "bitvec operators run on the Vector engine"):
        after(combine(nl.bitwise_or, engine=engine.gpsimd), words, words, words)


@pytest.mark.parametrize("position", [0, 1])
def test_power_does_not_reach_psum(position):
    tiles = [zeros(4, 8), zeros(4, 8), zeros(4, 8)]
    tiles[position] = Psum(tiles[position])
    with refused("tensor_tensor", "GpSimd engine does not reach PSUM"):
        after(combine(nl.power), *tiles)


def test_gpsimd_does_not_reach_psum_when_asked_for():
    issue = combine(nl.add, engine=engine.gpsimd)
    with refused("tensor_tensor", "GpSimd engine does not reach PSUM"):
        after(issue, zeros(4, 8), Psum(zeros(4, 8)), zeros(4, 8))


@pytest.mark.parametrize("dtype", [np.float32, np.bool_])
def test_bitvec_operators_refuse_what_is_no_integer(dtype):
    integers, others = zeros(4, 8, dtype=np.int8), zeros(4, 8, dtype=dtype)
    with refused("tensor_tensor", "bitvec operators take integer types"):
        after(combine(nl.bitwise_and), integers, integers, others)


def test_bitvec_operators_do_not_cast():
    narrow, wide = zeros(4, 8, dtype=np.int8), zeros(4, 8, dtype=np.int16)
    with refused("tensor_tensor", "same number of bytes"):
        after(combine(nl.bitwise_and), wide, narrow, narrow)


def test_packed_types_are_not_arithmetic():
    def issue(dst, a):
        packed = a.view(nl.float8_e4m3fn_x4)
        nisa.tensor_tensor(dst, packed, packed, nl.add)

    with refused("tensor_tensor", "one of bfloat16"):
        after(issue, zeros(4, 8), zeros(4, 8, dtype=np.uint32), machine="trn3")


@pytest.mark.parametrize("reverse0", [False, True])
@pytest.mark.parametrize("reverse1", [False, True])
def test_scalar_tensor_tensor(rng, reverse0, reverse1):
    data, other, column = floats(rng, 96, 4, 8), floats(rng, 96, 32), floats(rng, 96, 1)

    def issue(dst, x, y, c, from_number):
        flags = {"reverse0": reverse0, "reverse1": reverse1}
        nisa.scalar_tensor_tensor(dst, x, nl.subtract, c, nl.subtract, y, **flags)
        nisa.scalar_tensor_tensor(from_number, x, nl.subtract, 0.3, nl.subtract, y, **flags)

    def expected(operand):
        rows = data.reshape(96, 32)
        first = operand - rows if reverse0 else rows - operand
        return other - first if reverse1 else first - other

    results = after(issue, zeros(96, 32), data, other, column, zeros(96, 32))
    np.testing.assert_array_equal(results[0], expected(column))
    np.testing.assert_array_equal(results[4], expected(np.float32(0.3)))


def test_scalar_tensor_tensor_takes_a_column_of_any_type(rng):
    data, other = floats(rng, 8, 6), floats(rng, 8, 6)
    column = floats(rng, 8, 1).astype(BFLOAT16)

    def issue(dst, x, y, c):
        nisa.scalar_tensor_tensor(dst, x, nl.multiply, c, nl.add, y)

    result = after(issue, zeros(8, 6), Psum(data), other, Psum(column))[0]
    np.testing.assert_array_equal(result, data * column.astype(np.float32) + other)


def test_scalar_tensor_tensor_with_a_unary_first_step(rng):
    data, other = floats(rng, 8, 6), floats(rng, 8, 6)

    def issue(dst, x, y):
        nisa.scalar_tensor_tensor(dst, x, nl.abs, None, nl.add, y)

    np.testing.assert_array_equal(after(issue, zeros(8, 6), data, other)[0], np.abs(data) + other)


def step_and_tile(op0, operand0, op1):
    return lambda dst, x, y: nisa.scalar_tensor_tensor(dst, x, op0, operand0, op1, y)


@pytest.mark.parametrize(
    ("op0", "operand0", "op1", "limit"),
    [
        (nl.bitwise_and, 1, nl.add, "no bitvec operators"),
        (nl.add, 1, nl.bitwise_and, "no bitvec operators"),
        (nl.add, 1, nl.abs, "a binary operator"),
        (nl.add, None, nl.add, r"a Python number or a \(P, 1\) tile"),
        (nl.abs, 1.0, nl.add, "None or 0 for a unary operator"),
    ],
)
def test_scalar_tensor_tensor_refuses_other_operators(op0, operand0, op1, limit):
    with refused("scalar_tensor_tensor", limit):
        after(step_and_tile(op0, operand0, op1), zeros(4, 8), zeros(4, 8), zeros(4, 8))


def test_scalar_tensor_tensor_refuses_sizes_and_places():
    def with_column(dst, x, y, column):
        nisa.scalar_tensor_tensor(dst, x, nl.add, column, nl.add, y)

    add = step_and_tile(nl.add, 1.0, nl.add)
    with refused("scalar_tensor_tensor", "1 element per partition"):
        after(with_column, zeros(4, 8), zeros(4, 8), zeros(4, 8), zeros(4, 2))
    with refused("scalar_tensor_tensor", "same number of partitions"):
        after(with_column, zeros(4, 8), zeros(4, 8), zeros(4, 8), zeros(2, 1))
    with refused("scalar_tensor_tensor", "same number of elements per partition"):
        after(add, zeros(4, 8), zeros(4, 8), zeros(4, 4))
    with refused("scalar_tensor_tensor", "one full-size input may come from PSUM"):
        after(add, zeros(4, 8), Psum(zeros(4, 8)), Psum(zeros(4, 8)))


@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16])
def test_reciprocal(rng, dtype):
    data = (floats(rng, 128, 16) + 3).astype(dtype)
    result = after(nisa.reciprocal, Psum(zeros(128, 16, dtype=dtype)), data)[0]
    np.testing.assert_array_equal(result, (np.float32(1) / data.astype(np.float32)).astype(dtype))


def test_reciprocal_of_zero_is_infinite_and_refuses_other_sizes():
    np.testing.assert_array_equal(after(nisa.reciprocal, zeros(1, 1), zeros(1, 1))[0], np.inf)
    with refused("reciprocal", "same number of elements per partition"):
        after(nisa.reciprocal, zeros(4, 8), zeros(4, 4))


def test_shape_only_runs_issue_the_same():
    def issue(dst, a, b, column):
        nisa.tensor_tensor(dst, a, b, nl.add)
        nisa.scalar_tensor_tensor(dst, a, nl.multiply, column, nl.add, b)
        nisa.reciprocal(dst, a)

    tiles = np.ones((4, 8), np.float32), np.ones((4, 8), np.float32), zeros(4, 8), zeros(4, 1)
    assert_shape_only_agrees(issue, *tiles)
    with refused("tensor_tensor", "same number of elements per partition"):
        run_tiles(combine(nl.add), zeros(4, 8), zeros(4, 4), zeros(4, 8), values=False)

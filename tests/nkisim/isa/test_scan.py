"""tensor_scalar_cumulative and tensor_tensor_scan against loops in NumPy, and their rules."""

import ml_dtypes
import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from isa_tiles import Psum, after, assert_shape_only_agrees, refused, run_tiles, zeros
from nkisim.enums import reduce_cmd

BFLOAT16 = ml_dtypes.bfloat16


def floats(*shape):
    return np.random.default_rng(9).normal(size=shape).astype(np.float32)


def running(values, register, function):
    """register = function(value, register), column by column, every one of them kept."""
    columns = []
    for value in values.T:
        register = function(value, register)
        columns.append(register)
    return np.stack(columns, axis=1)


CUMULATIVE = [
    (nl.add, np.add, 0),
    (nl.subtract, np.subtract, 0),
    (nl.multiply, np.multiply, 1),
    (nl.maximum, np.maximum, -np.inf),
    (nl.max, np.maximum, -np.inf),
    (nl.minimum, np.minimum, np.inf),
    (nl.min, np.minimum, np.inf),
]


@pytest.mark.parametrize(("op", "function", "identity"), CUMULATIVE)
def test_tensor_scalar_cumulative(op, function, identity):
    data = floats(32, 3, 5)

    def issue(dst, src):
        nisa.tensor_scalar_cumulative(dst, src, nl.multiply, op, 0.7)

    scaled = data.reshape(32, 15) * np.float32(0.7)
    expected = running(scaled, np.full(32, identity, np.float32), function)
    result = after(issue, Psum(zeros(32, 15)), data)[0]
    np.testing.assert_array_equal(result, expected)


def test_tensor_scalar_cumulative_goes_on_and_loads():
    data, column = floats(32, 6), floats(32, 1)

    def issue(src, c, first, second, third, fourth):
        cumulate = nisa.tensor_scalar_cumulative
        cumulate(first, src, nl.add, nl.add, c)
        cumulate(second, src, nl.abs, nl.subtract, None, reduce_cmd=reduce_cmd.reduce)
        cumulate(third, src, nl.add, nl.add, 0.0, imm1=c, reduce_cmd=reduce_cmd.load_reduce)
        cumulate(fourth, src, nl.add, nl.max, 0, 0.25, reduce_cmd=reduce_cmd.load_reduce)

    outputs = after(issue, data, column, *(zeros(32, 6) for _ in range(4)))[2:]
    first = running(data + column, np.zeros(32, np.float32), np.add)
    np.testing.assert_array_equal(outputs[0], first)
    np.testing.assert_array_equal(outputs[1], running(np.abs(data), first[:, -1], np.subtract))
    np.testing.assert_array_equal(outputs[2], running(data, column[:, 0], np.add))
    quarter = np.full(32, 0.25, np.float32)
    np.testing.assert_array_equal(outputs[3], running(data, quarter, np.maximum))


def test_its_registers_are_those_of_tensor_scalar_reduce():
    data = np.arange(8, dtype=np.float32).reshape(2, 4)

    def issue(dst, src, result):
        nisa.tensor_scalar_cumulative(dst, src, nl.add, nl.add, 0.0)
        options = {"reduce_res": result, "reduce_cmd": reduce_cmd.reduce}
        nisa.tensor_scalar_reduce(dst, src, nl.add, 0.0, nl.add, **options)

    result = after(issue, zeros(2, 4), data, zeros(2, 1))[2]
    np.testing.assert_array_equal(result[:, 0], 2 * data.sum(axis=1))


def test_continuing_what_nobody_started_gives_nan():
    def issue(dst, src):
        options = {"reduce_cmd": reduce_cmd.reduce}
        nisa.tensor_scalar_cumulative(dst, src, nl.add, nl.add, 0.0, **options)

    assert np.isnan(after(issue, zeros(2, 4), zeros(2, 4))[0]).all()


def cumulative(op0=nl.add, op1=nl.add, imm0=0.0, **options):
    return lambda dst, src: nisa.tensor_scalar_cumulative(dst, src, op0, op1, imm0, **options)


@pytest.mark.parametrize(
    ("issue", "limit"),
    [
        (cumulative(op0=nl.bitwise_and), "no bitvec operators"),
        (cumulative(op0=np.add), "an operator of nki.language"),
        (cumulative(op1=nl.logical_and), r"one of nl\.add, nl\.subtract, nl\.multiply"),
        (cumulative(imm0=None), r"a Python number or a \(P, 1\) tile"),
        (cumulative(imm1=1.0), "imm1 is for reduce_cmd.load_reduce"),
        (cumulative(reduce_cmd=reduce_cmd.load_reduce), "load_reduce loads imm1"),
        (cumulative(reduce_cmd=reduce_cmd.idle), r"one of reduce_cmd\.reset_reduce"),
        (cumulative(imm1="x", reduce_cmd=reduce_cmd.load_reduce), "a Python number"),
    ],
)
def test_tensor_scalar_cumulative_refuses(issue, limit):
    with refused("tensor_scalar_cumulative", limit):
        after(issue, zeros(4, 8), zeros(4, 8))


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_tensor_scalar_cumulative_takes_no_words(dtype):
    with refused("tensor_scalar_cumulative", "one of bfloat16"):
        after(cumulative(), zeros(4, 8), zeros(4, 8, dtype=dtype))
    with refused("tensor_scalar_cumulative", "one of bfloat16"):
        after(cumulative(), zeros(4, 8, dtype=dtype), zeros(4, 8))


def test_tensor_scalar_cumulative_refuses_columns_and_sizes():
    def with_columns(dst, src, a, b):
        options = {"reduce_cmd": reduce_cmd.load_reduce}
        nisa.tensor_scalar_cumulative(dst, src, nl.add, nl.add, a, b, **options)

    tiles = zeros(4, 8), zeros(4, 8)
    with refused("tensor_scalar_cumulative", "one of float32"):
        after(with_columns, *tiles, zeros(4, 1, dtype=BFLOAT16), zeros(4, 1))
    with refused("tensor_scalar_cumulative", "one of float32"):
        after(with_columns, *tiles, zeros(4, 1), zeros(4, 1, dtype=BFLOAT16))
    with refused("tensor_scalar_cumulative", "1 element per partition"):
        after(with_columns, *tiles, zeros(4, 1), zeros(4, 2))
    with refused("tensor_scalar_cumulative", "same number of partitions"):
        after(with_columns, *tiles, zeros(2, 1), zeros(4, 1))
    with refused("tensor_scalar_cumulative", "same number of elements per partition"):
        after(cumulative(), zeros(4, 4), zeros(4, 8))


@pytest.mark.parametrize("reverse0", [False, True])
@pytest.mark.parametrize("reverse1", [False, True])
def test_tensor_tensor_scan(reverse0, reverse1):
    data0, data1, initial = floats(16, 2, 4), floats(16, 8) * 3, floats(16, 1)

    def issue(dst, a, b, c):
        flags = {"reverse0": reverse0, "reverse1": reverse1}
        nisa.tensor_tensor_scan(dst, a, b, c, nl.multiply, nl.subtract, **flags)

    state, expected = initial[:, 0], []
    for a, b in zip(data0.reshape(16, 8).T, data1.T, strict=True):
        before = a * state
        state = b - before if reverse1 else before - b
        expected.append(state)
    result = after(issue, zeros(16, 8), Psum(data0), data1, Psum(initial))[0]
    np.testing.assert_array_equal(result, np.stack(expected, axis=1))


def test_tensor_tensor_scan_reverses_its_first_operator():
    data0, data1 = floats(16, 8), floats(16, 8)

    def issue(forward, backward, a, b):
        nisa.tensor_tensor_scan(forward, a, b, 0.5, nl.subtract, nl.add)
        nisa.tensor_tensor_scan(backward, a, b, 0.5, nl.subtract, nl.add, reverse0=True)

    outputs = after(issue, zeros(16, 8), zeros(16, 8), data0, data1)
    for result, sign in zip(outputs, (1, -1), strict=False):
        state = np.full(16, 0.5, np.float32)
        for i in range(8):
            state = sign * (data0[:, i] - state) + data1[:, i]
            np.testing.assert_array_equal(result[:, i], state)


def test_tensor_tensor_scan_counts_with_comparisons_and_casts_at_the_end():
    data = np.array([[0, 3, 1, 2]], np.float32)

    def issue(dst, a, b):
        nisa.tensor_tensor_scan(dst, a, b, 1, nl.greater, nl.add)

    result = after(issue, zeros(1, 4, dtype=np.int16), data, np.full((1, 4), 2.5, BFLOAT16))[0]
    np.testing.assert_array_equal(result, np.rint([[2.5, 3.5, 2.5, 2.5]]))


def scan(op0=nl.add, op1=nl.add, initial=0.0):
    return lambda dst, a, b: nisa.tensor_tensor_scan(dst, a, b, initial, op0, op1)


@pytest.mark.parametrize(
    ("issue", "limit"),
    [
        (scan(op0=nl.bitwise_and), "no bitvec operators"),
        (scan(op1=nl.left_shift), "no bitvec operators"),
        (scan(op1=nl.abs), "a binary operator"),
        (scan(op0=np.add), "an operator of nki.language"),
        (scan(initial=None), r"a Python number or a \(P, 1\) tile"),
    ],
)
def test_tensor_tensor_scan_refuses(issue, limit):
    with refused("tensor_tensor_scan", limit):
        after(issue, zeros(4, 8), zeros(4, 8), zeros(4, 8))


def test_tensor_tensor_scan_refuses_sizes_and_places():
    with refused("tensor_tensor_scan", "same number of elements per partition"):
        after(scan(), zeros(4, 8), zeros(4, 8), zeros(4, 4))
    with refused("tensor_tensor_scan", "same number of partitions"):
        after(scan(), zeros(4, 8), zeros(4, 8), zeros(2, 8))
    with refused("tensor_tensor_scan", "one full-size input may come from PSUM"):
        after(scan(), zeros(4, 8), Psum(zeros(4, 8)), Psum(zeros(4, 8)))

    def wide(dst, a, b, initial):
        nisa.tensor_tensor_scan(dst, a, b, initial, nl.add, nl.add)

    with refused("tensor_tensor_scan", "1 element per partition"):
        after(wide, zeros(4, 8), zeros(4, 8), zeros(4, 8), zeros(4, 8))


def test_shape_only_runs_issue_the_same():
    def issue(dst, a, b, column):
        nisa.tensor_scalar_cumulative(dst, a, nl.add, nl.add, column)
        nisa.tensor_tensor_scan(dst, a, b, column, nl.add, nl.add)

    assert_shape_only_agrees(issue, zeros(4, 8), zeros(4, 8), zeros(4, 8), zeros(4, 1))
    with refused("tensor_tensor_scan", "one full-size input may come from PSUM"):
        tiles = zeros(4, 8), Psum(zeros(4, 8)), Psum(zeros(4, 8))
        run_tiles(scan(), *tiles, values=False)

"""tensor_reduce, tensor_partition_reduce and tensor_scalar_reduce against NumPy; their rules."""

import math

import ml_dtypes
import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from isa_tiles import Psum, after, assert_shape_only_agrees, issued, refused, run_tiles, zeros
from nkisim.enums import engine, reduce_cmd

BFLOAT16 = ml_dtypes.bfloat16


def floats(*shape):
    return np.random.default_rng(3).normal(size=shape).astype(np.float32)


def wholes(*shape, dtype=np.float32):
    """Small integers: their float32 sums and products are exact in every order."""
    return np.random.default_rng(5).integers(-4, 5, shape).astype(dtype)


def reduce(op, axis, **options):
    return lambda dst, data: nisa.tensor_reduce(dst, op, data, axis, **options)


@pytest.mark.parametrize(
    ("axis", "kept"),
    [((3,), (3, 4)), ((2, 3), (3,)), ((1, 2, 3), (1,)), (3, (3, 4)), ([2, 3], (3,))],
)
@pytest.mark.parametrize(("op", "reference"), [(nl.add, np.sum), (nl.maximum, np.max)])
def test_tensor_reduce_over_the_last_axes(axis, kept, op, reference):
    data = wholes(64, 3, 4, 5)
    result = after(reduce(op, axis), zeros(64, *kept), data)[0]
    axes = axis if isinstance(axis, int) else tuple(axis)
    np.testing.assert_array_equal(result, reference(data, axis=axes).reshape(64, *kept))


def test_tensor_reduce_of_a_pooling_view():
    data = floats(8, 6, 4)

    def issue(dst, x):
        windows = x.reshape((8, 3, 2, 2, 2)).permute((0, 1, 3, 2, 4))
        nisa.tensor_reduce(dst, nl.maximum, windows, (3, 4))

    result = after(issue, Psum(zeros(8, 3, 2)), Psum(data))[0]
    np.testing.assert_array_equal(result, data.reshape(8, 3, 2, 2, 2).max(axis=(2, 4)))


def test_tensor_reduce_accumulates_in_float32_and_casts_once():
    data = np.full((4, 300), 1.0, BFLOAT16)
    result = after(reduce(nl.add, 1), zeros(4, 1, dtype=BFLOAT16), data)[0]
    np.testing.assert_array_equal(result, np.full((4, 1), 300, BFLOAT16))


def test_tensor_reduce_negates_and_keeps_dimensions():
    data = wholes(4, 2, 5)
    negated = after(reduce(nl.add, 2, negate=True), zeros(4, 2), data)[0]
    np.testing.assert_array_equal(negated, -data.sum(axis=2))
    kept = after(reduce(nl.max, 2, keepdims=True), zeros(4, 2, 1), data)[0]
    np.testing.assert_array_equal(kept, data.max(axis=2, keepdims=True))


def test_tensor_reduce_by_subtraction_goes_from_left_to_right():
    data = wholes(4, 6)
    result = after(reduce(nl.subtract, 1), zeros(4, 1), data)[0]
    np.testing.assert_array_equal(result[:, 0], data[:, 0] - data[:, 1:].sum(axis=1))


def test_tensor_reduce_of_bits():
    data = np.random.default_rng(1).integers(0, 2**32, (4, 6), np.uint32)
    result = after(reduce(nl.bitwise_xor, 1), zeros(4, 1, dtype=np.int32), data)[0]
    np.testing.assert_array_equal(result.view(np.uint32)[:, 0], np.bitwise_xor.reduce(data, axis=1))


@pytest.mark.parametrize("axis", [0, (0, 1), 1, (1, 2), (3, 2), (), -1, (1, 3)], ids=str)
def test_tensor_reduce_refuses_other_axes(axis):
    with refused("tensor_reduce", r"the last free axes.*\(3,\) or \(2, 3\) or \(1, 2, 3\)"):
        after(reduce(nl.add, axis), zeros(4, 6), zeros(4, 2, 3, 5))


def test_tensor_reduce_refuses_sizes_operators_and_flags():
    with refused("tensor_reduce", "2 elements per partition are left"):
        after(reduce(nl.add, 2), zeros(4, 1), zeros(4, 2, 5))
    with refused("tensor_reduce", "same number of partitions"):
        after(reduce(nl.add, 1), zeros(2, 1), zeros(4, 5))
    for op in (nl.greater, nl.abs_max, nl.average, nl.exp):
        with refused("tensor_reduce", "an operator that may reduce"):
            after(reduce(op, 1), zeros(4, 1), zeros(4, 5), machine="trn3")
    with refused("tensor_reduce", "an operator of nki.language"):
        after(reduce(np.add, 1), zeros(4, 1), zeros(4, 5))
    with refused("tensor_reduce", "bitvec operators take integer types"):
        after(reduce(nl.bitwise_or, 1), zeros(4, 1), zeros(4, 5))
    words = zeros(4, 5, dtype=np.int32)
    with refused("tensor_reduce", "negate is for arithmetic operators"):
        after(reduce(nl.bitwise_or, 1, negate=True), zeros(4, 1, dtype=np.int32), words)


def over_partitions(op):
    return lambda dst, data: nisa.tensor_partition_reduce(dst, op, data)


@pytest.mark.parametrize(
    ("op", "reference"),
    [(nl.add, np.sum), (nl.average, np.mean), (nl.max, np.max), (nl.maximum, np.max)],
)
def test_tensor_partition_reduce(op, reference):
    data = wholes(64, 3, 4)
    ran = run_tiles(over_partitions(op), zeros(1, 12), data)
    np.testing.assert_array_equal(ran.outputs[0], reference(data, axis=0).reshape(1, 12))
    assert issued(ran, "tensor_partition_reduce").engine is engine.gpsimd


@pytest.mark.parametrize(
    ("op", "reference"),
    [(nl.bitwise_and, np.bitwise_and.reduce), (nl.bitwise_or, np.bitwise_or.reduce)],
)
def test_tensor_partition_reduce_of_bits(op, reference):
    data = np.random.default_rng(1).integers(0, 256, (32, 6)).astype(np.uint8)
    result = after(over_partitions(op), zeros(1, 6, dtype=np.uint8), data)[0]
    np.testing.assert_array_equal(result[0], reference(data, axis=0))


def test_tensor_partition_reduce_refuses():
    with refused("tensor_partition_reduce", r"one of nl\.add, nl\.average"):
        after(over_partitions(nl.multiply), zeros(1, 4), zeros(8, 4))
    with refused("tensor_partition_reduce", "has 1 partition"):
        after(over_partitions(nl.add), zeros(2, 4), zeros(8, 4))
    with refused("tensor_partition_reduce", "same number of elements per partition"):
        after(over_partitions(nl.add), zeros(1, 3), zeros(8, 4))
    with refused("tensor_partition_reduce", "data may live in sbuf"):
        after(over_partitions(nl.add), zeros(1, 4), Psum(zeros(8, 4)))
    with refused("tensor_partition_reduce", "bitvec operators take integer types"):
        after(over_partitions(nl.bitwise_or), zeros(1, 4), zeros(8, 4))


def scalar_reduce(op0, operand0, reduce_op, **options):
    def issue(dst, data, result):
        nisa.tensor_scalar_reduce(dst, data, op0, operand0, reduce_op, result, **options)

    return issue


@pytest.mark.parametrize(
    ("reduce_op", "reference"),
    [
        (nl.add, np.sum),
        (nl.multiply, np.prod),
        (nl.max, np.max),
        (nl.min, np.min),
        (nl.maximum, np.max),
        (nl.minimum, np.min),
    ],
)
def test_tensor_scalar_reduce(reduce_op, reference):
    data = wholes(16, 2, 4)
    issue = scalar_reduce(nl.add, 1.0, reduce_op)
    dst, _, result = after(issue, zeros(16, 8), Psum(data), Psum(zeros(16, 1)))
    np.testing.assert_array_equal(dst, (data + 1).reshape(16, 8))
    np.testing.assert_array_equal(result[:, 0], reference(data + 1, axis=(1, 2)))


def test_tensor_scalar_reduce_folds_values_that_are_not_yet_cast():
    data = np.full((4, 2), 1 + 2**-10, np.float32)
    issue = scalar_reduce(nl.multiply, 1.0, nl.add, reduce_res_negate=True)
    dst, _, result = after(issue, zeros(4, 2, dtype=BFLOAT16), data, zeros(4, 1))
    np.testing.assert_array_equal(dst.astype(np.float32), np.ones((4, 2)))
    np.testing.assert_array_equal(result, np.full((4, 1), -2 * (1 + 2**-10)))


def test_tensor_scalar_reduce_goes_on_over_tiles():
    data, column = wholes(8, 6), wholes(8, 1) * 3

    def issue(dst, x, c, first, second, loaded):
        fold = nisa.tensor_scalar_reduce
        fold(dst, x, nl.multiply, c, nl.add)
        fold(dst, x, nl.abs, None, nl.add, first, reduce_cmd=reduce_cmd.reduce)
        options = {"reduce_cmd": reduce_cmd.reduce, "reduce_res_negate": True}
        fold(dst, x, nl.abs, 0, nl.maximum, second, **options)
        fold(dst, x, nl.add, 0.0, nl.add, loaded, reduce_cmd=reduce_cmd.load_reduce, reduce_init=c)

    outputs = after(issue, zeros(8, 6), data, column, zeros(8, 1), zeros(8, 1), zeros(8, 1))
    first, second, loaded = (output[:, 0] for output in outputs[3:])
    total = (data * column).sum(axis=1) + np.abs(data).sum(axis=1)
    np.testing.assert_array_equal(first, total)
    np.testing.assert_array_equal(second, -np.maximum(total, np.abs(data).max(axis=1)))
    np.testing.assert_array_equal(loaded, column[:, 0] + data.sum(axis=1))


def test_load_reduce_takes_a_number_too():
    issue = scalar_reduce(nl.add, 0.0, nl.max, reduce_cmd=reduce_cmd.load_reduce, reduce_init=2.5)
    data = np.array([[1, 2], [3, 4]], np.float32)
    np.testing.assert_array_equal(after(issue, zeros(2, 2), data, zeros(2, 1))[2], [[2.5], [4]])


def test_registers_nobody_has_set_are_nan_in_their_lanes():
    def issue(dst, data, result):
        nisa.tensor_scalar_reduce(dst[:32], data[:32], nl.add, 0.0, nl.max)
        options = {"reduce_res": result, "reduce_cmd": reduce_cmd.reduce}
        nisa.tensor_scalar_reduce(dst, data, nl.add, 0.0, nl.max, **options)

    result = after(issue, zeros(64, 3), np.ones((64, 3), np.float32), zeros(64, 1))[2]
    np.testing.assert_array_equal(result[:, 0], [1.0] * 32 + [math.nan] * 32)


def test_lanes_are_physical_partitions():
    def issue(dst, data, result):
        nisa.tensor_scalar_reduce(dst[32:64], data[32:64], nl.add, 0.0, nl.add)
        options = {"reduce_res": result[32:64], "reduce_cmd": reduce_cmd.reduce}
        nisa.tensor_scalar_reduce(dst[32:64], data[32:64], nl.add, 0.0, nl.add, **options)

    result = after(issue, zeros(64, 3), np.ones((64, 3), np.float32), zeros(64, 1))[2]
    np.testing.assert_array_equal(result[:, 0], [0.0] * 32 + [6.0] * 32)


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"reduce_op": nl.subtract}, r"one of nl\.add, nl\.multiply, nl\.max, nl\.min"),
        ({"reduce_op": np.add}, "an operator of nki.language"),
        ({"op0": nl.bitwise_and}, "no bitvec operators"),
        ({"op0": nl.abs, "operand0": 1.0}, "None or 0 for a unary operator"),
        ({"reverse0": True}, "NKI does not support reverse0 here yet"),
        ({"reduce_cmd": reduce_cmd.idle}, r"one of reduce_cmd\.reset_reduce"),
        ({"reduce_cmd": 3}, r"a member of nisa\.reduce_cmd"),
        ({"reduce_cmd": reduce_cmd.load_reduce}, "load_reduce loads reduce_init"),
        ({"reduce_init": 0.0}, "reduce_init is for reduce_cmd.load_reduce"),
        (
            {"reduce_init": "0", "reduce_cmd": reduce_cmd.load_reduce},
            r"reduce_init is a Python number or a \(P, 1\) tile",
        ),
        ({"reduce_res": None, "reduce_res_negate": True}, "what is written to reduce_res"),
    ],
)
def test_tensor_scalar_reduce_refuses(options, limit):
    def issue(dst, data, result):
        arguments = {"op0": nl.add, "operand0": 1.0, "reduce_op": nl.add, "reduce_res": result}
        nisa.tensor_scalar_reduce(dst, data, **{**arguments, **options})

    with refused("tensor_scalar_reduce", limit):
        after(issue, zeros(4, 8), zeros(4, 8), zeros(4, 1))


def test_tensor_scalar_reduce_refuses_types_and_sizes():
    issue = scalar_reduce(nl.add, 1.0, nl.add)
    with refused("tensor_scalar_reduce", "1 element per partition"):
        after(issue, zeros(4, 8), zeros(4, 8), zeros(4, 2))
    with refused("tensor_scalar_reduce", "same number of partitions"):
        after(issue, zeros(4, 8), zeros(4, 8), zeros(2, 1))
    with refused("tensor_scalar_reduce", "same number of elements per partition"):
        after(issue, zeros(4, 4), zeros(4, 8), zeros(4, 1))

    def with_columns(dst, data, operand, init):
        command = {"reduce_cmd": reduce_cmd.load_reduce, "reduce_init": init}
        nisa.tensor_scalar_reduce(dst, data, nl.add, operand, nl.add, **command)

    for narrow in (0, 1):
        columns = [zeros(4, 1), zeros(4, 1)]
        columns[narrow] = zeros(4, 1, dtype=BFLOAT16)
        with refused("tensor_scalar_reduce", "one of float32"):
            after(with_columns, zeros(4, 8), zeros(4, 8), *columns)


def test_results_are_written_and_recorded():
    ran = run_tiles(scalar_reduce(nl.add, 1.0, nl.add), zeros(4, 8), zeros(4, 8), zeros(4, 1))
    instruction = issued(ran, "tensor_scalar_reduce")
    assert [access.layout.elems for access in instruction.writes] == [8, 1]
    assert instruction.option("reduce_cmd") == "reset_reduce"


def test_shape_only_runs_issue_the_same():
    def issue(dst, data, result, row):
        nisa.tensor_reduce(result, nl.add, data, 1)
        nisa.tensor_partition_reduce(row, nl.add, data)
        nisa.tensor_scalar_reduce(dst, data, nl.add, result, nl.max, result)

    assert_shape_only_agrees(issue, zeros(4, 8), zeros(4, 8), zeros(4, 1), zeros(1, 8))
    with refused("tensor_reduce", "the last free axes"):
        run_tiles(reduce(nl.add, 0), zeros(4, 1), zeros(4, 8), values=False)


def test_a_row_may_be_reduced_onto_its_first_element_and_onto_no_others():
    """One element is written when all is read; of several, the first is written too early."""
    src = floats(4, 6)

    def onto_first(tile):
        nisa.tensor_reduce(tile[:, 0:1], nl.max, tile, axis=1)

    np.testing.assert_array_equal(after(onto_first, src)[0][:, 0], src.max(axis=1))

    def onto_two(tile):
        nisa.tensor_reduce(tile[:, 0:2], nl.max, tile.reshape((4, 2, 3)), axis=2)

    with refused("tensor_reduce", "the same elements in the same order, or share no byte"):
        after(onto_two, src)

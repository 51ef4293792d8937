"""tensor_copy_predicated, select_reduce and range_select against np.where, and their rules."""

import ml_dtypes
import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from isa_tiles import Psum, after, assert_shape_only_agrees, issued, refused, run_tiles, zeros
from nkisim.enums import engine, reduce_cmd

BFLOAT16 = ml_dtypes.bfloat16
FP32_MIN = -3.4028235e38


def floats(*shape):
    return np.random.default_rng(4).normal(size=shape).astype(np.float32)


def predicate(*shape, dtype=np.uint8):
    return np.random.default_rng(8).integers(0, 3, shape).astype(dtype)


def copy(**options):
    return lambda dst, src, pred: nisa.tensor_copy_predicated(dst, src, pred, **options)


def copy_number(number):
    return lambda dst, pred: nisa.tensor_copy_predicated(dst, number, pred)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32])
def test_tensor_copy_predicated(reverse, kind):
    dst, src, pred = floats(96, 12), -floats(96, 3, 4), predicate(96, 12, dtype=kind)
    ran = run_tiles(copy(reverse_pred=reverse), dst, Psum(src), pred)
    chosen = (pred == 0) if reverse else (pred != 0)
    np.testing.assert_array_equal(ran.outputs[0], np.where(chosen, src.reshape(96, 12), dst))
    assert issued(ran, "tensor_copy_predicated").engine is engine.vector


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, BFLOAT16, np.uint8])
def test_tensor_copy_predicated_copies_bits(dtype):
    bits = np.random.default_rng(3).integers(0, 256, (8, 48)).astype(np.uint8).view(dtype)
    dst, pred = np.zeros_like(bits), predicate(*bits.shape)
    result = after(copy(), dst, bits, Psum(pred))[0]
    expected = np.where(pred != 0, bits, dst)
    np.testing.assert_array_equal(result.view(np.uint8), expected.view(np.uint8))


def test_tensor_copy_predicated_copies_packed_types():
    words = np.random.default_rng(3).integers(0, 2**32, (8, 6), np.uint32)
    pred = predicate(8, 6)

    def issue(dst, src, p):
        packed = nl.float8_e4m3fn_x4
        nisa.tensor_copy_predicated(dst.view(packed), src.view(packed), p)

    result = after(issue, zeros(8, 6, dtype=np.uint32), words, pred, machine="trn3")[0]
    np.testing.assert_array_equal(result, np.where(pred != 0, words, 0))

    def number(dst, p):
        nisa.tensor_copy_predicated(dst.view(nl.float8_e4m3fn_x4), 0, p)

    with refused("tensor_copy_predicated", "same dtype"):
        after(number, words, pred, machine="trn3")


@pytest.mark.parametrize(
    ("dtype", "number", "written"),
    [
        (np.float32, 0.1, np.float32(0.1)),
        (BFLOAT16, 0.1, BFLOAT16(0.1)),
        (np.float32, -np.inf, -np.inf),
        (np.int32, 16777217, 16777217),
        (np.uint8, 300, 255),
        (np.int8, 0.0, 0),
        (np.bool_, 7, True),
    ],
)
def test_tensor_copy_predicated_of_a_number(dtype, number, written):
    dst, pred = np.ones((4, 6), dtype), predicate(4, 6)
    result = after(copy_number(number), dst, pred)[0]
    np.testing.assert_array_equal(result, np.where(pred != 0, np.array(written, dtype), dst))


def test_tensor_copy_predicated_on_a_strided_view_of_dst():
    dst, src, pred = floats(4, 12), -floats(4, 4), predicate(4, 4)

    def issue(d, s, p):
        nisa.tensor_copy_predicated(d[:, 1:12:3], s, p)

    expected = dst.copy()
    expected[:, 1::3] = np.where(pred != 0, src, dst[:, 1::3])
    np.testing.assert_array_equal(after(issue, dst, src, pred)[0], expected)


def test_tensor_copy_predicated_refuses():
    pred = predicate(4, 8)
    for dtype in (np.int8, np.float32):
        with refused("tensor_copy_predicated", "one of uint16, uint32, uint8"):
            after(copy(), zeros(4, 8), zeros(4, 8), zeros(4, 8, dtype=dtype))
    with refused("tensor_copy_predicated", "same dtype"):
        after(copy(), zeros(4, 8), zeros(4, 8, dtype=BFLOAT16), pred)
    with refused("tensor_copy_predicated", "same dtype"):
        after(copy_number(0.5), zeros(4, 8, dtype=np.int8), pred)
    with refused("tensor_copy_predicated", "src is a Python number"):
        after(copy_number(None), zeros(4, 8), pred)
    with refused("tensor_copy_predicated", "one full-size input may come from PSUM"):
        after(copy(), zeros(4, 8), Psum(zeros(4, 8)), Psum(pred))
    with refused("tensor_copy_predicated", "same number of elements per partition"):
        after(copy(), zeros(4, 8), zeros(4, 8), predicate(4, 4))
    with refused("tensor_copy_predicated", "same number of partitions"):
        after(copy(), zeros(4, 8), zeros(4, 8), predicate(2, 8))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.uint16])
def test_select_reduce(reverse, kind):
    on_true, column, pred = floats(64, 2, 5), floats(64, 1), predicate(64, 10, dtype=kind)

    def issue(dst, p, x, c, result, other):
        flags = {"reverse_pred": reverse, "reduce_cmd": reduce_cmd.reset_reduce}
        nisa.select_reduce(dst, p, x, c, result, **flags)
        nisa.select_reduce(other, p, x, -7.5, reverse_pred=reverse)

    tiles = Psum(zeros(64, 10)), pred, Psum(on_true), column, zeros(64, 1), zeros(64, 10)
    outputs = after(issue, *tiles)
    chosen = (pred == 0) if reverse else (pred != 0)
    expected = np.where(chosen, on_true.reshape(64, 10), column)
    np.testing.assert_array_equal(outputs[0], expected)
    np.testing.assert_array_equal(outputs[4][:, 0], expected.max(axis=1))
    np.testing.assert_array_equal(outputs[5], np.where(chosen, on_true.reshape(64, 10), -7.5))


def test_select_reduce_goes_on_over_tiles_with_values_not_yet_cast():
    data = np.full((4, 6), 1 + 2**-10, np.float32)
    data[2, 5] = 2 + 2**-10

    def issue(dst, p, x, result):
        select = nisa.select_reduce
        select(dst[:, 3:6], p, x[:, 3:6], 0.0, reduce_cmd=reduce_cmd.reset_reduce)
        select(dst[:, 0:3], p, x[:, 0:3], 0.0, result, reduce_cmd.reduce, nl.max)

    pred = np.ones((4, 3), np.uint8)
    dst, *_, result = after(issue, zeros(4, 6, dtype=BFLOAT16), pred, data, zeros(4, 1))
    np.testing.assert_array_equal(dst.astype(np.float32), np.floor(data))
    np.testing.assert_array_equal(result[:, 0], data.max(axis=1))


def test_an_idle_select_reduce_leaves_the_registers_unspecified():
    def issue(dst, p, x, idle, later):
        nisa.select_reduce(dst, p, x, 0.0, reduce_cmd=reduce_cmd.reset_reduce)
        nisa.select_reduce(dst, p, x, 0.0, idle)
        nisa.select_reduce(dst, p, x, 0.0, later, reduce_cmd=reduce_cmd.reduce)

    *_, idle, later = after(
        issue, zeros(4, 6), predicate(4, 6), zeros(4, 6), zeros(4, 1), zeros(4, 1)
    )
    assert np.isnan(idle).all()
    assert np.isnan(later).all()


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"on_false": None}, "on_false is a Python number"),
        ({"reduce_op": nl.add}, r"one of nl\.maximum, nl\.max"),
        ({"reduce_op": None}, "an operator of nki.language"),
        ({"reduce_cmd": reduce_cmd.load_reduce}, r"one of reduce_cmd\.idle"),
        ({"reduce_cmd": 3}, r"a member of nisa\.reduce_cmd"),
    ],
)
def test_select_reduce_refuses(options, limit):
    def issue(dst, p, x):
        nisa.select_reduce(dst, p, x, **{"on_false": 0.0, **options})

    with refused("select_reduce", limit):
        after(issue, zeros(4, 8), predicate(4, 8), zeros(4, 8))


def test_select_reduce_refuses_types_sizes_and_places():
    def issue(dst, p, x, c, result):
        nisa.select_reduce(dst, p, x, c, result, reduce_cmd.reset_reduce)

    def check(limit, *changes):
        tiles = [zeros(4, 8), predicate(4, 8), zeros(4, 8), zeros(4, 1), zeros(4, 1)]
        for position, tile in changes:
            tiles[position] = tile
        with refused("select_reduce", limit):
            after(issue, *tiles)

    check("one of int16, int8, uint16, uint8", (1, predicate(4, 8, dtype=np.uint32)))
    for dtype in (np.int32, np.uint32):
        check("one of bfloat16", (2, zeros(4, 8, dtype=dtype)))
    check("one of bfloat16", (4, zeros(4, 1, dtype=np.int8)))
    check(
        "one full-size input may come from PSUM", (1, Psum(predicate(4, 8))), (2, Psum(zeros(4, 8)))
    )
    check("same number of elements per partition", (2, zeros(4, 4)))
    check("same number of partitions", (3, zeros(2, 1)))
    check("1 element per partition", (3, zeros(4, 8)))
    check("1 element per partition", (4, zeros(4, 8)))


COMPARISONS = {
    nl.equal: np.equal,
    nl.less: np.less,
    nl.less_equal: np.less_equal,
    nl.greater: np.greater,
    nl.greater_equal: np.greater_equal,
}


@pytest.mark.parametrize("comp_op0", COMPARISONS)
@pytest.mark.parametrize("comp_op1", [nl.less, nl.greater_equal])
def test_range_select(comp_op0, comp_op1):
    data = floats(8, 2, 10)
    low = np.arange(8, dtype=np.float32)[:, None] + 98
    high = low + np.arange(8, dtype=np.float32)[:, None] * 2 - 3

    def issue(dst, x, b0, b1, result):
        options = {"range_start": 96, "reduce_res": result, "on_false_value": FP32_MIN}
        nisa.range_select(dst, x, comp_op0, comp_op1, b0, b1, **options)

    index = 96 + np.arange(20)
    inside = COMPARISONS[comp_op0](index, low) & COMPARISONS[comp_op1](index, high)
    expected = np.where(inside, data.reshape(8, 20), np.float32(FP32_MIN))
    dst, *_, result = after(issue, zeros(8, 20), Psum(data), low, Psum(high), zeros(8, 1))
    np.testing.assert_array_equal(dst, expected)
    np.testing.assert_array_equal(result[:, 0], expected.max(axis=1))


def test_range_select_fills_narrow_types_with_minus_infinity():
    def issue(dst, x, bound, result):
        nisa.range_select(dst, x, nl.less, nl.less, bound, bound, reduce_res=result)

    tiles = zeros(2, 4, dtype=BFLOAT16), zeros(2, 4, dtype=BFLOAT16), zeros(2, 1), zeros(2, 1)
    dst, *_, result = after(issue, *tiles)
    np.testing.assert_array_equal(dst.astype(np.float32), -np.inf)
    np.testing.assert_array_equal(result, np.float32(FP32_MIN))


def test_range_select_reduces_over_tiles():
    data = floats(4, 12)

    def issue(dst, x, bound, result):
        select = nisa.range_select
        select(dst[:, 0:6], x[:, 0:6], nl.less, nl.less, bound, bound)
        options = {"range_start": 6, "reduce_res": result, "reduce_cmd": reduce_cmd.reduce}
        select(dst[:, 6:12], x[:, 6:12], nl.less, nl.less, bound, bound, **options)

    bound = np.full((4, 1), 9, np.float32)
    result = after(issue, zeros(4, 12), data, bound, zeros(4, 1))[3]
    np.testing.assert_array_equal(result[:, 0], data[:, :9].max(axis=1))


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"comp_op0": nl.not_equal}, r"one of nl\.equal, nl\.less, nl\.less_equal"),
        ({"comp_op1": np.less}, "an operator of nki.language"),
        ({"reduce_op": nl.add}, r"one of nl\.maximum, nl\.max"),
        ({"reduce_cmd": reduce_cmd.load_reduce}, r"one of reduce_cmd\.idle"),
        ({"on_false_value": 0.0}, "the least float32, -3.4028235e"),
        ({"on_false_value": -np.inf}, "the least float32"),
        ({"on_false_value": None}, "the least float32"),
        ({"range_start": 0.0}, "compile-time integer"),
        ({"range_start": 2**24 - 6}, r"16777216 \(2\*\*24\)"),
        ({"range_start": -(2**24) - 1}, r"16777216 \(2\*\*24\)"),
    ],
)
def test_range_select_refuses(options, limit):
    def issue(dst, x, bound):
        arguments = {"comp_op0": nl.less, "comp_op1": nl.less, "bound0": bound, "bound1": bound}
        nisa.range_select(dst, x, **{**arguments, **options})

    with refused("range_select", limit):
        after(issue, zeros(4, 8), zeros(4, 8), zeros(4, 1))


def test_range_select_reaches_the_last_exact_index():
    def issue(dst, x, bound):
        nisa.range_select(dst, x, nl.less, nl.less, bound, bound, range_start=2**24 - 7)

    bound = np.full((1, 1), 2**24, np.float32)
    result = after(issue, zeros(1, 8), np.ones((1, 8), np.float32), bound)[0]
    np.testing.assert_array_equal(result, [[1] * 7 + [np.float32(FP32_MIN)]])


def test_range_select_refuses_types_sizes_and_generations():
    def issue(dst, x, b0, b1):
        nisa.range_select(dst, x, nl.less, nl.less, b0, b1)

    def check(limit, position, tile, machine="trn2"):
        tiles = [zeros(4, 8), zeros(4, 8), zeros(4, 1), zeros(4, 1)]
        tiles[position] = tile
        with refused("range_select", limit):
            after(issue, *tiles, machine=machine)

    check("one of bfloat16", 1, zeros(4, 8, dtype=np.int32))
    check("^one of float32$", 2, zeros(4, 1, dtype=BFLOAT16))
    check("^one of float32$", 3, zeros(4, 1, dtype=np.int32))
    check("1 element per partition", 2, zeros(4, 8))
    check("same number of partitions", 3, zeros(2, 1))
    check("same number of elements per partition", 0, zeros(4, 4))
    check("from NeuronCore-v3 on", 0, zeros(4, 8), machine="trn1")


def test_bounds_are_tiles():
    def issue(dst, x):
        nisa.range_select(dst, x, nl.less, nl.less, 0.0, 1.0)

    with refused("range_select", "operands are NkiTensor views"):
        after(issue, zeros(4, 8), zeros(4, 8))


def test_shape_only_runs_issue_the_same():
    def issue(dst, x, p, column):
        nisa.tensor_copy_predicated(dst, x, p)
        nisa.select_reduce(dst, p, x, column, column, reduce_cmd.reset_reduce)
        nisa.range_select(dst, x, nl.less, nl.less, column, column, reduce_res=column)

    assert_shape_only_agrees(issue, zeros(4, 8), zeros(4, 8), predicate(4, 8), zeros(4, 1))
    with refused("tensor_copy_predicated", "one of uint16"):
        tiles = zeros(4, 8), zeros(4, 8), zeros(4, 8)
        run_tiles(copy(), *tiles, values=False)

"""activate2 and exponential (trn3) against NumPy, and their rules."""

import ml_dtypes
import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from isa_tiles import Psum, after, assert_shape_only_agrees, issued, refused, run_tiles, zeros
from nkisim.enums import engine, reduce_cmd
from nkisim.isa.activation import OutOfRangeWarning

BFLOAT16 = ml_dtypes.bfloat16
ROUNDED = 2.0**-24  # relative error of one rounding to float32


def floats(*shape):
    return np.random.default_rng(4).normal(size=shape).astype(np.float32)


def wholes(*shape):
    return np.random.default_rng(5).integers(-4, 5, shape).astype(np.float32)


def on_trn3(issue, *tiles):
    return after(issue, *tiles, machine="trn3")


def steps(op0, op1, imm0=0.0, imm1=0.0, op=nl.copy, **options):
    return lambda dst, data: nisa.activate2(dst, op, data, imm0, imm1, op0, op1, **options)


NUMPY = {
    nl.multiply: np.multiply,
    nl.add: np.add,
    nl.subtract: np.subtract,
    nl.bypass: lambda x, _: x,
}


@pytest.mark.parametrize(
    ("op0", "op1"),
    [
        (nl.multiply, nl.add),
        (nl.multiply, nl.subtract),
        (nl.multiply, nl.bypass),
        (nl.add, nl.bypass),
        (nl.subtract, nl.bypass),
        (nl.bypass, nl.bypass),
    ],
)
def test_the_six_pairs_of_steps(op0, op1):
    data = floats(64, 2, 6)
    result = on_trn3(steps(op0, op1, 0.7, 0.2), zeros(64, 12), data)[0]
    first = NUMPY[op0](data, np.float32(0.7))
    expected = NUMPY[op1](first, np.float32(0.2)).reshape(64, 12)
    np.testing.assert_array_equal(result, expected)


def test_columns_and_reversed_steps():
    data, scale, shift = floats(64, 6), floats(64, 1), floats(64, 1) * 2

    def issue(dst, x, a, b, other):
        nisa.activate2(dst, nl.relu, x, a, b, nl.multiply, nl.subtract, reverse1=True)
        nisa.activate2(other, nl.copy, x, a, 0.0, nl.subtract, nl.bypass, reverse0=True)

    outputs = on_trn3(issue, zeros(64, 6), Psum(data), scale, shift, zeros(64, 6))
    np.testing.assert_array_equal(outputs[0], np.maximum(shift - data * scale, 0))
    np.testing.assert_array_equal(outputs[4], scale - data)


def test_prelu_takes_its_slope():
    data, slope = floats(8, 6), floats(8, 1)

    def issue(dst, x, s, other):
        nisa.activate2(dst, nl.prelu, x, 0, 0, nl.bypass, nl.bypass, relu_param=s)
        nisa.activate2(other, nl.prelu, x, 0, 0, nl.bypass, nl.bypass, relu_param=0.25)

    outputs = on_trn3(issue, zeros(8, 6), data, slope, zeros(8, 6))
    np.testing.assert_array_equal(outputs[0], np.where(data < 0, slope * data, data))
    np.testing.assert_array_equal(outputs[3], np.where(data < 0, data / 4, data))


def largest(values):
    return values[np.arange(len(values)), np.abs(values).argmax(axis=1)]


def smallest(values):
    return values[np.arange(len(values)), np.abs(values).argmin(axis=1)]


@pytest.mark.parametrize(
    ("op", "reference"),
    [
        (nl.add, lambda x: x.sum(axis=1)),
        (nl.maximum, lambda x: x.max(axis=1)),
        (nl.minimum, lambda x: x.min(axis=1)),
        (nl.abs_max, largest),
        (nl.abs_min, smallest),
    ],
)
def test_reductions_start_at_their_identity_and_go_on(op, reference):
    data = wholes(32, 6) if op is nl.add else floats(32, 6)

    def issue(dst, x, result):
        arguments = (0, 0, nl.bypass, nl.bypass)
        options = {"reduce_op": op, "reduce_cmd": reduce_cmd.reset_reduce}
        nisa.activate2(dst[:, 0:3], nl.copy, x[:, 0:3], *arguments, **options)
        options |= {"reduce_cmd": reduce_cmd.reduce, "reduce_res": result}
        nisa.activate2(dst[:, 3:6], nl.copy, x[:, 3:6], *arguments, **options)

    result = on_trn3(issue, zeros(32, 6), data, zeros(32, 1))[2]
    np.testing.assert_array_equal(result[:, 0], reference(data))


def test_its_registers_are_those_of_activation():
    def issue(dst, x, result):
        nisa.activation_reduce(dst, nl.copy, x, nl.add, None)
        options = {"reduce_op": nl.add, "reduce_cmd": reduce_cmd.reduce, "reduce_res": result}
        nisa.activate2(dst, nl.copy, x, 0, 0, nl.bypass, nl.bypass, **options)

    result = on_trn3(issue, zeros(2, 3), np.ones((2, 3), np.float32), zeros(2, 1))[2]
    np.testing.assert_array_equal(result, 6)


def test_unspecified_registers_stay_so_under_every_operator():
    def issue(dst, x, result):
        options = {"reduce_op": nl.abs_max, "reduce_cmd": reduce_cmd.reduce, "reduce_res": result}
        nisa.activate2(dst, nl.copy, x, 0, 0, nl.bypass, nl.bypass, **options)

    assert np.isnan(on_trn3(issue, zeros(2, 3), zeros(2, 3), zeros(2, 1))[2]).all()


def test_activate2_announces_arguments_out_of_range_on_the_line_of_the_kernel():
    issue = steps(nl.subtract, nl.bypass, imm0=1.0, op=nl.sqrt)
    with pytest.warns(OutOfRangeWarning, match=r"activate2: nl\.sqrt") as caught:
        on_trn3(issue, zeros(1, 1), np.ones((1, 1), np.float32))
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize(
    ("issue", "limit"),
    [
        (steps(nl.add, nl.add), r"one of \(nl\.multiply, nl\.add\)"),
        (steps(nl.bypass, nl.add), r"one of \(nl\.multiply, nl\.add\)"),
        (steps(None, nl.bypass), "an operator of nki.language"),
        (steps(nl.bypass, nl.bypass, reverse0=True), "reverse0 needs an operator"),
        (steps(nl.multiply, nl.bypass, reverse1=True), "reverse1 needs an operator"),
        (steps(nl.multiply, nl.bypass, imm0=None), "imm0 is a Python number"),
        (steps(nl.multiply, nl.bypass, imm1=None), "imm1 is a Python number"),
        (steps(nl.bypass, nl.bypass, relu_param=0.1), "slope of nl.prelu"),
        (steps(nl.bypass, nl.bypass, op=nl.add), "an activation function"),
        (steps(nl.bypass, nl.bypass, reduce_op=nl.multiply), r"one of nl\.add, nl\.maximum"),
        (steps(nl.bypass, nl.bypass, reduce_cmd=reduce_cmd.reduce), "a reduction has an operator"),
        (
            steps(nl.bypass, nl.bypass, reduce_cmd=reduce_cmd.load_reduce),
            r"one of reduce_cmd\.idle, reduce_cmd\.reset",
        ),
    ],
)
def test_activate2_refuses(issue, limit):
    with refused("activate2", limit):
        on_trn3(issue, zeros(4, 8), zeros(4, 8))


def test_activate2_refuses_sizes_types_and_generations():
    def issue(dst, x, a, b):
        nisa.activate2(dst, nl.copy, x, a, b, nl.multiply, nl.add)

    tiles = zeros(4, 8), zeros(4, 8)
    with refused("activate2", "same dtype"):
        on_trn3(issue, *tiles, zeros(4, 1), zeros(4, 1, dtype=BFLOAT16))
    with refused("activate2", "1 element per partition"):
        on_trn3(issue, *tiles, zeros(4, 2), zeros(4, 1))
    with refused("activate2", "same number of partitions"):
        on_trn3(issue, *tiles, zeros(2, 1), zeros(4, 1))
    with refused("activate2", "same number of elements"):
        on_trn3(steps(nl.bypass, nl.bypass), zeros(4, 4), zeros(4, 8))
    with refused("activate2", "from NeuronCore-v4 on"):
        after(steps(nl.bypass, nl.bypass), *tiles, machine="trn2")


@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16, np.int16])
def test_exponential(dtype):
    data, greatest = wholes(64, 2, 6).astype(dtype), wholes(64, 1)

    def issue(dst, x, m, other):
        nisa.exponential(dst, x, max_value=m)
        nisa.exponential(other, x)

    ran = run_tiles(issue, zeros(64, 12), data, greatest, zeros(64, 2, 6), machine="trn3")
    wide = data.astype(np.float64)
    expected = np.exp(wide.reshape(64, 12) - greatest)
    np.testing.assert_allclose(ran.outputs[0], expected, rtol=ROUNDED)
    np.testing.assert_allclose(ran.outputs[3], np.exp(wide), rtol=ROUNDED)
    engines = {i.engine for i in ran.trace.instructions() if i.op == "exponential"}
    assert engines == {engine.vector}


def test_exponential_sums_in_the_registers():
    data, start = floats(32, 8), floats(32, 1)

    def issue(dst, x, c, total, more, loaded):
        nisa.exponential(dst, x, reduce_res=total, reduce_cmd=reduce_cmd.reset_reduce)
        nisa.exponential(dst, x, reduce_res=more, reduce_cmd=reduce_cmd.reduce)
        options = {"reduce_cmd": reduce_cmd.load_reduce, "reduce_init": c}
        nisa.exponential(dst, x, reduce_res=loaded, **options)

    tiles = zeros(32, 8), data, start, zeros(32, 1), zeros(32, 1), zeros(32, 1)
    *_, total, more, loaded = (output[:, 0] for output in on_trn3(issue, *tiles))
    expected = np.exp(data.astype(np.float64)).sum(axis=1)
    # Eight rounded terms, and at most seven rounded sums of them.
    np.testing.assert_allclose(total, expected, rtol=8 * ROUNDED)
    np.testing.assert_allclose(more, 2 * expected, rtol=9 * ROUNDED)
    bound = 9 * ROUNDED * (expected + np.abs(start[:, 0]))
    assert (np.abs(loaded - (expected + start[:, 0])) <= bound).all()


def test_an_idle_exponential_leaves_the_registers_unspecified():
    def issue(dst, x, result):
        nisa.exponential(dst, x, reduce_cmd=reduce_cmd.reset_reduce)
        nisa.exponential(dst[0:1], x[0:1])
        nisa.exponential(dst, x, reduce_res=result, reduce_cmd=reduce_cmd.reduce)

    assert np.isnan(on_trn3(issue, zeros(4, 3), zeros(4, 3), zeros(4, 1))[2]).all()


def exponential(**options):
    return lambda dst, src, *_: nisa.exponential(dst, src, **options)


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"max_value": None}, "max_value is a Python number"),
        ({"reduce_init": 1.0}, "reduce_init is for reduce_cmd.load_reduce"),
        ({"reduce_cmd": reduce_cmd.reset}, r"one of reduce_cmd\.idle, reduce_cmd\.reset_reduce"),
        ({"reduce_cmd": reduce_cmd.load_reduce, "reduce_init": None}, "load_reduce loads"),
        ({"reduce_cmd": reduce_cmd.load_reduce, "reduce_init": "0"}, "reduce_init is a Python"),
        ({"reduce_cmd": "reduce"}, r"a member of nisa\.reduce_cmd"),
    ],
)
def test_exponential_refuses(options, limit):
    with refused("exponential", limit):
        on_trn3(exponential(**options), zeros(4, 8), zeros(4, 8))


def test_exponential_refuses_types_sizes_and_generations():
    def issue(dst, src, m, result):
        options = {"reduce_cmd": reduce_cmd.reset_reduce, "reduce_res": result}
        nisa.exponential(dst, src, m, **options)

    def check(limit, position, tile):
        tiles = [zeros(4, 8), zeros(4, 8), zeros(4, 1), zeros(4, 1)]
        tiles[position] = tile
        with refused("exponential", limit):
            on_trn3(issue, *tiles)

    check("one of bfloat16", 0, zeros(4, 8, dtype=np.uint32))
    check("one of bfloat16", 1, zeros(4, 8, dtype=ml_dtypes.float8_e4m3fn))
    check("^one of float32$", 2, zeros(4, 1, dtype=BFLOAT16))
    check("one of bfloat16", 3, zeros(4, 1, dtype=np.int32))
    check("same number of elements", 0, zeros(4, 4))
    check("same number of partitions", 2, zeros(2, 1))
    check("1 element per partition", 3, zeros(4, 2))
    with refused("exponential", "^4 dimensions"):
        on_trn3(exponential(), zeros(4, 16), zeros(4, 2, 2, 2, 2))
    with refused("exponential", "from NeuronCore-v4 on"):
        after(exponential(), zeros(4, 8), zeros(4, 8), machine="trn2")


def test_registers_are_read_out_as_a_write():
    def issue(dst, src, result):
        nisa.exponential(dst, src, reduce_res=result, reduce_cmd=reduce_cmd.reset_reduce)

    ran = run_tiles(issue, zeros(4, 8), zeros(4, 8), zeros(4, 1), machine="trn3")
    assert [access.layout.elems for access in issued(ran, "exponential").writes] == [8, 1]


def test_shape_only_runs_issue_the_same():
    def issue(dst, src, column):
        nisa.exponential(dst, src, column, column, reduce_cmd.reset_reduce)
        nisa.activate2(dst, nl.prelu, src, column, 0, nl.add, nl.bypass, relu_param=column)

    assert_shape_only_agrees(issue, zeros(4, 8), zeros(4, 8), zeros(4, 1), machine="trn3")

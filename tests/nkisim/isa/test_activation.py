"""activation and activation_reduce against NumPy, the Scalar engine's registers, and the rules."""

import math

import ml_dtypes
import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from isa_tiles import Psum, after, assert_shape_only_agrees, issued, refused, run_tiles, zeros
from nkisim.enums import engine, reduce_cmd
from nkisim.errors import UnsupportedError
from nkisim.isa.activation import OutOfRangeWarning

BFLOAT16 = ml_dtypes.bfloat16
ROUNDED = 2.0**-24  # relative error of one rounding to float32


def floats(*shape):
    return np.random.default_rng(4).normal(size=shape).astype(np.float32)


def wholes(*shape):
    return np.random.default_rng(5).integers(-4, 5, shape).astype(np.float32)


def activate(op, **options):
    return lambda dst, data: nisa.activation(dst, op, data, **options)


@pytest.mark.parametrize(
    ("op", "reference"),
    [
        (nl.exp, np.exp),
        (nl.tanh, np.tanh),
        (nl.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
        (nl.silu, lambda x: x / (1 + np.exp(-x))),
        (nl.gelu_apprx_sigmoid, lambda x: x / (1 + np.exp(-1.702 * x))),
        (nl.square, np.square),
        (nl.relu, lambda x: np.maximum(x, 0)),
        (nl.sign, np.sign),
    ],
)
@pytest.mark.parametrize("machine", ["trn1", "trn3"])
def test_activation_functions(op, reference, machine):
    data = floats(128, 4, 6)
    result = after(activate(op), Psum(zeros(128, 24)), data, machine=machine)[0]
    expected = reference(data.astype(np.float64)).reshape(128, 24)
    np.testing.assert_allclose(result, expected, rtol=ROUNDED)


def test_it_runs_on_the_scalar_engine():
    instruction = issued(run_tiles(activate(nl.exp), zeros(4, 8), zeros(4, 8)), "activation")
    assert instruction.engine is engine.scalar
    assert instruction.options == (("op", "exp"), ("reduce_cmd", "idle"))


@pytest.mark.parametrize("bias_dtype", [np.float32, BFLOAT16, np.int32])
def test_scale_and_bias_columns(bias_dtype):
    data, scale, bias = floats(96, 3, 5), floats(96, 1), wholes(96, 1).astype(bias_dtype)

    def issue(dst, x, s, b):
        nisa.activation(dst, nl.copy, x, bias=b, scale=s)

    result = after(issue, zeros(96, 3, 5, dtype=BFLOAT16), Psum(data), Psum(scale), bias)[0]
    expected = data * scale[:, :, None] + bias.astype(np.float32)[:, :, None]
    np.testing.assert_array_equal(result, expected.astype(BFLOAT16))


def test_scale_and_bias_numbers():
    data = floats(96, 15)
    result = after(activate(nl.relu, scale=-0.3, bias=0.1), zeros(96, 15), data)[0]
    expected = np.maximum(data * np.float32(-0.3) + np.float32(0.1), 0)
    np.testing.assert_array_equal(result, expected)


def test_copy_in_place_and_between_types():
    data = floats(8, 6)

    def issue(x, narrow):
        nisa.activation(narrow, nl.copy, x)
        nisa.activation(x[:, 0:4], nl.copy, x[:, 0:4], scale=2.0)

    doubled, narrow = after(issue, data, zeros(8, 6, dtype=np.int16))
    np.testing.assert_array_equal(narrow, np.rint(data))
    np.testing.assert_array_equal(doubled, data * np.array([2, 2, 2, 2, 1, 1], np.float32))


def test_a_column_of_a_wider_tile_is_a_bias():
    data, table = floats(8, 6), floats(8, 3)

    def issue(dst, x, t):
        nisa.activation(dst, nl.copy, x, bias=t[:, 1], scale=t[:, 2:3])

    result = after(issue, zeros(8, 6), data, table)[0]
    np.testing.assert_array_equal(result, data * table[:, 2:3] + table[:, 1:2])


def test_the_sum_goes_into_registers_and_out_of_them():
    data = wholes(16, 2, 6)

    def issue(dst, x, first, second, third):
        options = {"reduce_op": nl.add, "reduce_cmd": reduce_cmd.reset_reduce}
        nisa.activation(dst, nl.square, x, **options)
        nisa.activation(dst, nl.copy, x, reduce_res=first)
        options["reduce_cmd"] = reduce_cmd.reduce
        nisa.activation(dst, nl.abs, x, reduce_res=second, **options)
        nisa.activation(dst, nl.copy, x, reduce_res=third, reduce_cmd=reduce_cmd.reset)

    tiles = zeros(16, 12), data, zeros(16, 1), Psum(zeros(16, 1)), zeros(16, 1)
    *_, first, second, third = after(issue, *tiles)
    squares = np.square(data).sum(axis=(1, 2))
    np.testing.assert_array_equal(first[:, 0], squares)
    np.testing.assert_array_equal(second[:, 0], squares + np.abs(data).sum(axis=(1, 2)))
    np.testing.assert_array_equal(third[:, 0], 0)


def test_the_sum_takes_values_that_are_not_yet_cast():
    data = np.full((4, 2), 1 + 2**-10, np.float32)

    def issue(dst, x, result):
        nisa.activation_reduce(dst, nl.copy, x, nl.add, result)

    dst, _, result = after(issue, zeros(4, 2, dtype=BFLOAT16), data, zeros(4, 1))
    np.testing.assert_array_equal(dst.astype(np.float32), 1)
    np.testing.assert_array_equal(result, 2 + 2**-9)


def test_registers_start_unspecified_and_vector_instructions_do_not_touch_them():
    def issue(dst, x, before, after_vector):
        nisa.activation(dst, nl.copy, x, reduce_res=before)
        nisa.activation_reduce(dst, nl.copy, x, nl.add, None)
        nisa.tensor_scalar_reduce(dst, x, nl.add, 0.0, nl.max)
        nisa.activation(dst, nl.copy, x, reduce_res=after_vector)

    data = np.full((4, 3), 2, np.float32)
    *_, before, after_vector = after(issue, zeros(4, 3), data, zeros(4, 1), zeros(4, 1))
    assert np.isnan(before).all()
    np.testing.assert_array_equal(after_vector, 6)


def test_the_result_is_no_part_of_dst():
    """Which of the two writes would stay is documented nowhere."""

    def issue(dst, x):
        options = {"reduce_op": nl.add, "reduce_cmd": reduce_cmd.reset_reduce}
        nisa.activation(dst, nl.copy, x, reduce_res=dst[:, 0:1], **options)

    with refused("activation", "the same elements in the same order, or share no byte"):
        after(issue, zeros(2, 3), np.ones((2, 3), np.float32))


def test_activation_reduce_is_activation_with_reset_reduce():
    data, scale, bias = wholes(32, 8), wholes(32, 1), wholes(32, 1)

    def issue(dst, x, s, b, result):
        nisa.activation_reduce(dst, nl.square, x, nl.add, result, bias=b, scale=s)
        nisa.activation_reduce(dst, nl.square, x, nl.add, result, bias=b, scale=s)

    dst, *_, result = after(issue, zeros(32, 8), data, scale, bias, zeros(32, 1))
    expected = np.square(data * scale + bias)
    np.testing.assert_array_equal(dst, expected)
    np.testing.assert_array_equal(result[:, 0], expected.sum(axis=1))


@pytest.mark.parametrize(
    ("op", "inside", "outside"),
    [
        (nl.log, 2.0**-64, 2.0**-65),
        (nl.sin, 3.14, 9.0),
        (nl.arctan, -1.5, -1.6),
        (nl.sqrt, 2.0**-116, 0.0),
        (nl.rsqrt, 2.0**97, 2.0**98),
        (nl.reciprocal, -(2.0**-42), -(2.0**-43)),
    ],
)
def test_arguments_outside_of_the_valid_range_are_announced(op, inside, outside):
    data = np.full((2, 3), inside, np.float32)
    after(activate(op), zeros(2, 3), data)
    data[1, 2] = outside
    with pytest.warns(OutOfRangeWarning, match=rf"activation: {op!r} of a .* not valid there"):
        after(activate(op), zeros(2, 3), data)


def test_the_warning_names_the_line_of_the_kernel():
    with pytest.warns(OutOfRangeWarning) as caught:
        after(activate(nl.log), zeros(1, 1), zeros(1, 1))
    assert [warning.filename for warning in caught] == [__file__]


def test_the_range_is_that_of_the_scaled_argument():
    data = np.full((2, 3), 9.0, np.float32)
    result = after(activate(nl.sin, scale=0.1), zeros(2, 3), data)[0]
    np.testing.assert_allclose(result, math.sin(np.float32(9) * np.float32(0.1)), rtol=ROUNDED)


def test_sin_beyond_its_range_is_the_documented_cubic():
    with pytest.warns(OutOfRangeWarning):
        result = after(activate(nl.sin), zeros(1, 1), np.full((1, 1), 9.0, np.float32))[0]
    assert abs(result[0, 0] - 27.65) < 0.005  # the documents give four digits


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"op": nl.add}, "an activation function"),
        ({"op": np.tanh}, "an operator of nki.language"),
        ({"scale": None}, r"scale is a Python number or a \(P, 1\) tile"),
        ({"bias": "0"}, r"bias is a Python number or a \(P, 1\) tile"),
        ({"reduce_op": nl.maximum}, r"one of nl\.add$"),
        ({"reduce_cmd": reduce_cmd.reduce}, "a reduction has an operator"),
        ({"reduce_cmd": reduce_cmd.reset_reduce}, "a reduction has an operator"),
        ({"reduce_cmd": reduce_cmd.load_reduce, "reduce_op": nl.add}, r"one of reduce_cmd\.idle"),
        ({"reduce_cmd": 2}, r"a member of nisa\.reduce_cmd"),
    ],
)
def test_activation_refuses(options, limit):
    def issue(dst, data):
        nisa.activation(dst, data=data, **{"op": nl.copy, **options})

    with refused("activation", limit):
        after(issue, zeros(4, 8), zeros(4, 8))


def test_activation_refuses_sizes_and_types():
    def issue(dst, x, bias, scale, result):
        nisa.activation(dst, nl.copy, x, bias, scale, reduce_res=result)

    def check(limit, *changes):
        tiles = [zeros(4, 8), zeros(4, 8), zeros(4, 1), zeros(4, 1), zeros(4, 1)]
        for position, tile in changes:
            tiles[position] = tile
        with refused("activation", limit):
            after(issue, *tiles)

    check("same number of elements per partition", (0, zeros(4, 4)))
    check("same number of partitions", (0, zeros(2, 8)))
    for column in (2, 3, 4):
        check("1 element per partition", (column, zeros(4, 2)))
        check("same number of partitions", (column, zeros(2, 1)))
    check("^one of float32$", (3, zeros(4, 1, dtype=BFLOAT16)))


def test_a_bias_is_not_tfloat32():
    def issue(dst, x, b):
        nisa.activation(dst, nl.copy, x, bias=b.view(nl.tfloat32))

    with refused("activation", "one of bfloat16"):
        after(issue, zeros(4, 8), zeros(4, 8), zeros(4, 1))


def test_what_trn1_lacks():
    tiles = zeros(4, 8), np.ones((4, 8), np.float32)
    with refused("activation", r"bias is a \(P, 1\) tile before NeuronCore-v3"):
        after(activate(nl.copy, bias=1.0), *tiles, machine="trn1")

    def reciprocal(dst, x, b):
        nisa.activation(dst, nl.reciprocal, x, bias=b)

    with refused("activation", "nl.reciprocal has no bias before NeuronCore-v3"):
        after(reciprocal, *tiles, zeros(4, 1), machine="trn1")
    result = after(reciprocal, *tiles, np.ones((4, 1), np.float32), machine="trn2")[0]
    np.testing.assert_array_equal(result, 0.5)
    result = after(activate(nl.reciprocal), *tiles, machine="trn1")[0]
    np.testing.assert_array_equal(result, 1.0)


def test_prelu_has_no_slope_here():
    with refused("activation", "slope", UnsupportedError):
        after(activate(nl.prelu), zeros(4, 8), zeros(4, 8))


def test_activation_reduce_refuses_in_its_own_name():
    def issue(dst, x, result):
        nisa.activation_reduce(dst, nl.copy, x, nl.max, result)

    with refused("activation_reduce", r"one of nl\.add$"):
        after(issue, zeros(4, 8), zeros(4, 8), zeros(4, 1))


def test_shape_only_runs_issue_the_same_and_do_not_warn():
    def issue(dst, x, column):
        nisa.activation(dst, nl.copy, x, bias=column, scale=column)
        nisa.activation_reduce(dst, nl.exp, x, nl.add, column)

    assert_shape_only_agrees(issue, zeros(4, 8), zeros(4, 8), zeros(4, 1))
    run_tiles(activate(nl.log), zeros(4, 8), zeros(4, 8), values=False)
    with refused("activation", "an activation function"):
        run_tiles(activate(nl.add), zeros(4, 8), zeros(4, 8), values=False)

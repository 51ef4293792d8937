"""iota and affine_select against nested loops, and their rules."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from isa_tiles import Psum, after, assert_shape_only_agrees, issued, refused, run_tiles, zeros
from nkisim.enums import engine
from nkisim.tensors.registers import VirtualRegister

BFLOAT16 = ml_dtypes.bfloat16


def affine(partitions, pattern, offset, multiplier):
    """The documents' nested loops."""
    values = np.empty((partitions, int(np.prod([count for _, count in pattern]))), np.int64)
    for p in range(partitions):
        indices = itertools.product(*(range(count) for _, count in pattern))
        for position, index in enumerate(indices):
            steps = sum(step * i for (step, _), i in zip(pattern, index, strict=True))
            values[p, position] = offset + p * multiplier + steps
    return values


def write(pattern, **options):
    return lambda dst: nisa.iota(dst, pattern, **options)


PATTERNS = [
    [[1, 24]],
    [[0, 24]],
    [[-3, 4], [1, 6]],
    [[100, 2], [10, 3], [1, 4]],
    [(7, 2), (0, 3), (-1, 2), (5, 2)],
]


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.int16])
def test_iota(pattern, dtype):
    ran = run_tiles(write(pattern, offset=-5, channel_multiplier=11), zeros(32, 4, 6, dtype=dtype))
    expected = affine(32, pattern, -5, 11).reshape(32, 4, 6)
    np.testing.assert_array_equal(ran.outputs[0], expected)
    assert issued(ran, "iota").engine is engine.gpsimd


def test_iota_is_exact_in_32_bits_and_wraps():
    pattern, offset = [[1, 4]], 2**31 - 2
    result = after(write(pattern, offset=offset), zeros(1, 4, dtype=np.int32))[0]
    np.testing.assert_array_equal(result, [[2**31 - 2, 2**31 - 1, -(2**31), -(2**31) + 1]])
    result = after(write([[1, 2]], offset=2**24), zeros(1, 2, dtype=np.int32))[0]
    np.testing.assert_array_equal(result, [[16777216, 16777217]])


def test_iota_saturates_narrow_integers_and_rounds_floats():
    result = after(write([[100, 4]], offset=-100), zeros(1, 4, dtype=np.uint8))[0]
    np.testing.assert_array_equal(result, [[0, 0, 100, 200]])
    result = after(write([[100, 4]], offset=-100), zeros(1, 4, dtype=np.int8))[0]
    np.testing.assert_array_equal(result, [[-100, 0, 100, 127]])
    result = after(write([[1, 4]], offset=255), zeros(1, 4, dtype=BFLOAT16))[0]
    np.testing.assert_array_equal(result, np.arange(255, 259).astype(BFLOAT16)[None])


def test_iota_into_a_strided_view():
    def issue(dst):
        nisa.iota(dst[:, 1:9:2], [[1, 4]], channel_multiplier=10)

    expected = np.zeros((3, 9))
    expected[:, 1::2] = affine(3, [[1, 4]], 0, 10)
    np.testing.assert_array_equal(after(issue, zeros(3, 9))[0], expected)


def test_the_offset_may_be_a_register():
    def issue(dst):
        nisa.iota(dst, [[1, 4]], offset=VirtualRegister(40))

    np.testing.assert_array_equal(after(issue, zeros(1, 4))[0], [[40, 41, 42, 43]])
    assert_shape_only_agrees(issue, zeros(1, 4))


@pytest.mark.parametrize(
    ("pattern", "limit"),
    [
        ([[1, 2]] * 5, "1 to 4 dimensions"),
        ([], "1 to 4 dimensions"),
        ([[1, 5]], "dst has 8 elements per partition"),
        ([[1, -8], [1, -1]], "every count is at least 1"),
        ([1, 8], r"a list of \[step, count\] pairs"),
        ([[1, 2, 4]], r"a list of \[step, count\] pairs"),
        ([[0.5, 8]], r"a list of \[step, count\] pairs"),
        (8, r"a list of \[step, count\] pairs"),
    ],
    ids=str,
)
def test_iota_refuses_patterns(pattern, limit):
    with refused("iota", limit):
        after(write(pattern), zeros(4, 8))


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 0.5, None])
def test_iota_takes_32_bit_integers(value):
    with refused("iota", "offset is a 32-bit integer"):
        after(write([[1, 8]], offset=value), zeros(4, 8))
    with refused("iota", "channel_multiplier is a 32-bit integer"):
        after(write([[1, 8]], channel_multiplier=value), zeros(4, 8))


def test_iota_writes_to_sbuf():
    with refused("iota", "dst may live in sbuf"):
        after(write([[1, 8]]), Psum(zeros(4, 8)))


COMPARISONS = {
    nl.equal: np.equal,
    nl.not_equal: np.not_equal,
    nl.less: np.less,
    nl.less_equal: np.less_equal,
    nl.greater: np.greater,
    nl.greater_equal: np.greater_equal,
}


@pytest.mark.parametrize("cmp_op", COMPARISONS)
def test_affine_select(cmp_op):
    data = np.random.default_rng(0).normal(size=(16, 4, 6)).astype(np.float32)

    def issue(dst, x):
        nisa.affine_select(dst, [[3, 4], [-1, 6]], -2, x, -1.5, cmp_op, 5)

    ran = run_tiles(issue, zeros(16, 24), data)
    chosen = COMPARISONS[cmp_op](affine(16, [[3, 4], [-1, 6]], 5, -2), 0)
    np.testing.assert_array_equal(ran.outputs[0], np.where(chosen, data.reshape(16, 24), -1.5))
    assert issued(ran, "affine_select").engine is engine.gpsimd


def test_a_causal_mask_in_place():
    data = np.ones((8, 8), np.float32)

    def issue(x):
        options = {"cmp_op": nl.greater_equal, "on_false_value": -3.0e38}
        nisa.affine_select(x, [[-1, 8]], 1, x, **options)

    result = after(issue, data)[0]
    np.testing.assert_array_equal(result, np.where(np.tri(8, dtype=bool), 1, np.float32(-3.0e38)))


def test_the_default_comparison_makes_an_identity_of_a_broadcast_column():
    def issue(dst, ones):
        nisa.affine_select(dst, [[1, 6]], -1, ones.broadcast(1, 6), 0.0)

    result = after(issue, zeros(6, 6, dtype=BFLOAT16), np.ones((6, 1), BFLOAT16))[0]
    np.testing.assert_array_equal(result, np.eye(6, dtype=BFLOAT16))


def test_equal_types_keep_their_bits_and_others_go_through_float32():
    data = np.array([[16777217, 5]], np.int32)

    def issue(same, other, x):
        nisa.affine_select(same, [[1, 2]], 0, x, -2.5)
        nisa.affine_select(other, [[1, 2]], 0, x, -2.5)

    same, other, _ = after(issue, zeros(1, 2, dtype=np.int32), zeros(1, 2), data)
    np.testing.assert_array_equal(same, [[16777217, -2]])
    np.testing.assert_array_equal(other, [[16777216, -2.5]])


def choose(**options):
    def issue(dst, x):
        arguments = {"pattern": [[1, 8]], "channel_multiplier": 0, "on_false_value": 0.0}
        nisa.affine_select(dst, on_true_tile=x, **{**arguments, **options})

    return issue


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"cmp_op": nl.add}, r"one of nl\.equal, nl\.not_equal"),
        ({"cmp_op": np.equal}, "an operator of nki.language"),
        ({"on_false_value": None}, "a float32 constant"),
        ({"pattern": [[1, 4]]}, "dst has 8 elements per partition"),
        ({"pattern": [[1, 2]] * 5}, "1 to 4 dimensions"),
        ({"offset": 2**31}, "offset is a 32-bit integer"),
        ({"offset": VirtualRegister(0)}, "offset is a 32-bit integer"),
        ({"channel_multiplier": 1.0}, "channel_multiplier is a 32-bit integer"),
    ],
    ids=str,
)
def test_affine_select_refuses(options, limit):
    with refused("affine_select", limit):
        after(choose(**options), zeros(4, 8), zeros(4, 8))


def test_affine_select_refuses_sizes_and_places():
    with refused("affine_select", "same number of partitions"):
        after(choose(), zeros(4, 8), zeros(2, 8))
    with refused("affine_select", "same number of elements per partition"):
        after(choose(), zeros(4, 8), zeros(4, 4))
    for tiles in ((Psum(zeros(4, 8)), zeros(4, 8)), (zeros(4, 8), Psum(zeros(4, 8)))):
        with refused("affine_select", "may live in sbuf"):
            after(choose(), *tiles)


def test_on_false_is_a_constant_not_a_tile():
    def issue(dst, x, column):
        nisa.affine_select(dst, [[1, 8]], 0, x, column)

    with refused("affine_select", "a float32 constant"):
        after(issue, zeros(4, 8), zeros(4, 8), zeros(4, 1))


def test_shape_only_runs_issue_the_same():
    def issue(dst, x):
        nisa.iota(dst, [[1, 8]])
        nisa.affine_select(dst, [[1, 8]], 1, x, 0.0)
        nisa.tensor_copy(x, dst)

    assert_shape_only_agrees(issue, zeros(4, 8), zeros(4, 8))
    with refused("iota", "dst has 8 elements per partition"):
        run_tiles(write([[1, 4]]), zeros(4, 8), values=False)

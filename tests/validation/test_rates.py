"""The streams of one instruction repeat it as often as asked, and compute what they claim."""

import ml_dtypes
import numpy as np
import pytest

import nkisim
from validation.kernels import tensor_rates, vector_rates
from validation.rows import ROWS

BFLOAT16 = ml_dtypes.bfloat16
EPSILON = 2.0**-23  # of float32
RATES = [row for row in ROWS if row.number[0] == "V" and row.repeats == 256]


def signs(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).integers(-1, 2, shape).astype(dtype)


def outputs(kernel, *arrays, **options):
    return nkisim.run(kernel, *arrays, machine="trn1", **options).outputs


@pytest.mark.parametrize("tiles", [1, 3])
@pytest.mark.parametrize(
    ("dtype", "moving"),
    [(BFLOAT16, BFLOAT16), (np.float32, np.float32), (BFLOAT16, ml_dtypes.float8_e4m3)],
)
def test_matmuls_add_up_in_the_ring(dtype, moving, tiles):
    weights, data = signs(tiles, 64, 8, dtype=dtype), signs(64, 32, dtype=moving, seed=1)
    total = outputs(tensor_rates.matmuls, weights, data, repeats=7)
    used = sum(weights[iteration % tiles].astype(np.float32) for iteration in range(7))
    expected = used.T @ data.astype(np.float32).sum(axis=1, keepdims=True)  # small integers
    np.testing.assert_array_equal(total, expected)


def test_transposes_leave_the_last_four():
    data = signs(3, 128, 128)
    total = outputs(tensor_rates.transposes, data, repeats=9)
    expected = sum(data[iteration % 3].sum(axis=0) for iteration in range(5, 9))
    np.testing.assert_array_equal(total[:, 0], expected)


def column_sums(x, step, iteration):
    """What one repeat of a step leaves to be added up, of small integers."""
    first, second = x[:, :512], x[:, 512:1024]
    piece = x[:, iteration % 8 * 128 : (iteration % 8 + 1) * 128]
    return {
        "evict vector": first,
        "evict scalar": first,
        "multiply sbuf": first * second,
        "multiply psum": first * second,
        "scale": x / 2,
        "maximum": x.max(axis=1, keepdims=True),
        "row sum": piece,
        "exp psum": np.exp(first.astype(float) + 0.5),
        "exp sbuf": np.exp(x.astype(float) + 0.5),
        "copy scalar": x[:, :128],
        "cast vector": piece,
    }[step].sum(axis=1)


@pytest.mark.parametrize(
    "row", [row for row in RATES if row.kernel is vector_rates.elementwise], ids=lambda r: r.number
)
def test_steps_leave_the_last_four(row):
    x = signs(128, 2048)
    total = outputs(row.kernel, x, repeats=10, **row.options)[:, 0]
    expected = sum(column_sums(x, row.options["step"], iteration) for iteration in range(6, 10))
    # Sums of integers and of their halves are exact; exponentials are rounded once each, as is
    # their running sum, relative to a total that all terms share the sign of.
    terms = 2048 if row.options["step"].startswith("exp") else 0
    np.testing.assert_allclose(total, expected, rtol=2 * terms * EPSILON)


OPS = {
    "V12": ("nc_transpose", "tensor"),
    "V14": ("tensor_copy", "vector"),
    "V15": ("activation", "scalar"),
    "V16": ("tensor_tensor", "vector"),
    "V17": ("tensor_tensor", "vector"),
    "V18": ("tensor_scalar", "vector"),
    "V19": ("tensor_reduce", "vector"),
    "V20": ("tensor_reduce", "vector"),
    "V21": ("activation_reduce", "scalar"),
    "V22": ("activation_reduce", "scalar"),
    "V23": ("activation", "scalar"),
    "V24": ("tensor_copy", "vector"),
}


@pytest.mark.parametrize("row", RATES, ids=lambda row: row.number)
def test_a_repeat_is_one_instruction_and_no_dma(row):
    op, engine = OPS.get(row.number, ("nc_matmul", "tensor"))
    few, many = (
        nkisim.run(
            row.kernel, *row.arguments, machine="trn1", values=False, repeats=n, **row.options
        ).trace
        for n in (8, 20)
    )
    more = list(many.instructions())
    for instruction in few.instructions():
        alike = (i for i in more if (i.op, i.engine) == (instruction.op, instruction.engine))
        more.remove(next(alike))
    assert {(i.op, i.engine.name) for i in more} == {(op, engine)}
    assert len(more) == 12


def test_all_rates_are_there():
    assert [row.number for row in RATES] == [f"V{number}" for number in range(1, 25)]

"""Re-created kernels that run on both cores of a pair: their values, and what the sources count."""

from collections import Counter

import numpy as np
import pytest

import nkisim
from nkisim import Kernel
from nkisim.trace import Loop
from repetition import few
from validation.kernels import conv3d_looped, flat_copy, gemm_two_cores, transpose_blocks
from validation.rows import ROWS

ROW = {row.number: row for row in ROWS}


def integers(*shape, dtype=np.float32, most=1, seed=0):
    return np.random.default_rng(seed).integers(-most, most + 1, shape).astype(dtype)


def on_both(kernel, *arrays, **options):
    return nkisim.run(Kernel(kernel)[2], *arrays, machine="trn2", **options)


def executed(items):
    """Instructions by name, loop bodies as often as they run."""
    total = Counter()
    for item in items:
        if isinstance(item, Loop):
            body = executed(item.body)
            total.update({name: item.trips * count for name, count in body.items()})
        else:
            total[item.op] += 1
    return total


def counts(number):
    """Per core, what a row's kernel executes at its published size."""
    row = ROW[number]
    run = on_both(row.kernel, *row.arguments, values=False, **row.options)
    return [executed(trace.items) for trace in run.traces]


def convolved(x, w, shape):
    image = x.reshape(x.shape[1], *shape).astype(np.float32)
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3, 3), (1, 2, 3))
    filters = w.reshape(*w.shape[:2], 3, 3, 3).astype(np.float32)
    return np.einsum("cdhwijk,ocijk->odhw", windows, filters, optimize=True)


CONV3D_SHAPES = {
    (2, 21, 7): [2, 3],  # two blocks of eight rows and three single rows: two loops
    (3, 16, 6): [6],  # one block, unrolled; six single rows
    (1, 11, 5): [],  # one block and one row: no loop
    (2, 18, 5): [2],  # two blocks and nothing else
    (1, 6, 5): [4],  # no block
}


@few(1)
@pytest.mark.parametrize("shape", CONV3D_SHAPES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_looped_conv3d_convolves(shape, dtype):
    x = integers(1, 6, np.prod(shape), dtype=dtype)
    w = integers(5, 6, 27, dtype=dtype, seed=1)
    result = on_both(conv3d_looped.conv3d, x, w, shape=shape).outputs
    expected = convolved(x, w, shape).reshape(1, 5, -1)  # at most 162: exact in fp16
    np.testing.assert_array_equal(result.astype(np.float32), expected)


@few(1)
@pytest.mark.parametrize(("shape", "trips"), CONV3D_SHAPES.items())
def test_looped_conv3d_has_the_loops_and_instructions_of_its_source(shape, trips):
    depths, height, _ = shape
    x, w = integers(1, 6, np.prod(shape)), integers(5, 6, 27)
    first, second = on_both(conv3d_looped.conv3d, x, w, shape=shape).traces
    assert [item.trips for item in first.items if isinstance(item, Loop)] == trips * depths
    total = executed(first.items)
    blocks, rest = divmod(height - 2, 8)
    pieces = 2 + blocks + rest  # of a depth: each is loaded from the depths there are, and stored
    assert total["nc_matmul"] == 27 * depths * height
    assert total["nc_transpose"] == 27
    assert total["dma_copy"] == 1 + pieces * (3 * depths - 2) + pieces * depths
    assert total["tensor_copy"] == 1 + 27 + depths * height
    assert total["tensor_scalar"] == 2 * sum(trips) * depths
    assert executed(second.items) == total  # both programs do all the work


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32])
@pytest.mark.parametrize("shape", [(256, 256), (300, 1000), (3, 77)])
def test_flat_copy_copies(shape, dtype):
    x = integers(*shape, dtype=dtype, most=100)
    np.testing.assert_array_equal(on_both(flat_copy.copy, x).outputs, x)


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32])
def test_relu_clamps(dtype):
    x = integers(270_001, dtype=dtype, most=100)
    np.testing.assert_array_equal(on_both(flat_copy.relu, x).outputs, np.maximum(x, 0))


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("V30", {"dma_copy": 2}),
        ("V37", {"dma_copy": 200}),
        ("V41", {"dma_copy": 160, "tensor_scalar": 80}),
        ("V47", {"dma_transpose": 64, "dma_copy": 64}),
        ("V43", {"nc_matmul": 1024, "nc_transpose": 128, "dma_copy": 16 + 256 + 64}),
    ],
)
def test_each_core_does_its_half(number, expected):
    for total in counts(number):
        assert {name: total[name] for name in expected} == expected


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_dma_transposes_blocks(dtype):
    a = integers(256, 512, dtype=dtype, most=100)
    np.testing.assert_array_equal(on_both(transpose_blocks.by_dma, a).outputs, a.T)


def test_the_tensor_engine_transposes_int8():
    a = integers(2048 + 2048, 256, dtype=np.int8, most=127)
    run = on_both(transpose_blocks.by_tensor_engine, a)
    np.testing.assert_array_equal(run.outputs, a.T)
    assert executed(run.traces[0].items) == {
        "dma_copy": 32 + 2,  # loads of 128 x 128, stores of 128 x 2,048
        "tensor_copy": 64,
        "nc_transpose": 32,
    }


@pytest.mark.parametrize(("dtype", "rows"), [(np.float16, 2), (np.float32, 1)])
def test_the_gemm_of_two_cores_multiplies(dtype, rows):
    lhs = integers(512, 2048, dtype=dtype)
    rhs = integers(2048, 1024, dtype=dtype, seed=1)
    run = on_both(gemm_two_cores.matmul, lhs, rhs, rows=rows)
    expected = lhs.astype(np.float32) @ rhs.astype(np.float32)  # below 2,048: exact in fp16
    np.testing.assert_array_equal(run.outputs.astype(np.float32), expected)
    total = executed(run.traces[0].items)
    assert total["tensor_tensor"] == 4  # sums of the second block of K: 2 x 2 output tiles
    narrowing = 2 if dtype is np.float16 else 0
    assert total["tensor_copy"] == 32 + 4 + narrowing

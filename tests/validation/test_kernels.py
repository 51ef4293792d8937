"""The re-created kernels compute what they claim, at small sizes.

Matrices hold -1, 0 and 1: every partial sum is then a small integer, exact in the narrowest type on
its way, and results are compared without tolerance.
"""

from collections import Counter

import ml_dtypes
import numpy as np
import pytest

import nkisim
from nkisim.timing.costs.dma import descriptor_count
from validation.kernels import (
    conv2d,
    depthwise_conv1d,
    elementwise,
    gemm_bf16,
    gemm_fp32,
    gemm_groups,
    gemm_ladder,
    mamba,
    mamba_sequence,
    mamba_spill,
    transpose,
    vector_add,
)

BFLOAT16 = ml_dtypes.bfloat16
EPSILON = 2.0**-23  # of float32


def signs(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).integers(-1, 2, shape).astype(dtype)


def uniform(*shape, low=0.1, high=1.0, seed=0):
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def outputs(kernel, *arrays, machine="trn2", **options):
    return nkisim.run(kernel, *arrays, machine=machine, **options).outputs


def exact(product, largest=256):
    """`product`, after a check that integers of its size are exact in the types on their way."""
    assert np.abs(product).max() <= largest
    return product


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (gemm_ladder.tiled, {}),
        (gemm_ladder.hoisted, {}),
        (gemm_ladder.blocked, {}),
        (gemm_ladder.blocked, {"keep_rhs": False}),
        (gemm_ladder.blocked_all, {"blocks": (2, 1, 1)}),
        (gemm_ladder.blocked_all, {"blocks": (1, 2, 2)}),
    ],
)
@pytest.mark.parametrize(("dtype", "machine"), [(BFLOAT16, "trn1"), (np.float32, "trn2")])
def test_the_gemm_ladder_multiplies(kernel, options, dtype, machine):
    lhs, rhs = signs(256, 256, dtype=dtype), signs(256, 2048, dtype=dtype, seed=1)
    result = outputs(kernel, np.ascontiguousarray(lhs.T), rhs, machine=machine, **options)
    expected = exact(lhs.astype(np.float32) @ rhs.astype(np.float32))
    np.testing.assert_array_equal(result.astype(np.float32), expected)


@pytest.mark.parametrize(
    ("kernel", "k", "n"),
    [
        (gemm_bf16.two_level, 2048, 512),  # two blocks of K
        (gemm_bf16.one_accumulator, 256, 1024),
        (gemm_bf16.two_accumulators, 256, 1024),
        (gemm_bf16.skewed_accumulators, 256, 1024),
        (gemm_bf16.loads_in_inner_loop, 256, 1024),
        (gemm_bf16.streaming, 256, 1536),
    ],
)
def test_the_bf16_gemms_multiply(kernel, k, n):
    lhs, rhs = signs(512, k, dtype=BFLOAT16), signs(k, n, dtype=BFLOAT16, seed=1)
    result = outputs(kernel, np.ascontiguousarray(lhs.T), rhs)
    expected = exact(lhs.astype(np.float32) @ rhs.astype(np.float32))
    np.testing.assert_array_equal(result.astype(np.float32), expected)


def test_the_gemm_with_transposing_loads_multiplies():
    lhs, rhs = signs(1024, 2048, dtype=BFLOAT16), signs(2048, 512, dtype=BFLOAT16, seed=1)
    expected = exact(lhs.astype(np.float32) @ rhs.astype(np.float32))
    result = outputs(gemm_bf16.transposing_loads, lhs, rhs)
    np.testing.assert_array_equal(result.astype(np.float32), expected)


def test_the_fp32_gemms_multiply():
    lhs, rhs = signs(256, 1024), signs(1024, 1024, seed=1)
    result = outputs(gemm_fp32.matmul, lhs, rhs, machine="trn1")
    np.testing.assert_array_equal(result, lhs @ rhs)
    lhs, rhs = signs(1024, 128), signs(128, 1024 + 192, seed=1)
    turned = np.ascontiguousarray(lhs.T)
    result = outputs(gemm_fp32.transposed_matmul, turned, rhs, machine="trn1")
    np.testing.assert_array_equal(result, lhs @ rhs)
    lhs, rhs = signs(2, 256, 64), signs(2, 64, 2048, seed=1)
    result = outputs(gemm_fp32.batched_matmul, lhs, rhs, machine="trn1")
    np.testing.assert_array_equal(result, lhs @ rhs)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("pool", [1, 2])
def test_conv2d_convolves_takes_maxima_and_adds_the_bias(dtype, pool):
    x, w = signs(1, 256, 6, 10, dtype=dtype), signs(256, 256, 3, 3, dtype=dtype, seed=1)
    bias = signs(256, dtype=dtype, seed=2)
    windows = np.lib.stride_tricks.sliding_window_view(x[0].astype(np.float32), (3, 3), (1, 2))
    sums = np.einsum("chwij,ocij->ohw", windows, w.astype(np.float32), optimize=True)
    squares = exact(sums).reshape(256, 4 // pool, pool, 8 // pool, pool)
    expected = squares.max((2, 4)) + bias.astype(np.float32)[:, None, None]
    result = outputs(conv2d.conv2d, x, w, bias, pool=pool)
    np.testing.assert_array_equal(result[0].astype(np.float32), expected)


@pytest.mark.parametrize(("pool", "stored_rows"), [(1, 8), (2, 4)])
def test_conv2d_loads_a_row_for_every_filter_row_and_weights_by_filter(pool, stored_rows):
    x, w = signs(1, 256, 6, 10, dtype=np.float16), signs(256, 256, 3, 3, dtype=np.float16)
    run = nkisim.run(conv2d.conv2d, x, w, signs(256, dtype=np.float16), machine="trn2", pool=pool)
    instructions = list(run.trace.instructions())
    total = Counter(instruction.op for instruction in instructions)
    assert total["nc_matmul"] == 8 * 18  # two tiles of four output rows; 9 taps, two input tiles
    assert total["nc_transpose"] == 36
    dmas = [instruction for instruction in instructions if instruction.op == "dma_copy"]
    assert len(dmas) == 4 + 8 * 6 + 2 * stored_rows  # weights, input rows, biases and results
    weights = dmas[0]
    layouts = (weights.writes[0].layout, weights.reads[0].layout)
    assert descriptor_count(*layouts) == 128 * 128


@pytest.mark.parametrize(
    ("group", "load", "loads_of_a_slab"),
    [
        ((1, 2), (1, 1), 3),
        ((2, 2), (1, 1), 4),
        ((4, 2), (1, 1), 6),
        ((4, 2), (2, 1), 4),
        ((4, 2), (4, 2), 2),
    ],
)
def test_groups_of_output_tiles_multiply_and_share_loads(group, load, loads_of_a_slab):
    lhs, rhs = signs(512, 256, dtype=BFLOAT16), signs(256, 2048, dtype=BFLOAT16, seed=1)
    turned = np.ascontiguousarray(lhs.T)
    run = nkisim.run(gemm_groups.grouped, turned, rhs, machine="trn1", group=group, load=load)
    expected = exact(lhs.astype(np.float32) @ rhs.astype(np.float32))
    np.testing.assert_array_equal(run.outputs.astype(np.float32), expected)
    total = Counter(instruction.op for instruction in run.trace.instructions())
    groups = 4 // group[0] * (4 // group[1])
    assert total["nc_matmul"] == 4 * 4 * 2
    assert total["dma_copy"] == 2 * groups * loads_of_a_slab + 4 * 4


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (vector_add.by_rows, {"rows": 1}),
        (vector_add.by_rows, {"rows": 128}),
        (vector_add.by_columns, {"columns": 2}),
        (vector_add.by_columns, {"columns": 4, "static_rings": True}),
    ],
)
def test_vector_add_adds(kernel, options):
    a, b = uniform(1024), uniform(1024, seed=1)
    result = outputs(kernel, a, b, **options)
    np.testing.assert_array_equal(result.reshape(-1), a + b)


def test_transpose_transposes():
    a = uniform(256, 384)
    np.testing.assert_array_equal(outputs(transpose.transpose, a), a.T)


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (depthwise_conv1d.prefetched, {}),
        (depthwise_conv1d.fused, {}),
        (depthwise_conv1d.summed_in_psum, {}),
        (depthwise_conv1d.filter_in_psum, {"wide": False}),
        (depthwise_conv1d.filter_in_psum, {"wide": True}),
    ],
)
def test_depthwise_conv1d_convolves_with_zero_padding(kernel, options):
    img, filters = signs(2, 256, 128), signs(256, 3, seed=1)
    padded = np.pad(img, ((0, 0), (0, 0), (1, 1)))
    expected = sum(padded[:, :, k : k + 128] * filters[None, :, k : k + 1] for k in range(3))
    result = outputs(kernel, img, filters, machine="trn1", **options)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("kernel", "steps"),
    [
        (mamba.states_outside, 48),
        (mamba.channels_outside, 48),
        (mamba_sequence.whole_rows, 2560),  # a row in three loads, five banks
        (mamba_spill.two_tiles, 1024),
        (mamba_sequence.tiled_rows, 1024),
    ],
)
def test_mamba_scans(kernel, steps):
    channels, states = 256, 3
    delta, u = uniform(channels, steps), uniform(channels, steps, seed=1)
    a = -uniform(channels, states, seed=2)
    b, c = uniform(states, steps, seed=3), uniform(states, steps, seed=4)
    expected = np.zeros((channels, steps))
    for s in range(states):
        state = np.zeros(channels)
        for t in range(steps):
            decay = np.exp(delta[:, t].astype(float) * a[:, s])
            state = decay * state + delta[:, t].astype(float) * u[:, t] * b[s, t]
            expected[:, t] += c[s, t] * state
    result = outputs(kernel, delta, u, a, b, c, machine="trn1")
    # All terms are positive. A step rounds the exponent (|x| < 1), the exponential, a product and a
    # sum: at most 3 epsilon relative; the rest of the chain rounds fewer than 8 times.
    np.testing.assert_allclose(result, expected, rtol=(3 * steps + 8) * EPSILON)


def test_silu_matches_its_formula():
    x = uniform(128, 2, 1024, low=-4, high=4)
    expected = x.astype(float) / (1 + np.exp(-x.astype(float)))
    # Exponential, sum, reciprocal and product: each within an epsilon.
    result = outputs(elementwise.silu, x, machine="trn1")
    np.testing.assert_allclose(result, expected, rtol=4 * EPSILON)


def test_adamw_takes_a_step():
    theta, grad = uniform(192, 1024), uniform(192, 1024, low=-1, seed=1)
    m, v = uniform(192, 1024, low=-1, seed=2), uniform(192, 1024, seed=3)
    mean = 0.9 * m.astype(float) + 0.1 * grad.astype(float)
    root = np.sqrt(1000 * (0.999 * v.astype(float) + 0.001 * grad.astype(float) ** 2))
    expected = theta - 1e-5 * theta.astype(float) - 0.01 * mean / (root + 1e-8)
    # |theta| <= 1: two subtractions and a product with a tiny factor round within an epsilon each;
    # the step itself is smaller than 1e-2, so its roundings are too.
    result = outputs(elementwise.adamw, theta, grad, m, v, machine="trn1")
    np.testing.assert_allclose(result, expected, rtol=0, atol=3 * EPSILON)

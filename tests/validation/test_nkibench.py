"""The kernels after NKIBench: right values at small sizes, published counts at the published size.

Matrices of -1, 0 and 1 give integers and are compared exactly; where a kernel divides or takes an
exponential, roundings are counted.
"""

from math import prod

import numpy as np
import pytest

import nkisim
from repetition import few
from validation.kernels import attention, lora, norm_matmul, rope, softmax_matmul, swiglu
from validation.rows import ROWS

EPSILON = 2.0**-23  # of float32


def signs(*shape, seed=0):
    return np.random.default_rng(seed).integers(-1, 2, shape).astype(np.float32)


def noise(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def outputs(kernel, *arrays, **options):
    return nkisim.run(kernel, *arrays, machine="trn1", **options).outputs


def close(result, expected, roundings):
    """Within so many roundings of the largest value, sums of K terms counted as K roundings."""
    limit = roundings * EPSILON * np.abs(expected).max()
    np.testing.assert_allclose(result, expected, rtol=0, atol=limit)


def normed(rows, epsilon):
    rows = rows.astype(float)
    return rows / np.sqrt((rows**2).mean(axis=1, keepdims=True) + epsilon)


def softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def test_norms_beside_matmuls():
    x, w, z, gain = (
        noise(256, 1024),
        signs(1024, 1024, seed=1),
        noise(256, 1024, seed=2),
        noise(1024),
    )
    before = outputs(norm_matmul.add_rmsnorm_matmul, x, w, z, gain, epsilon=1e-5)
    close(before, (normed(x + z, 1e-5) * gain) @ w, roundings=1024)
    after = outputs(norm_matmul.matmul_add_rmsnorm, x, w, z, gain, epsilon=1e-5)
    close(after, normed(x.astype(float) @ w + z, 1e-5) * gain, roundings=1024)
    x, w = noise(1024, 512), w[:512]
    close(outputs(norm_matmul.rmsnorm_matmul, x, w), normed(x, 0) @ w, roundings=512)


def test_streamed_weights_are_loaded_every_time():
    x, w, z = signs(384, 1024), signs(1024, 512, seed=1), signs(384, 512, seed=2)
    run = nkisim.run(
        norm_matmul.matmul_add_rmsnorm, x, w, z, signs(512), machine="trn1", epsilon=1.0
    )
    again = 2 * 2 * 128 * 512  # two tiles of w for the second and the third 128 rows
    identity = 128 * 128
    elements = x.size + z.size + w.size + 512 + again + identity
    assert hbm_bytes(run)[0] == 4 * elements


def test_swiglu_gates():
    x, up, gate = noise(512, 256) / 16, signs(256, 2048, seed=1), signs(256, 2048, seed=2)
    down = signs(2048, 512, seed=3)
    gated = x.astype(float) @ gate
    expected = (gated / (1 + np.exp(-gated)) * (x.astype(float) @ up)) @ down
    close(outputs(swiglu.swiglu, x, up, gate, down), expected, roundings=2048)


def test_lora_adds_the_update():
    x, w = signs(1024, 1024), signs(1024, 2048, seed=1)
    a, b = signs(1024, 128, seed=2), signs(128, 2048, seed=3)
    np.testing.assert_array_equal(outputs(lora.lora, x, w, a, b), x @ w + (x @ a) @ b)


def test_attention_mixes_values():
    q, k, v = noise(1024, 4, 128), noise(1024, 2, 128, seed=1), noise(1024, 2, 128, seed=2)
    scores = np.einsum("shd,thd->hst", q.astype(float), np.repeat(k, 2, axis=1)) / np.sqrt(128)
    expected = np.einsum("hst,thd->hsd", softmax(scores), np.repeat(v, 2, axis=1))
    # A score is a sum of 128 terms, the result one of 1,024.
    close(outputs(attention.attention, q, k, v), expected, roundings=128 + 1024)


def test_products_are_normalised():
    lhs, rhs = noise(2, 1024, 64), noise(2, 64, 2048, seed=1)
    expected = softmax(lhs.astype(float) @ rhs)
    # The exponent errs by 64 roundings of a score of at most 64, relative to its exponential.
    result = outputs(softmax_matmul.softmax_matmul, lhs, rhs)
    np.testing.assert_allclose(result, expected, rtol=64 * 64 * EPSILON)


def test_rope_rotates():
    x, cos, sin = noise(128, 1024), noise(64, 1024, seed=1), noise(64, 1024, seed=2)
    even, odd = x[:64], x[64:]
    expected = np.concatenate([even * cos - odd * sin, odd * cos + even * sin])
    np.testing.assert_array_equal(outputs(rope.rope, x, cos, sin), expected)


def hbm_bytes(run):
    """Bytes that DMAs read from and write to HBM."""
    moved = [0, 0]
    for instruction in run.trace.instructions():
        if instruction.op == "dma_copy":
            for side, access in enumerate((instruction.reads[0], instruction.writes[0])):
                if "hbm" in access.allocation.region.value:
                    moved[side] += prod(access.layout.shape) * access.layout.itemsize_bytes
    return moved


def operations(run, passes):
    """Operations of the Tensor engine, fp32 in so many passes."""
    total = 0
    for instruction in run.trace.instructions():
        if instruction.op == "nc_matmul":
            stationary, moving = (access.layout.shape for access in instruction.reads[:2])
            total += 2 * passes * prod(stationary) * prod(moving[1:])
    return total


# From the profiles (profile_results.csv): hardware_flops, hbm_read_bytes, hbm_write_bytes. fp32
# operations are counted twice, those of a row of ones once. The compiler keeps a few tiles more
# than the streams do. Row 41b reads its operands as often as its source says, which is more often.
COUNTERS = {
    "41a": (85_899_870_208, 98_115_584, 33_554_432),
    "41b": (36_507_222_016, None, 33_554_432),
    "41c": (42_949_935_104, 42_012_672, 33_554_432),
    "42a": (156_766_306_304, 141_623_296, 83_886_080),
    "42b": (1_114_581_762_048, 2_341_797_888, 1_269_563_392),
    "42c": (418_759_311_360, 1_194_393_600, 1_132_986_368),
    "45b": (0, 268_435_456, 134_217_728),
    "45c": (70_866_960_384, 794_361_856, 1_827_405_824),
    "45d": (117_440_512, 181_682_176, 62_390_272),
}
EXACT = ("41c", "45b", "45d")


@few(3)
@pytest.mark.parametrize("number", COUNTERS)
def test_a_stream_has_the_published_counts(number):
    row = next(row for row in ROWS if row.number == number)
    run = nkisim.run(row.kernel, *row.arguments, machine="trn1", values=False, **row.options)
    flops, read, written = COUNTERS[number]
    assert operations(run, 1 if number == "45d" else 2) == pytest.approx(flops, rel=1e-4)
    moved = hbm_bytes(run)
    if number in EXACT:
        assert moved == [read, written]
    assert read is None or moved[0] == pytest.approx(read, rel=0.06)
    assert moved[1] == pytest.approx(written, rel=0.03)

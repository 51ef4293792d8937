"""The small probes of trn1 compute what they claim, and ask for what their sources ask for."""

from collections import Counter

import ml_dtypes
import numpy as np
import pytest

import nkisim
from nkisim import Spec
from validation.kernels import dequantise, gemv_chain, small_probes

BFLOAT16 = ml_dtypes.bfloat16


def signs(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).integers(-1, 2, shape).astype(dtype)


def outputs(kernel, *arrays, **options):
    return nkisim.run(kernel, *arrays, machine="trn1", **options).outputs


def counts(kernel, *specs, **options):
    trace = nkisim.run(kernel, *specs, machine="trn1", values=False, **options).trace
    return Counter((i.op, i.engine.name) for i in trace.instructions())


@pytest.mark.parametrize("rows", [1, 5])
def test_chained_products_multiply(rows):
    x, reverse = signs(rows, 1024, dtype=BFLOAT16), np.eye(1024)[::-1]
    weights = np.stack([reverse, signs(1024, 1024, seed=1)]).astype(BFLOAT16)
    result = outputs(gemv_chain.gemv_chain, x, weights, np.eye(128).astype(BFLOAT16))
    expected = x[:, ::-1].astype(np.float32) @ weights[1].astype(np.float32)
    assert np.abs(expected).max() <= 256  # exact in bf16
    np.testing.assert_array_equal(result.astype(np.float32), expected)


def test_chained_products_load_each_weight_once():
    specs = Spec((1, 2048), "bfloat16"), Spec((3, 2048, 2048), "bfloat16")
    found = counts(gemv_chain.gemv_chain, *specs, Spec((128, 128), "bfloat16"))
    assert found["dma_copy", "dma"] == 3 * 16 + 3  # the row, the identity, the result
    assert found["nc_matmul", "tensor"] == 3 * (16 * 4 + 16)
    assert found["activation", "scalar"] == 3 * 2
    assert found["tensor_copy", "vector"] == 3 * (2 + 16)


@pytest.mark.parametrize("skipped", [0, 2, 8])
def test_expert_loads_fill_the_slots(skipped):
    experts = np.random.default_rng(0).integers(0, 256, (6, 128, 96)).astype(np.uint8)
    numbers = np.array([[3, 1, 5, 0, 2, 4, 1, 1]], np.int32)
    slots = np.zeros((4, 128, 64))
    for iteration, number in enumerate(numbers[0]):
        whole = skipped == 0 or (iteration + 1) % (8 // skipped)
        rows, columns = (128, 64) if whole else (1, 1)
        slots[iteration % 4, :rows, :columns] = experts[number, :rows, :columns]
    result = outputs(small_probes.expert_loads, experts, numbers, skipped=skipped)
    np.testing.assert_array_equal(result, slots.sum(axis=2).T)


@pytest.mark.parametrize(("skipped", "whole"), [(0, 256), (64, 192), (128, 128), (256, 0)])
def test_skipped_loads_move_a_byte(skipped, whole):
    experts, numbers = Spec((8, 128, 512), "uint8"), Spec((1, 256), "int32")
    trace = nkisim.run(
        small_probes.expert_loads, experts, numbers, machine="trn1", values=False, skipped=skipped
    ).trace
    copies = [i for i in trace.instructions() if i.op == "dma_copy"]
    sizes = Counter(np.prod(copy.writes[0].layout.shape) for copy in copies)
    assert (sizes[128 * 512], sizes[1]) == (whole, skipped)


@pytest.mark.parametrize("looped", [True, False])
def test_a_loop_repeats_its_body(looped):
    x, expected = signs(128, 64), signs(128, 64)
    for _ in range(5):
        expected = expected / 2 + 1
    result = outputs(small_probes.halve_and_add, x, iterations=5, looped=looped)
    np.testing.assert_array_equal(result, expected)
    found = counts(
        small_probes.halve_and_add, Spec((128, 64), "float32"), iterations=64, looped=looped
    )
    assert found["tensor_scalar", "vector"] == (1 if looped else 64)


def test_the_largest_come_in_order():
    x = np.random.default_rng(0).integers(-50, 50, (128, 64)).astype(np.float32)
    values, places = outputs(small_probes.largest, x, rounds=3)
    np.testing.assert_array_equal(values, -np.sort(-x, axis=1)[:, :24])
    np.testing.assert_array_equal(np.take_along_axis(x, places.astype(int), axis=1), values)
    assert all(len(set(row)) == 24 for row in places)


def test_a_round_of_the_search_is_three_instructions():
    found = counts(small_probes.largest, Spec((128, 512), "float32"), rounds=64)
    searches = ("max8", "nc_find_index8", "nc_match_replace8")
    assert [found[op, "vector"] for op in searches] == [64] * 3
    assert sum(found.values()) == 3 * 64 + 3  # and a load, two stores


@pytest.mark.parametrize("way", dequantise.WAYS)
def test_dequantised_weights_are_weights_times_scales(way):
    weights = signs(2, 128, 32, 128, dtype=ml_dtypes.float8_e4m3)
    scales = 2.0 ** signs(128, 2, 32, seed=1)  # products are exact
    total = outputs(dequantise.dequantise, weights, scales, repeats=3, way=way)[:, 0]
    factors = np.repeat(scales.transpose(0, 2, 1), 64, axis=2)  # by row, tile and column
    used = [weights[iteration % 2].astype(np.float32) for iteration in range(3)]
    if way == "psum":  # one scale a tile
        used, factors = [np.float32(0.25)] * 3, scales[:, 0, :, None] * np.ones(128, np.float32)
    expected = sum((block * factors).sum(axis=(0, 1)) / 2 for block in used)
    np.testing.assert_array_equal(total, expected)


@pytest.mark.parametrize(
    ("way", "vector", "scalar"),
    [("vector", 64, 0), ("scalar", 0, 64), ("both", 32, 32), ("spread", 8, 0), ("psum", 8, 0)],
)
def test_a_block_takes_so_many_instructions(way, vector, scalar):
    weights, scales = Spec((2, 128, 32, 128), "float8_e4m3"), Spec((128, 2, 32), "float32")
    few, many = (counts(dequantise.dequantise, weights, scales, repeats=n, way=way) for n in (2, 3))
    each = Counter()
    for (_, engine), number in (many - few).items():
        each[engine] += number
    assert each == +Counter(tensor=32, vector=vector + 1, scalar=scalar)

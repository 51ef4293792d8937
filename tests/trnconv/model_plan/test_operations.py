"""Prices of what is no convolution: bytes against HBM, products against the Tensor engine."""

from dataclasses import replace

import pytest

from nkisim.machine import TRN2
from trnconv.model_plan import by_kind, operation_plans
from trnconv.model_plan.operations import BOUND, KERNEL, as_written_ns
from trnconv.traces import Operation

MB = 10**6
CORE, PAIR = 16 * 23.0, 720.0  # bytes a ns: the engines of a core; the HBM of two


def clamp(moved=100 * MB, steps=900 * MB):
    return Operation("clamp", (1, 96, 8), "bfloat16", moved // 2, moved // 2, ("clamp",), steps)


def norm(positions, groups=0):
    shape, half = (1, 96, positions), 2 * 96 * positions
    kind = "group norm" if groups else "rms norm"
    sizes = (1, 96, groups, positions) if groups else shape
    return Operation(kind, shape, "bfloat16", half, half, ("mean", "mul"), 5 * half, sizes)


def attention(tokens):
    moved = 2 * 4 * tokens * 512
    sizes = (1, tokens, tokens, 512, 0)
    return Operation("attention", (1, tokens, 512), "bfloat16", moved, 0, ("bmm",), moved, sizes)


@pytest.mark.parametrize(("cores", "rate"), [(1, CORE), (2, PAIR)])
def test_what_has_no_kernel_takes_what_its_bytes_take(cores, rate):
    (plan,) = operation_plans([(clamp(), 3)], TRN2, cores)
    assert plan.call_ns == pytest.approx(100 * MB / rate)
    assert plan.ns == pytest.approx(3 * 100 * MB / rate)
    assert (plan.bound, plan.moved_bytes) == ("hbm", 300 * MB)
    assert plan.price_of == BOUND


@pytest.mark.parametrize("groups", [0, 32])
def test_a_norm_takes_what_our_kernel_takes(groups):
    operation = norm(512 * 512, groups)
    (plan,) = operation_plans([(operation, 1)], TRN2, 1)
    assert plan.price_of == KERNEL
    passes = 1.5 if groups else 1  # statistics read all of it before
    assert passes <= plan.call_ns / (operation.moved_bytes / CORE) <= 1.6 * passes


def test_a_type_that_no_kernel_takes_has_a_price():
    (plan,) = operation_plans([(replace(norm(64), dtype="float64"), 1)], TRN2, 1)
    assert plan.price_of == BOUND


def test_queries_and_keys_of_two_lengths_have_a_price():
    other = replace(attention(256), sizes=(1, 256, 77, 512, 0))
    (plan,) = operation_plans([(other, 1)], TRN2, 1)
    assert plan.price_of == BOUND


def test_a_long_attention_takes_what_its_products_take():
    (plan,) = operation_plans([(attention(72_000), 1)], TRN2, 1)
    peak = 128 * 128 * 2.4  # multiply-adds a ns
    assert (plan.bound, plan.price_of) == ("tensor", KERNEL)
    assert plan.call_ns >= 2 * 72_000**2 * 512 / peak


def test_a_product_counts_its_multiply_adds():
    sizes = (1, 4096, 4096, 4096)
    product = Operation("product", (4096, 4096), "bfloat16", 0, 0, ("mm",), 0, sizes)
    (plan,) = operation_plans([(product, 1)], TRN2, 1)
    assert plan.call_ns >= 4096**3 / (128 * 128 * 2.4)


def test_what_torch_writes_takes_longer():
    assert as_written_ns([(clamp(), 2)], TRN2, 1) == pytest.approx(2 * 900 * MB / CORE)


def test_kinds_are_summed_and_the_longest_comes_first():
    copies = Operation("cat", (1,), "bfloat16", 500 * MB, 500 * MB, ("cat",), 1000 * MB)
    kinds = by_kind(operation_plans([(clamp(), 1), (clamp(20 * MB), 2), (copies, 1)], TRN2, 1))
    assert [(kind.kind, kind.calls, kind.moved_bytes) for kind in kinds] == [
        ("cat", 1, 1000 * MB),
        ("clamp", 3, 140 * MB),
    ]
    assert kinds[1].ns == pytest.approx(140 * MB / CORE)
    assert kinds[1].as_written_bytes == 3 * 900 * MB

"""Prices of what is no convolution: bytes against HBM, products against the Tensor engine."""

import pytest

from nkisim.machine import TRN2
from trnconv.model_plan import by_kind, operation_plans
from trnconv.model_plan.operations import as_written_ns
from trnconv.observed import Operation

MB = 10**6
CORE, PAIR = 16 * 23.0, 720.0  # bytes a ns: the engines of a core; the HBM of two


def norm(moved=100 * MB, steps=900 * MB):
    return Operation(
        "channel norm", (1, 96, 8), "bfloat16", moved // 2, moved // 2, ("mean", "mul"), steps
    )


def attention(tokens):
    moved = 2 * 4 * tokens * 512
    sizes = (1, tokens, tokens, 512, 0)
    return Operation("attention", (1, tokens, 512), "bfloat16", moved, 0, ("bmm",), moved, sizes)


@pytest.mark.parametrize(("cores", "rate"), [(1, CORE), (2, PAIR)])
def test_a_norm_takes_what_its_bytes_take(cores, rate):
    (plan,) = operation_plans([(norm(), 3)], TRN2, cores)
    assert plan.call_ns == pytest.approx(100 * MB / rate)
    assert plan.ns == pytest.approx(3 * 100 * MB / rate)
    assert (plan.bound, plan.moved_bytes) == ("hbm", 300 * MB)


def test_a_long_attention_takes_what_its_products_take():
    (plan,) = operation_plans([(attention(72_000), 1)], TRN2, 1)
    peak = 128 * 128 * 2.4  # multiply-adds a ns
    assert plan.bound == "tensor"
    assert plan.call_ns >= 2 * 72_000**2 * 512 / peak


def test_a_short_attention_takes_what_its_bytes_take():
    (plan,) = operation_plans([(attention(16), 1)], TRN2, 1)
    assert plan.bound == "hbm"


def test_a_product_counts_its_multiply_adds():
    sizes = (1, 4096, 4096, 4096)
    product = Operation("product", (4096, 4096), "bfloat16", 0, 0, ("mm",), 0, sizes)
    (plan,) = operation_plans([(product, 1)], TRN2, 1)
    assert plan.call_ns >= 4096**3 / (128 * 128 * 2.4)


def test_what_torch_writes_takes_longer():
    assert as_written_ns([(norm(), 2)], TRN2, 1) == pytest.approx(2 * 900 * MB / CORE)


def test_kinds_are_summed_and_the_longest_comes_first():
    copies = Operation("cat", (1,), "bfloat16", 500 * MB, 500 * MB, ("cat",), 1000 * MB)
    kinds = by_kind(operation_plans([(norm(), 1), (norm(20 * MB), 2), (copies, 1)], TRN2, 1))
    assert [(kind.kind, kind.calls, kind.moved_bytes) for kind in kinds] == [
        ("cat", 1, 1000 * MB),
        ("channel norm", 3, 140 * MB),
    ]
    assert kinds[1].ns == pytest.approx(140 * MB / CORE)
    assert kinds[1].as_written_bytes == 3 * 900 * MB

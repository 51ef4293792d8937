"""GpSimd engine: 150 cycles of start-up, then elements; 1.4 GHz on trn1, 1.2 GHz later.

Where no cost is published an element takes 2 cycles, 1 read optimistically.
"""

import pytest

from nkisim.machine import Reading
from timing_instructions import cost, engine, strided, whole

POOL = engine.gpsimd
approx = pytest.approx


@pytest.mark.parametrize("op", ["iota", "affine_select"])
@pytest.mark.parametrize(("machine", "ghz"), [("trn1", 1.4), ("trn2", 1.2)])
def test_a_pattern_is_written_at_one_element_a_cycle(op, machine, ghz):
    found = cost(op, POOL, [whole((128, 512))], [], machine=machine)
    assert found.busy_ns == approx((150 + 512) / ghz)
    assert found.latency_ns == found.busy_ns


@pytest.mark.parametrize(
    "op",
    [
        "local_gather",
        "memset",
        "nc_n_gather",
        "nonzero_with_count",
        "sequence_bounds",
        "tensor_copy",
        "tensor_partition_reduce",
        "tensor_scalar",
        "tensor_tensor",
    ],
)
def test_everything_else_has_an_assumed_rate(op):
    tiles = [whole((128, 512))], [whole((128, 512))]
    assert cost(op, POOL, *tiles).busy_ns == approx((150 + 2 * 512) / 1.2)
    optimistic = cost(op, POOL, *tiles, reading=Reading.optimistic)
    assert optimistic.busy_ns == approx((150 + 512) / 1.2)


def test_a_wide_stride_halves_the_rate():
    tiles = [whole((128, 512))], [strided((128, 512), "float32", 5)]
    assert cost("tensor_copy", POOL, *tiles).busy_ns == approx((150 + 2 * 2 * 512) / 1.2)


def test_a_copy_with_a_run_time_offset_takes_600_cycles_at_least():
    tiles = [whole((128, 64))], [whole((128, 64))]
    found = cost("tensor_copy", POOL, *tiles, dynamic=True)
    assert found.busy_ns == approx((150 + 600) / 1.2)


def test_topk_takes_4_cycles_a_value_and_one_for_each_it_keeps():
    kept = [whole((16, 32), "bfloat16"), whole((16, 32), "uint32")]
    found = cost("topk", POOL, kept, [whole((16, 64), "bfloat16")], n=1000)
    assert found.busy_ns == approx((150 + 4 * 1000 + 32) / 1.2)

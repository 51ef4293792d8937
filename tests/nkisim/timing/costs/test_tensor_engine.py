"""Tensor engine: cycles of matmuls and transposes, written out by hand from the documents.

Clocks: 2.8 GHz on trn1, of which an activity throttle leaves 87.5 % (KILN), 2.4 GHz on trn2 and
trn3. A result is readable 395 cycles after the last column. Between two matmuls lie 16 cycles (7
and 27 in the other readings).
"""

import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.enums import matmul_perf_mode
from nkisim.machine import MACHINES, TRN2, Reading
from nkisim.running.host_arrays import Spec
from nkisim.running.kernel import run
from nkisim.timing.costs import cost_of
from timing_instructions import PSUM, cost, engine, strided, tensor, view, whole

PE = engine.tensor
approx = pytest.approx


def matmul(k, m, n, dtype="bfloat16", *, machine="trn2", moving=None, **options):
    stationary = whole((k, m), dtype)
    moving = whole((k, n), dtype) if moving is None else moving
    dst = whole((m, n), "float32", PSUM)
    return cost("nc_matmul", PE, [dst], [stationary, moving], machine=machine, **options)


@pytest.mark.parametrize(("machine", "ghz"), [("trn1", 2.45), ("trn2", 2.4), ("trn3", 2.4)])
def test_a_bf16_matmul_streams_one_column_a_cycle(machine, ghz):
    found = matmul(128, 128, 512, machine=machine)
    assert found.busy_ns == approx(512 / ghz)
    assert found.latency_ns == approx((512 + 395) / ghz)
    assert found.gap_ns == approx(16 / ghz)
    assert found.weight_load_ns == approx(32 / ghz)  # 128 columns / 4
    assert found.weight_slot_ns == 0
    assert found.flops == 2 * 128 * 128 * 512


def test_rows_and_columns_of_the_array_do_not_enter():
    assert matmul(32, 16, 512).busy_ns == matmul(128, 128, 512).busy_ns
    assert matmul(32, 16, 512).flops == 2 * 32 * 16 * 512


def test_a_short_matmul_takes_the_initiation_interval():
    assert matmul(128, 128, 16).busy_ns == approx(64 / 2.4)


def test_fewer_stationary_columns_load_faster():
    assert matmul(128, 64, 512).weight_load_ns == approx(16 / 2.4)


def test_weight_loads_of_the_other_readings():
    assert matmul(128, 128, 512, reading=Reading.optimistic).weight_load_ns == approx(32 / 2.4)
    assert matmul(128, 128, 512, reading=Reading.pessimistic).weight_load_ns == approx(240 / 2.4)


@pytest.mark.parametrize("dtype", ["float16", "float8_e4m3", "float8_e5m2", "tfloat32"])
def test_every_narrow_type_and_tf32_run_at_the_rate_of_bf16(dtype):
    assert matmul(128, 128, 512, dtype).busy_ns == approx(512 / 2.4)


def test_fp32_is_two_passes_of_two_cycles_a_column():
    found = matmul(128, 128, 512, "float32")
    # Pass 1: 1,024 cycles and a gap of 16; the weights of pass 2 (570 cycles) load meanwhile.
    assert found.weight_slot_ns == approx((1024 + 16) / 2.4)
    assert found.busy_ns == approx((1024 + 16 + 1024) / 2.4)
    assert found.latency_ns == approx((1024 + 16 + 1024 + 395) / 2.4)
    assert found.weight_load_ns == approx(570 / 2.4)
    assert found.flops == 2 * 128 * 128 * 512


def test_a_short_fp32_matmul_waits_for_the_weights_of_its_second_pass():
    found = matmul(128, 128, 64, "float32")
    # A pass is 128 cycles; the second cannot start before its weights are there, after 570.
    assert found.weight_slot_ns == approx(570 / 2.4)
    assert found.busy_ns == approx((570 + 128) / 2.4)


def test_the_documented_fp32_cost_is_four_times_the_narrow_one():
    found = matmul(128, 4, 16, "float32")  # 4 columns load in 570 * 4 / 128 = 17.8 cycles
    assert found.busy_ns == approx((128 + 16 + 128) / 2.4)  # 4 x 64, and the gap between passes


def test_fp32_with_tf32_is_an_fp32_matmul():
    found = matmul(128, 128, 512, "float32", moving=whole((128, 512), "tfloat32"))
    assert found.busy_ns == approx((1024 + 16 + 1024) / 2.4)


def test_an_operand_of_zeros_and_ones_saves_a_pass():
    found = matmul(128, 128, 512, "float32", onezero=True)
    assert found.busy_ns == approx(1024 / 2.4)
    assert found.weight_slot_ns == 0
    assert matmul(128, 128, 512, "bfloat16", onezero=True).busy_ns == approx(512 / 2.4)


def test_double_row_does_two_rows_in_the_time_of_one():
    stationary, moving = whole((128, 2, 128), "float8_e4m3"), whole((128, 2, 512), "float8_e4m3")
    dst = whole((128, 512), "float32", PSUM)
    options = {"perf_mode": matmul_perf_mode.double_row}
    found = cost("nc_matmul", PE, [dst], [stationary, moving], **options)
    assert found.busy_ns == approx(512 / 2.4)
    assert found.weight_load_ns == approx(32 / 2.4)
    assert found.flops == 2 * 256 * 128 * 512


def test_an_mx_matmul_does_four_rows_in_the_time_of_one():
    stationary, moving = (
        whole((128, 128), "float8_e4m3fn_x4"),
        whole((128, 512), "float8_e4m3fn_x4"),
    )
    scales = whole((128, 128), "uint8"), whole((128, 512), "uint8")
    dst = whole((128, 512), "float32", PSUM)
    found = cost("nc_matmul_mx", PE, [dst], [stationary, moving, *scales], machine="trn3")
    assert found.busy_ns == approx(512 / 2.4)
    assert found.weight_load_ns == approx(32 / 2.4)
    assert found.flops == 2 * 512 * 128 * 512


def test_a_moving_operand_with_a_wide_stride_takes_two_cycles_a_column():
    narrow = strided((128, 256), "bfloat16", 8)  # 16 B
    wide = strided((128, 256), "bfloat16", 9)  # 18 B
    assert matmul(128, 128, 256, moving=narrow).busy_ns == approx(256 / 2.4)
    assert matmul(128, 128, 256, moving=wide).busy_ns == approx(2 * 256 / 2.4)
    optimistic = matmul(128, 128, 256, moving=wide, reading=Reading.optimistic)
    assert optimistic.busy_ns == approx(256 / 2.4)


@pytest.mark.parametrize(
    ("machine", "dtype", "cycles"),
    [
        ("trn2", "bfloat16", 128),
        ("trn2", "float32", 2 * 128),
        ("trn1", "bfloat16", 128),
        ("trn1", "float32", 4 * 128),
    ],
)
def test_a_transpose_streams_its_partitions(machine, dtype, cycles):
    data, dst = whole((128, 128), dtype), whole((128, 128), dtype, PSUM)
    found = cost("nc_transpose", PE, [dst], [data], machine=machine)
    ghz = {"trn1": 2.45, "trn2": 2.4}[machine]
    assert found.busy_ns == approx(cycles / ghz)
    assert found.weight_load_ns == approx(32 / ghz)
    assert found.flops == 0


def test_a_small_transpose_takes_at_least_its_columns_up_to_64():
    def transpose(p, f):
        data, dst = whole((p, f), "bfloat16"), whole((f, p), "bfloat16", PSUM)
        return cost("nc_transpose", PE, [dst], [data]).busy_ns

    assert transpose(16, 128) == approx(64 / 2.4)  # max(P, min(64, F))
    assert transpose(16, 32) == approx(32 / 2.4)
    assert transpose(100, 32) == approx(100 / 2.4)


@pytest.mark.parametrize(("dtype", "cycles"), [("bfloat16", 128), ("float32", 2 * 128)])
def test_a_matmul_in_transpose_mode_costs_what_a_transpose_costs(dtype, cycles):
    found = matmul(128, 128, 128, dtype, transpose=True)
    assert found.busy_ns == approx(cycles / 2.4)
    assert found.flops == 0


def tiled(size, position, reading):
    stationary, moving = tensor((128, 32), "bfloat16"), tensor((128, 512), "bfloat16")
    rows, columns = size
    return cost(
        "nc_matmul",
        PE,
        [whole((min(32, columns), 512), "float32", PSUM)],
        [
            view(stationary, (rows, min(32, columns)), "bfloat16"),
            view(moving, (rows, 512), "bfloat16"),
        ],
        reading=reading,
        tile_size=size,
        tile_position=position,
    ).cells


@pytest.mark.parametrize(
    ("size", "position", "reading", "cells"),
    [
        ((32, 128), (32, 0), Reading.default, (4, 5, 6, 7)),  # a row of the 4 x 4 parts
        ((64, 128), (64, 0), Reading.default, tuple(range(8, 16))),
        ((32, 128), (32, 0), Reading.pessimistic, ()),
        ((128, 32), (0, 64), Reading.default, ()),
        ((128, 32), (0, 64), Reading.optimistic, (2, 6, 10, 14)),  # a column of them
        ((32, 32), (96, 32), Reading.optimistic, (13,)),
        ((32, 32), (96, 32), Reading.default, (12, 13, 14, 15)),
        ((128, 128), (0, 0), Reading.optimistic, ()),
    ],
)
def test_a_tile_takes_its_part_of_the_array(size, position, reading, cells):
    assert tiled(size, position, reading) == cells


def test_a_real_kernel_records_what_the_rule_needs():
    def kernel(x):
        tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, x)
        total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(total, tile[:, :128], tile)
        out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        result = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(result, total)
        nisa.dma_copy(out, result)
        return out

    done = run(kernel, Spec((128, 512), "bfloat16"), machine="trn2", values=False)
    found = [cost_of(one, done.machine) for one in done.trace.instructions()]
    assert found[1].busy_ns == approx(512 / 2.4)
    assert found[1].flops == 2 * 128 * 128 * 512


@pytest.mark.parametrize(
    ("k", "m", "share"), [(128, 128, 1.0), (64, 64, 0.25), (64, 128, 0.5), (1, 128, 1 / 128)]
)
def test_a_matmul_uses_the_part_of_the_array_that_holds_its_weights(k, m, share):
    assert matmul(k, m, 512).array_share == share


def test_rates_of_small_parts_of_the_array():
    """KILN V7, V9, V10 for trn1, TB's conv3d for trn2."""
    rates = {
        name: [MACHINES[name].timing.pe_rate(s) for s in (0.25, 0.5, 0.51)] for name in MACHINES
    }
    assert rates == {"trn1": [0.55, 0.81, 1], "trn2": [0.5, 1, 1], "trn3": [0.5, 1, 1]}
    careful = TRN2.read(Reading.pessimistic).timing
    assert [careful.pe_rate(share) for share in (0.25, 0.5, 0.51)] == [0.5, 0.5, 1]

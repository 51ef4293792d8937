"""Vector engine: cycles by hand, at 1.12 GHz on trn1, 0.96 GHz on trn2 and 1.2 GHz on trn3.

An instruction that streams for C cycles keeps the engine for max(64, C + 48) of them, and its
result is there after C + 150 (readings: 0 and 100, 64 and 160).
"""

import pytest

from nkisim.machine import Reading
from timing_instructions import PSUM, SBUF, cost, engine, strided, tensor, view, whole

DVE = engine.vector
GHZ = {"trn1": 1.12, "trn2": 0.96, "trn3": 1.2}
approx = pytest.approx


def busy(cycles, machine="trn2"):
    return approx(max(64, cycles + 48) / GHZ[machine])


def latency(cycles, machine="trn2"):
    return approx(max(64, cycles + 48, cycles + 150) / GHZ[machine])


def copy(dst, src, **how):
    return cost("tensor_copy", DVE, [dst], [src], **how)


def test_a_copy_of_fp32_runs_at_one_element_a_cycle():
    found = copy(whole((128, 512)), whole((128, 512), region=PSUM))
    assert found.busy_ns == approx((512 + 48) / 0.96)
    assert found.latency_ns == approx((512 + 150) / 0.96)


def test_a_short_instruction_takes_the_issue_interval():
    found = copy(whole((128, 3)), whole((128, 3)))
    assert found.busy_ns == approx(64 / 0.96)
    assert found.latency_ns == approx((3 + 150) / 0.96)


def test_the_other_readings_have_other_overheads():
    tiles = whole((128, 512)), whole((128, 512))
    optimistic = copy(*tiles, reading=Reading.optimistic)
    assert (optimistic.busy_ns, optimistic.latency_ns) == approx((512 / 0.96, 612 / 0.96))
    pessimistic = copy(*tiles, reading=Reading.pessimistic)
    assert (pessimistic.busy_ns, pessimistic.latency_ns) == approx((576 / 0.96, 672 / 0.96))


@pytest.mark.parametrize("op", ["tensor_copy", "tensor_scalar"])
@pytest.mark.parametrize(
    ("dtypes", "regions", "strides", "speed"),
    [
        (("bfloat16", "bfloat16"), (SBUF, SBUF), (1, 1), 4),
        (("bfloat16", "float16"), (SBUF, SBUF), (1, 1), 4),
        (("bfloat16", "bfloat16"), (SBUF, SBUF), (2, 1), 2),  # not contiguous
        (("bfloat16", "bfloat16"), (SBUF, PSUM), (1, 1), 2),  # one side in PSUM
        (("bfloat16", "bfloat16"), (PSUM, SBUF), (1, 1), 2),
        (("bfloat16", "bfloat16"), (SBUF, PSUM), (1, 2), 1),  # both
        (("bfloat16", "float32"), (SBUF, SBUF), (1, 1), 1),  # a wide operand
        (("float32", "float32"), (SBUF, SBUF), (1, 1), 1),
        (("int16", "int16"), (SBUF, SBUF), (1, 1), 1),  # documented for floats only
        (("float8_e4m3", "float8_e4m3"), (SBUF, SBUF), (1, 1), 1),
    ],
)
def test_fast_modes_on_trn2(op, dtypes, regions, strides, speed):
    sides = [strided((128, 512), *side) for side in zip(dtypes, strides, regions, strict=True)]
    assert cost(op, DVE, sides[:1], sides[1:]).busy_ns == busy(512 / speed)


def test_a_scalar_operand_does_not_spoil_a_fast_mode():
    dst, data, scale = whole((128, 512), "bfloat16"), whole((128, 512), "bfloat16"), whole((128, 1))
    assert cost("tensor_scalar", DVE, [dst], [data, scale]).busy_ns == busy(512 / 4)


def test_trn1_has_no_fast_mode_and_trn3_has_one_for_fp8():
    narrow = whole((128, 512), "bfloat16"), whole((128, 512), "bfloat16")
    assert copy(*narrow, machine="trn1").busy_ns == busy(512, "trn1")
    fp8 = whole((128, 512), "float8_e4m3"), whole((128, 512), "float8_e4m3")
    assert copy(*fp8, machine="trn3").busy_ns == busy(512 / 4, "trn3")


def test_an_operand_off_a_4_byte_boundary_loses_one_mode():
    room = tensor((128, 1024), "bfloat16")
    dst = whole((128, 512), "bfloat16")
    assert copy(dst, view(room, (128, 512), "bfloat16", offset=2)).busy_ns == busy(512 / 4)
    assert copy(dst, view(room, (128, 512), "bfloat16", offset=1)).busy_ns == busy(512 / 2)


def test_rows_off_a_4_byte_boundary_lose_one_mode():
    room, dst = tensor((128, 1024), "bfloat16"), whole((128, 8, 32), "bfloat16")
    even = view(room, (128, 8, 32), "bfloat16", strides=(34, 1))
    odd = view(room, (128, 8, 32), "bfloat16", strides=(33, 1))
    assert copy(dst, even).busy_ns == busy(256 / 4)
    assert copy(dst, odd).busy_ns == busy(256 / 2)


def test_an_innermost_stride_above_16_bytes_halves_the_rate():
    dst = whole((128, 512))
    assert copy(dst, strided((128, 512), "float32", 4)).busy_ns == busy(512)
    assert copy(dst, strided((128, 512), "float32", 5)).busy_ns == busy(2 * 512)
    assert copy(dst, strided((128, 512), "float32", -5)).busy_ns == busy(2 * 512)


@pytest.mark.parametrize(
    ("op", "cycles"),
    [
        ("reciprocal", 2.6 * 2 * 256),
        ("tensor_tensor_scan", 2 * 2 * 256),
        ("select_reduce", 2 * 2 * 256),
        ("exponential", 2 * 256 / 4),
        ("bn_stats", 2 * 256),
    ],
)
def test_the_stride_rule_holds_for_every_instruction(op, cycles):
    found = cost(op, DVE, [whole((128, 256))], [strided((128, 256), "float32", 5)], machine="trn3")
    assert found.busy_ns == busy(cycles, "trn3")


def test_a_copy_with_a_run_time_offset_takes_600_cycles_at_least():
    small, large = whole((128, 64), "bfloat16"), whole((128, 1024), "bfloat16")
    assert copy(small, small, dynamic=True).busy_ns == busy(600)
    assert copy(large, large, dynamic=True).busy_ns == busy(1024)


@pytest.mark.parametrize("machine", ["trn1", "trn2"])
def test_memset_writes_16_bit_zeros_twice_as_fast(machine):
    def memset(dtype, *, zero):
        return cost("memset", DVE, [whole((128, 512), dtype)], machine=machine, zero=zero).busy_ns

    assert memset("bfloat16", zero=True) == busy(256, machine)
    assert memset("bfloat16", zero=False) == busy(512, machine)
    assert memset("float32", zero=True) == busy(512, machine)


@pytest.mark.parametrize(
    ("machine", "op", "dtypes", "regions", "factor"),
    [
        ("trn2", "add", ("float32",) * 3, (SBUF, SBUF, SBUF), 2),
        ("trn2", "add", ("float32",) * 3, (SBUF, PSUM, SBUF), 1),
        ("trn2", "add", ("float32",) * 3, (PSUM, SBUF, SBUF), 2),  # the result may be anywhere
        ("trn2", "power", ("bfloat16",) * 3, (SBUF, SBUF, SBUF), 1),  # any operator
        ("trn2", "add", ("float16", "bfloat16", "float16"), (SBUF, SBUF, SBUF), 1),
        ("trn2", "add", ("float32", "bfloat16", "bfloat16"), (SBUF, SBUF, SBUF), 2),
        ("trn1", "add", ("bfloat16",) * 3, (SBUF, SBUF, SBUF), 1),
        ("trn1", "power", ("bfloat16",) * 3, (SBUF, SBUF, SBUF), 2),
        ("trn1", "add", ("float16",) * 3, (SBUF, SBUF, SBUF), 2),
        ("trn1", "add", ("float32",) * 3, (SBUF, SBUF, PSUM), 1),
    ],
)
def test_two_inputs(machine, op, dtypes, regions, factor):
    dst, one, two = (
        whole((128, 384), dtype, region) for dtype, region in zip(dtypes, regions, strict=True)
    )
    found = cost("tensor_tensor", DVE, [dst], [one, two], machine=machine, op=op)
    assert found.busy_ns == busy(factor * 384, machine)
    fused = cost("scalar_tensor_tensor", DVE, [dst], [one, two], machine=machine, op0="max", op1=op)
    assert fused.busy_ns == busy(factor * 384, machine)


def test_two_inputs_on_trn1_need_contiguous_operands_to_be_fast():
    strided_one = strided((128, 384), "bfloat16", 2)
    dst, two = whole((128, 384), "bfloat16"), whole((128, 384), "bfloat16")
    found = cost("tensor_tensor", DVE, [dst], [strided_one, two], machine="trn1", op="add")
    assert found.busy_ns == busy(2 * 384, "trn1")


@pytest.mark.parametrize(
    ("dtype", "op", "cycles"),
    [
        ("bfloat16", "add", 256),
        ("bfloat16", "maximum", 256),
        ("bfloat16", "minimum", 512),
        ("float32", "add", 512),
    ],
)
def test_a_reduction_of_bf16_sums_or_maxima_runs_at_two_elements_a_cycle(dtype, op, cycles):
    data, dst = whole((128, 512), dtype), whole((128, 1))
    assert cost("tensor_reduce", DVE, [dst], [data], op=op).busy_ns == busy(cycles)


@pytest.mark.parametrize(
    "op",
    [
        "bn_stats",
        "max8",
        "nc_find_index8",
        "nc_match_replace8",
        "nc_stream_shuffle",
        "range_select",
    ],
)
def test_one_pass(op):
    found = cost(op, DVE, [whole((128, 512))], [whole((128, 512))])
    assert (found.busy_ns, found.latency_ns) == (busy(512), latency(512))


def test_bn_aggr_takes_13_cycles_a_triple():
    found = cost("bn_aggr", DVE, [whole((128, 2))], [whole((128, 48))])
    assert found.busy_ns == busy(13 * 16)


@pytest.mark.parametrize("op", ["tensor_tensor_scan", "tensor_scalar_cumulative"])
def test_a_scan_takes_two_cycles_an_element(op):
    assert cost(op, DVE, [whole((128, 512))], [whole((128, 512))]).busy_ns == busy(2 * 512)


def test_reading_the_accumulator_takes_64_cycles():
    dst, data, total = whole((128, 512)), whole((128, 512)), whole((128, 1))
    found = cost("tensor_scalar_reduce", DVE, [dst, total], [data])
    assert found.busy_ns == approx((512 + 48 + 64) / 0.96)
    assert found.latency_ns == approx((512 + 150 + 64) / 0.96)
    assert cost("tensor_scalar_reduce", DVE, [dst], [data]).busy_ns == busy(512)


@pytest.mark.parametrize("op", ["select_reduce", "tensor_copy_predicated"])
def test_a_selection_takes_two_cycles_an_element_or_one_with_psum(op):
    dst, data, mask = whole((128, 512)), whole((128, 512)), whole((128, 512), "uint8")
    assert cost(op, DVE, [dst], [data, mask]).busy_ns == busy(2 * 512)
    in_psum = whole((128, 512), region=PSUM)
    assert cost(op, DVE, [dst], [in_psum, mask]).busy_ns == busy(512)


def test_a_reciprocal_takes_2_6_cycles_an_element_or_8_read_pessimistically():
    tiles = whole((128, 512)), whole((128, 512))
    assert cost("reciprocal", DVE, tiles[:1], tiles[1:]).busy_ns == busy(2.6 * 512)
    found = cost("reciprocal", DVE, tiles[:1], tiles[1:], reading=Reading.pessimistic)
    assert found.busy_ns == approx((8 * 512 + 64) / 0.96)


@pytest.mark.parametrize(
    ("op", "dst"),
    [("exponential", ((128, 512), "bfloat16")), ("quantize_mx", ((128, 128), "float8_e4m3fn_x4"))],
)
def test_four_elements_a_cycle_on_trn3(op, dst):
    found = cost(op, DVE, [whole(*dst)], [whole((128, 512), "bfloat16")], machine="trn3")
    assert found.busy_ns == busy(512 / 4, "trn3")


def test_a_transpose_on_this_engine_is_a_short_instruction():
    found = cost("nc_transpose", DVE, [whole((32, 32))], [whole((32, 32))])
    assert (found.busy_ns, found.latency_ns) == (busy(32), latency(32))

"""Scalar engine: cycles by hand, at 1.4 GHz on trn1 and 1.2 GHz on trn2 and trn3.

An instruction that streams for C cycles keeps the engine for max(64, C + 48) of them, and its
result is there after C + 250 (readings: 0 and 200, 64 and 358).
"""

import pytest

from nkisim.machine import Reading
from timing_instructions import PSUM, cost, engine, strided, whole

ACT = engine.scalar
approx = pytest.approx


def activation(n, op="exp", *, instruction="activation", writes=(), machine="trn2", **how):
    writes = [whole((128, n)), *writes]
    return cost(instruction, ACT, writes, [whole((128, n))], machine=machine, op=op, **how)


@pytest.mark.parametrize("instruction", ["activation", "activate2"])
@pytest.mark.parametrize(("machine", "ghz"), [("trn1", 1.4), ("trn2", 1.2), ("trn3", 1.2)])
def test_every_function_runs_at_one_element_a_cycle(instruction, machine, ghz):
    found = activation(512, instruction=instruction, machine=machine)
    assert found.busy_ns == approx((512 + 48) / ghz)
    assert found.latency_ns == approx((512 + 250) / ghz)


def test_a_short_instruction_takes_the_issue_interval():
    found = activation(1)
    assert found.busy_ns == approx(64 / 1.2)
    assert found.latency_ns == approx(251 / 1.2)


def test_the_other_readings_have_other_overheads():
    optimistic = activation(512, reading=Reading.optimistic)
    assert (optimistic.busy_ns, optimistic.latency_ns) == approx((512 / 1.2, 712 / 1.2))
    pessimistic = activation(512, reading=Reading.pessimistic)
    assert (pessimistic.busy_ns, pessimistic.latency_ns) == approx((576 / 1.2, 870 / 1.2))


def test_types_and_psum_make_no_difference():
    dst, data = whole((128, 512), "bfloat16"), whole((128, 512), "bfloat16", PSUM)
    assert cost("activation", ACT, [dst], [data], op="exp").busy_ns == approx(560 / 1.2)


@pytest.mark.parametrize("instruction", ["activation", "activation_reduce", "activate2"])
def test_reading_the_sum_takes_64_cycles(instruction):
    found = activation(512, instruction=instruction, writes=[whole((128, 1))])
    assert found.busy_ns == approx((512 + 48 + 64) / 1.2)
    assert found.latency_ns == approx((512 + 250 + 64) / 1.2)


def test_a_wide_stride_halves_the_rate():
    dst, data = whole((128, 512)), strided((128, 512), "float32", 5)
    found = cost("activation", ACT, [dst], [data], op="exp")
    assert found.busy_ns == approx((2 * 512 + 48) / 1.2)


@pytest.mark.parametrize(
    ("op", "table"),
    [("exp", "exp"), ("gelu", "gelu"), ("copy", None), ("relu", None), ("square", None)],
)
def test_functions_need_their_table_and_simple_ones_need_none(op, table):
    assert activation(512, op).table == table


@pytest.mark.parametrize("op", ["tensor_copy", "tensor_scalar"])
@pytest.mark.parametrize(
    ("machine", "dtype", "cycles"),
    [
        ("trn2", "float32", 512),
        ("trn2", "bfloat16", 512),
        ("trn3", "bfloat16", 256),  # two 16-bit elements a cycle from NeuronCore-v4 on
        ("trn3", "float32", 512),
        ("trn3", "int16", 512),
    ],
)
def test_copies(op, machine, dtype, cycles):
    dst, src = whole((128, 512), dtype), whole((128, 512), dtype)
    found = cost(op, ACT, [dst], [src], machine=machine)
    assert found.busy_ns == approx((cycles + 48) / 1.2)
    assert found.table is None


def test_a_copy_with_a_run_time_offset_takes_600_cycles_at_least():
    dst, src = whole((128, 64)), whole((128, 64))
    found = cost("tensor_copy", ACT, [dst], [src], dynamic=True)
    assert found.busy_ns == approx((600 + 48) / 1.2)


@pytest.mark.parametrize(("machine", "shared"), [("trn1", True), ("trn2", False), ("trn3", False)])
def test_only_on_trn1_the_port_to_psum_is_shared(machine, shared):
    """A1: Vector and Scalar engine take turns there; what stays in SBUF is not concerned."""
    in_psum, in_sbuf = whole((128, 64), region=PSUM), whole((128, 64))
    for op, where in (("activation", engine.scalar), ("tensor_scalar", engine.vector)):
        assert cost(op, where, [in_sbuf], [in_psum], machine=machine, op="copy").psum is shared
        assert not cost(op, where, [in_sbuf], [in_sbuf], machine=machine, op="copy").psum
    bold = cost(
        "activation",
        engine.scalar,
        [in_sbuf],
        [in_psum],
        machine=machine,
        reading=Reading.optimistic,
        op="copy",
    )
    assert not bold.psum

"""Registers, barriers and exchanges between cores: assumed costs, none is published."""

import pytest

from nkisim.machine import Reading
from timing_instructions import HBM, cost, engine, whole

approx = pytest.approx


@pytest.mark.parametrize("op", ["register_load", "register_store"])
@pytest.mark.parametrize(
    ("region", "reading", "ns"),
    [
        (HBM, Reading.default, 2000),
        (HBM, Reading.optimistic, 300),
        (None, Reading.default, 300),
        (None, Reading.pessimistic, 2000),
    ],
)
def test_a_register_and_memory(op, region, reading, ns):
    place = whole((1, 1), "int32", region) if region else whole((1, 1), "int32")
    operands = ([], [place]) if op == "register_load" else ([place], [])
    found = cost(op, engine.sync, *operands, reading=reading)
    assert (found.busy_ns, found.latency_ns) == (ns, ns)


def test_moving_a_register_takes_an_issue_slot():
    assert cost("register_move", engine.sync, []).busy_ns == approx(64 / 1.2)


@pytest.mark.parametrize(
    ("reading", "ns"),
    [(Reading.optimistic, 1000), (Reading.default, 1500), (Reading.pessimistic, 2000)],
)
def test_a_barrier(reading, ns):
    data = whole((1, 1), "int32", HBM)
    assert cost("core_barrier", engine.gpsimd, [data], [data], reading=reading).busy_ns == ns


def test_an_exchange_by_dma_is_a_meeting_and_the_data():
    found = cost("sendrecv", engine.dma, [whole((128, 512))], [whole((128, 512))])
    transfer = found.transfer
    assert found.busy_ns == 0
    assert (transfer.start_ns, transfer.done_ns, transfer.hbm_bytes) == (2500, 0, 0)
    assert transfer.descriptors == 128
    assert transfer.ns_each == approx(2048 / 23 + 10)


def test_an_exchange_by_gpsimd_holds_that_engine():
    found = cost("sendrecv", engine.gpsimd, [whole((128, 64))], [whole((128, 64))])
    assert (found.busy_ns, found.latency_ns, found.transfer) == (2500, 2500, None)

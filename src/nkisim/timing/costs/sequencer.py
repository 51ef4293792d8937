"""Registers, barriers and core-to-core transfers; none of their costs is published."""

from __future__ import annotations

from nkisim.machine import Machine
from nkisim.timing.costs.cost import Cost, cost_rule
from nkisim.trace import Instruction


@cost_rule("register_load", "register_store")
def register_memory(_instruction: Instruction, machine: Machine) -> Cost:
    """A round trip to memory."""
    ns = machine.timing.register_load_ns
    return Cost(busy_ns=ns, latency_ns=ns)


@cost_rule("register_move", "register_alloc")
def register_only(_instruction: Instruction, machine: Machine) -> Cost:
    """One issue slot of the sequencer."""
    ns = machine.timing.engine_min_cycles / machine.timing.scalar_ghz
    return Cost(busy_ns=ns, latency_ns=ns)


@cost_rule("core_barrier")
def barrier(_instruction: Instruction, machine: Machine) -> Cost:
    """A semaphore exchange between two cores."""
    ns = machine.timing.core_barrier_ns
    return Cost(busy_ns=ns, latency_ns=ns)


@cost_rule("sendrecv")
def sendrecv(_instruction: Instruction, machine: Machine) -> Cost:
    """A transfer between two cores."""
    ns = machine.timing.sendrecv_ns
    return Cost(busy_ns=ns, latency_ns=ns)

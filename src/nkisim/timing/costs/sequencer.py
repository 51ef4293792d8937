"""Registers, barriers and core-to-core transfers; none of their costs is published."""

from __future__ import annotations

from dataclasses import replace

from nkisim.enums import engine
from nkisim.machine import Machine
from nkisim.timing.costs.cost import Cost, cost_rule
from nkisim.timing.costs.dma import transfer_of
from nkisim.trace import Instruction


@cost_rule("register_load", "register_store", "scalar_load", "scalar_store")
def register_memory(instruction: Instruction, machine: Machine) -> Cost:
    """A round trip to SBUF or to HBM."""
    timing = machine.timing
    place = (*instruction.writes, *instruction.reads)[0]
    ns = timing.register_load_sbuf_ns if place.layout.on_chip else timing.register_load_ns
    return Cost(busy_ns=ns, latency_ns=ns)


@cost_rule("register_move")
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
def sendrecv(instruction: Instruction, machine: Machine) -> Cost:
    """A transfer between two cores: the meeting, and by DMA the data; GpSimd holds it all."""
    ns = machine.timing.sendrecv_ns
    if instruction.engine is not engine.dma:
        return Cost(busy_ns=ns, latency_ns=ns)
    data = transfer_of(instruction.writes[0], instruction.reads[0], machine)
    transfer = replace(data, direction="between cores", start_ns=ns, done_ns=0.0)
    return Cost(busy_ns=0.0, latency_ns=0.0, transfer=transfer)

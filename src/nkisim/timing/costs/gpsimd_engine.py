"""GpSimd engine: a start-up of 150 cycles, then elements (I26)."""

from __future__ import annotations

from nkisim.machine import Machine
from nkisim.timing.costs.cost import Cost, cost_rule, most_elems
from nkisim.trace import Instruction


def gpsimd_cost(machine: Machine, cycles: float) -> Cost:
    """Start-up plus `cycles`; the result is visible when the instruction ends."""
    busy = (machine.timing.gpsimd_startup_cycles + cycles) / machine.timing.gpsimd_ghz
    return Cost(busy_ns=busy, latency_ns=busy)


@cost_rule("iota", "affine_select")
def one_pass(instruction: Instruction, machine: Machine) -> Cost:
    """150 + N cycles (I26)."""
    return gpsimd_cost(machine, most_elems(instruction))


def elementwise(instruction: Instruction, machine: Machine) -> Cost:
    """tensor_copy, memset, tensor_tensor and tensor_scalar on this engine; the rate is assumed."""
    return gpsimd_cost(machine, most_elems(instruction) * machine.timing.gpsimd_cycles_per_elem)


@cost_rule(
    "local_gather",
    "nc_n_gather",
    "tensor_partition_reduce",
    "sequence_bounds",
    "nonzero_with_count",
)
def unpublished(instruction: Instruction, machine: Machine) -> Cost:
    """No cost is published: start-up and an assumed rate."""
    return elementwise(instruction, machine)


@cost_rule("topk")
def topk(instruction: Instruction, machine: Machine) -> Cost:
    """4 n + K cycles (I26)."""
    elems, kept = instruction.reads[0].layout.elems, instruction.writes[0].layout.elems
    return gpsimd_cost(machine, 4 * elems + kept)

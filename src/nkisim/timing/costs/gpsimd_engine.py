"""GpSimd engine: a start-up of 150 cycles, then elements (I26)."""

from __future__ import annotations

from nkisim.machine import Machine
from nkisim.timing.costs.cost import Cost, cost_rule, streamed_elems
from nkisim.trace import Instruction


def gpsimd_cost(machine: Machine, cycles: float) -> Cost:
    """Start-up plus `cycles`; the result is visible when the instruction ends."""
    busy = (machine.timing.gpsimd_startup_cycles + cycles) / machine.timing.gpsimd_ghz
    return Cost(busy_ns=busy, latency_ns=busy)


@cost_rule("iota", "affine_select")
def one_pass(instruction: Instruction, machine: Machine) -> Cost:
    """150 + N cycles (I26)."""
    return gpsimd_cost(machine, streamed_elems(instruction, machine))


@cost_rule(
    "local_gather",
    "nc_n_gather",
    "tensor_partition_reduce",
    "sequence_bounds",
    "nonzero_with_count",
)
def elementwise(instruction: Instruction, machine: Machine) -> Cost:
    """No cost is published: start-up and an assumed rate.

    Taken too for tensor_copy, memset, tensor_tensor and tensor_scalar on this engine.
    """
    elems = streamed_elems(instruction, machine)
    return gpsimd_cost(machine, elems * machine.timing.gpsimd_cycles_per_elem)


def dynamic_copy(instruction: Instruction, machine: Machine) -> Cost:
    """A tensor_copy with a run-time offset: 600 cycles at least (I26)."""
    cycles = streamed_elems(instruction, machine) * machine.timing.gpsimd_cycles_per_elem
    return gpsimd_cost(machine, max(cycles, machine.timing.dynamic_copy_min_cycles))


@cost_rule("topk")
def topk(instruction: Instruction, machine: Machine) -> Cost:
    """4 n + K cycles (ISA): n values over the partitions of a GpSimd core, K of them kept."""
    kept = instruction.writes[0].layout.elems
    return gpsimd_cost(machine, 4 * instruction.option("n") + kept)

"""Scalar engine: one element a cycle for every function (I26, A1)."""

from __future__ import annotations

from nkisim.machine import Machine
from nkisim.timing.costs.cost import Cost, cost_rule, full_size, most_elems, stride_factor
from nkisim.trace import Instruction

_TWO_BYTE = 2
_EVERY_TABLE = ("copy", "abs", "square", "relu", "sign")  # cheap functions, in every table


def scalar_cost(
    machine: Machine, cycles: float, *, table: str | None = None, extra_cycles: float = 0.0
) -> Cost:
    """An instruction that streams for `cycles`, with the function table it needs."""
    timing = machine.timing
    ns = 1.0 / timing.scalar_ghz
    streaming = cycles + timing.scalar_startup_cycles
    busy = max(float(timing.engine_min_cycles), streaming) + extra_cycles
    latency = max(busy, cycles + extra_cycles + timing.scalar_latency_cycles)
    return Cost(busy_ns=busy * ns, latency_ns=latency * ns, table=table)


def copy_like(instruction: Instruction, machine: Machine) -> Cost:
    """tensor_copy and tensor_scalar on the Scalar engine; 16-bit at 2x from NeuronCore-v4 on."""
    operands = full_size(instruction)
    narrow = all(access.layout.itemsize_bytes == _TWO_BYTE for access in operands)
    speed = 2 if narrow and machine.timing.scalar_wide_16bit else 1
    elems = most_elems(instruction) * stride_factor(instruction, machine)
    return scalar_cost(machine, elems / speed)


@cost_rule("activation", "activate2")
def activation(instruction: Instruction, machine: Machine) -> Cost:
    """One element a cycle; scale, bias and the running sum are free, reading the sum is not."""
    elems = most_elems(instruction) * stride_factor(instruction, machine)
    reads_sum = len(instruction.writes) > 1
    extra = machine.timing.accumulator_read_cycles if reads_sum else 0.0
    function = str(instruction.option("op"))
    table = None if function in _EVERY_TABLE else function
    return scalar_cost(machine, elems, table=table, extra_cycles=extra)


@cost_rule("activation_reduce")
def activation_reduce(instruction: Instruction, machine: Machine) -> Cost:
    """An activation, then the accumulator is read out (A1)."""
    return activation(instruction, machine)

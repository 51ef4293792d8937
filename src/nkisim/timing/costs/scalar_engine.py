"""Scalar engine: one element a cycle for every function (I26, A1)."""

from __future__ import annotations

from nkisim.machine import Machine
from nkisim.timing.costs.cost import Cost, cost_rule, full_size, streamed_elems
from nkisim.trace import Instruction

_NARROW = ("bfloat16", "float16")
# Assumed: which functions share a table is not published. Arithmetic without a table is in all.
_EVERY_TABLE = ("copy", "abs", "square", "relu", "sign")


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
    cycles = float(streamed_elems(instruction, machine))
    if instruction.option("dynamic"):
        return scalar_cost(machine, max(cycles, machine.timing.dynamic_copy_min_cycles))
    narrow = all(access.layout.dtype in _NARROW for access in full_size(instruction))
    return scalar_cost(machine, cycles / (2 if narrow and machine.timing.scalar_wide_16bit else 1))


@cost_rule("activation", "activation_reduce", "activate2")
def activation(instruction: Instruction, machine: Machine) -> Cost:
    """One element a cycle; scale, bias and the running sum are free, reading the sum is not (A1).

    activate2 is taken to be alike: its cost is not published.
    """
    reads_sum = len(instruction.writes) > 1
    function = str(instruction.option("op"))
    return scalar_cost(
        machine,
        streamed_elems(instruction, machine),
        table=None if function in _EVERY_TABLE else function,
        extra_cycles=machine.timing.accumulator_read_cycles if reads_sum else 0.0,
    )

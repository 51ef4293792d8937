"""Cost: what one instruction asks of its engine; and the registry of rules that say so.

A rule is a pure function of (Instruction, Machine). It never sees a clock or a neighbour: waiting,
warm-up and table loads are the schedule's business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nkisim.errors import UnsupportedError
from nkisim.machine import Machine
from nkisim.trace import Access, Instruction


@dataclass(frozen=True)
class Transfer:
    """The data part of a DMA: equal descriptors, and the engines they go to."""

    descriptors: int
    ns_each: float
    engines: int  # how many of the DMA engines share the work
    bytes_total: int


@dataclass(frozen=True)
class Cost:
    """What one instruction takes, in ns.

    While `busy_ns` its engine takes no other instruction; after `latency_ns` from its start another
    engine may read the result (never before the engine is done with it).
    """

    busy_ns: float
    latency_ns: float
    weight_load_ns: float = 0.0  # Tensor engine: hidden behind the matmul before
    gap_ns: float = 0.0  # Tensor engine: between two matmuls
    tiles: tuple[int, int] = (0, 0)  # Tensor engine: (first, end) of the array parts it occupies
    table: str | None = None  # Scalar engine: the function table it needs
    transfer: Transfer | None = None  # DMA: busy_ns is then the issuing queue's
    flops: int = 0


Rule = Callable[[Instruction, Machine], Cost]
RULES: dict[str, Rule] = {}


def cost_rule(*ops: str) -> Callable[[Rule], Rule]:
    """Register the rule of one or more instructions."""

    def register(rule: Rule) -> Rule:
        for op in ops:
            if op in RULES:
                raise ValueError(f"{op} has two cost rules")
            RULES[op] = rule
        return rule

    return register


def cost_of(instruction: Instruction, machine: Machine) -> Cost:
    """The cost of one instruction on one machine."""
    rule = RULES.get(instruction.op)
    if rule is None:
        raise UnsupportedError(
            f"no cost rule for {instruction.op}",
            instruction="timing",
            limit=f"rules exist for {', '.join(sorted(RULES))}",
            remedy="add a rule with its source under nkisim/timing/costs",
        )
    return rule(instruction, machine)


def full_size(instruction: Instruction) -> list[Access]:
    """Operands with as many elements per partition as the largest one."""
    operands = [*instruction.writes, *instruction.reads]
    most = max(access.layout.elems for access in operands)
    return [access for access in operands if access.layout.elems == most]


def most_elems(instruction: Instruction) -> int:
    """Elements per partition of the largest operand."""
    return max(a.layout.elems for a in (*instruction.writes, *instruction.reads))


def stride_factor(instruction: Instruction, machine: Machine) -> int:
    """2 where an operand's innermost stride is too wide to be read at full rate, else 1 (A1)."""
    for access in full_size(instruction):
        layout = access.layout
        if layout.free:
            stride_bytes = abs(layout.free[-1][0]) * layout.itemsize_bytes
            if stride_bytes > machine.timing.wide_stride_bytes:
                return 2
    return 1

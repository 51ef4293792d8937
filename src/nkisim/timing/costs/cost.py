"""Cost: what one instruction asks of its engine; and the registry of rules that say so.

A rule is a pure function of (Instruction, Machine). It never sees a clock or a neighbour: waiting,
warm-up and table loads are the schedule's business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from nkisim.enums import engine
from nkisim.errors import UnsupportedError
from nkisim.machine import Machine
from nkisim.memory.layout import MemoryRegion
from nkisim.trace import Access, Instruction


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """The data part of a DMA: equal descriptors, and the engines they go to."""

    direction: str  # transfers of one direction keep their order
    descriptors: int
    ns_each: float
    engines: int  # how many of the DMA engines share the work
    hbm_bytes: int  # read from and written to HBM
    start_ns: float  # from the end of the issue to the first byte
    done_ns: float  # from the last byte to whoever waits for it


@dataclass(frozen=True)
class Cost:
    """What one instruction takes, in ns.

    While `busy_ns` its engine takes no other instruction; after `latency_ns` from its start another
    engine may read the result (never before the engine is done with it).
    """

    busy_ns: float
    latency_ns: float
    weight_load_ns: float = 0.0  # Tensor engine: hidden behind the matmul before
    weight_slot_ns: float = 0.0  # Tensor engine: from its start until the next weights may load
    gap_ns: float = 0.0  # Tensor engine: between two matmuls
    array_share: float = 1.0  # Tensor engine: the part of the array whose cells work
    cells: tuple[int, ...] = ()  # Tensor engine: the parts of the array it occupies; none: all
    table: str | None = None  # Scalar engine: the function table it needs
    psum: bool = False  # Vector and Scalar engine: it holds a port to PSUM that both share
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
    cost = rule(instruction, machine)
    if machine.timing.psum_port_shared and _holds_psum_port(instruction):
        cost = replace(cost, psum=True)
    return cost


def _holds_psum_port(instruction: Instruction) -> bool:
    operands = (*instruction.writes, *instruction.reads)
    in_psum = any(access.layout.region is MemoryRegion.psum for access in operands)
    return in_psum and instruction.engine in (engine.vector, engine.scalar)


def most_elems(instruction: Instruction) -> int:
    """Elements per partition of the largest operand."""
    return max(access.layout.elems for access in (*instruction.writes, *instruction.reads))


def full_size(instruction: Instruction) -> list[Access]:
    """Operands with as many elements per partition as the largest one."""
    most = most_elems(instruction)
    operands = (*instruction.writes, *instruction.reads)
    return [access for access in operands if access.layout.elems == most]


def innermost_stride_bytes(access: Access) -> int:
    """Distance between neighbours in the access pattern of one partition."""
    layout = access.layout
    return abs(layout.free[-1][0]) * layout.itemsize_bytes if layout.free else 0


def stride_factor(instruction: Instruction, machine: Machine) -> int:
    """2 where an operand's innermost stride is too wide to be read at full rate, else 1 (A1)."""
    widest = max(innermost_stride_bytes(access) for access in full_size(instruction))
    return 2 if widest > machine.timing.wide_stride_bytes else 1


def streamed_elems(instruction: Instruction, machine: Machine) -> int:
    """Elements per partition, counted twice where the stride is too wide."""
    return most_elems(instruction) * stride_factor(instruction, machine)

"""DMA: descriptors from the two access patterns, and what issuing them costs (A1, BW, DGE, KO)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import lcm

from nkisim.enums import dge_mode
from nkisim.machine import V4, Machine
from nkisim.memory.layout import Layout
from nkisim.timing.costs.cost import Cost, Transfer, cost_rule
from nkisim.trace import Access, Instruction

PREBUILT = "none"  # the mode in which descriptors are written before the kernel starts


@dataclass(frozen=True)
class Moving:
    """How the data of a transfer moves: at which part of the rate, by which descriptors."""

    rate: float = 1.0
    prebuilt: bool = False


MOVING = Moving()


def run_elems(layout: Layout) -> int:
    """Elements that follow each other in memory at the innermost level of one side."""
    if not layout.free:
        return 1
    stride, count = layout.free[-1]
    return count if stride == 1 else 1


def descriptor_count(dst: Layout, src: Layout) -> int:
    """Runs that are contiguous on both sides: a new one begins where one begins on either."""
    elems = dst.partitions * dst.elems
    ours, theirs = run_elems(dst), run_elems(src)
    both = lcm(ours, theirs)
    return -(-elems // ours) + -(-elems // theirs) - -(-elems // both)


def direction_of(dst: Layout, src: Layout) -> str:
    """Transfers of one direction share a queue."""
    if dst.on_chip:
        return "within SBUF" if src.on_chip else "load"
    return "store" if src.on_chip else "within HBM"


def transfer_of(dst: Access, src: Access, machine: Machine, how: Moving = MOVING) -> Transfer:
    """A plain copy: every descriptor moves its share of the wider side's bytes."""
    descriptors = descriptor_count(dst.layout, src.layout)
    total = max(dst.bytes_total, src.bytes_total)
    if not dst.layout.on_chip and not src.layout.on_chip:
        packets = -(-total // machine.timing.dma_packet_bytes)
        descriptors = max(descriptors, min(machine.timing.dma_engines, packets))
    return _transfer((dst, src), machine, descriptors, total / descriptors, how)


def _transfer(
    sides: tuple[Access, Access], machine: Machine, descriptors: int, bytes_each: float, how: Moving
) -> Transfer:
    timing = machine.timing
    moving = bytes_each / how.rate / timing.dma_bytes_per_ns
    floor = timing.dma_ring_floor_ns if how.prebuilt else timing.dma_descriptor_floor_ns
    dst, src = (side.layout for side in sides)
    return Transfer(
        direction=direction_of(dst, src),
        descriptors=descriptors,
        ns_each=max(floor, moving) + timing.dma_descriptor_overhead_ns,
        engines=_engines(dst, src, descriptors, machine),
        hbm_bytes=sum(side.bytes_total for side in sides if not side.layout.on_chip),
        start_ns=timing.dma_start_ns,
        done_ns=timing.dma_done_ns,
    )


def _engines(dst: Layout, src: Layout, descriptors: int, machine: Machine) -> int:
    """How many DMA engines take part; read one way, each serves a few partitions only."""
    timing = machine.timing
    most = min(timing.dma_engines, descriptors)
    on_chip = [side.partitions for side in (dst, src) if side.on_chip]
    if not timing.dma_partition_bound or not on_chip:
        return most
    return min(most, -(-max(on_chip) // timing.dma_partitions_per_engine))


def _mode(instruction: Instruction, machine: Machine, *, gathers: bool) -> str:
    """Who writes the descriptors: the mode asked for, or what the compiler is taken to choose.

    Descriptors written before the kernel starts have fixed addresses: a hardware loop cannot use
    them (DFA), nor an offset that is data. Only software gathers.
    """
    asked = instruction.option("dge_mode", dge_mode.unknown)
    name = machine.timing.dma_default_mode if asked is dge_mode.unknown else str(asked.name)
    operands = (*instruction.writes, *instruction.reads)
    moves = instruction.loop >= 0 or any(access.anywhere for access in operands)
    return "swdge" if gathers or (name == PREBUILT and moves) else name


def _issue_ns(mode: str, machine: Machine) -> float:
    """What the triggering queue spends on one DMA (DGE)."""
    timing = machine.timing
    if mode == PREBUILT:
        return timing.dma_issue_static_ns
    return timing.dma_issue_swdge_ns if mode == "swdge" else timing.dma_issue_hwdge_ns


def _cost(transfer: Transfer, mode: str, machine: Machine) -> Cost:
    issue = _issue_ns(mode, machine)
    return Cost(busy_ns=issue, latency_ns=issue, transfer=transfer)


def _copy_mode(instruction: Instruction, machine: Machine) -> str:
    """What is read beside the source is an index; one of several numbers makes a gather."""
    indices = (access.layout for access in instruction.reads[1:])
    gathers = any(index.partitions * index.elems > 1 for index in indices)
    return _mode(instruction, machine, gathers=gathers)


@cost_rule("dma_copy")
def copy(instruction: Instruction, machine: Machine) -> Cost:
    """Plain copies, casts and gathers."""
    mode = _copy_mode(instruction, machine)
    how = Moving(prebuilt=mode == PREBUILT)
    transfer = transfer_of(instruction.writes[0], instruction.reads[0], machine, how)
    return _cost(transfer, mode, machine)


@cost_rule("dma_transpose")
def transpose(instruction: Instruction, machine: Machine) -> Cost:
    """A copy at 90 % of the rate from HBM, 50 % from SBUF (A2); a descriptor a partition.

    Four-byte types are slower (TB).
    """
    timing = machine.timing
    dst, src = instruction.writes[0], instruction.reads[0]
    rate = timing.dma_transpose_sbuf_rate if src.layout.on_chip else timing.dma_transpose_rate
    if dst.layout.itemsize_bytes == 4:
        rate *= timing.dma_transpose_4_byte_rate
    rows = max(dst.layout.partitions, src.layout.partitions)
    mode = _copy_mode(instruction, machine)
    how = Moving(rate, prebuilt=mode == PREBUILT)
    return _cost(_transfer((dst, src), machine, rows, dst.bytes_total / rows, how), mode, machine)


@cost_rule("dma_compute")
def compute(instruction: Instruction, machine: Machine) -> Cost:
    """A copy of every source, at half rate before NeuronCore-v4 (A2).

    Descriptors are written in advance, or by software if one source is gathered (ISA).
    """
    rate = 1.0 if machine.generation >= V4 else machine.timing.dma_compute_rate
    dst, gathers = instruction.writes[0], bool(instruction.option("indirect"))
    sources = instruction.reads[: 2 if gathers else None]  # what follows two is their index
    copies = [transfer_of(dst, source, machine, Moving(rate)) for source in sources]
    descriptors = sum(source_copy.descriptors for source_copy in copies)
    transfer = replace(
        copies[0],
        descriptors=descriptors,
        ns_each=sum(source_copy.descriptors * source_copy.ns_each for source_copy in copies)
        / descriptors,
        engines=max(source_copy.engines for source_copy in copies),
        hbm_bytes=sum(s.bytes_total for s in (dst, *sources) if not s.layout.on_chip),
    )
    moves = instruction.loop >= 0 or any(access.anywhere for access in instruction.reads)
    return _cost(transfer, "swdge" if gathers or moves else PREBUILT, machine)

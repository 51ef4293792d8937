"""DMA: descriptors from the two access patterns, and what issuing them costs (A1, BW, DGE, KO)."""

from __future__ import annotations

from nkisim.enums import dge_mode
from nkisim.layout import Layout, MemoryRegion
from nkisim.machine import V4, Machine
from nkisim.timing.costs.cost import Cost, Transfer, cost_rule
from nkisim.trace import Access, Instruction

_HBM = (MemoryRegion.private_hbm, MemoryRegion.shared_hbm)


def contiguous_run_bytes(layout: Layout) -> int:
    """Bytes that follow each other in memory at the innermost level of one side of a transfer."""
    if not layout.free:
        return layout.itemsize_bytes
    stride, count = layout.free[-1]
    return layout.itemsize_bytes * (count if stride == 1 else 1)


def transfer_of(dst: Access, src: Access, machine: Machine, rate: float = 1.0) -> Transfer:
    """One descriptor per run that is contiguous on both sides."""
    timing = machine.timing
    elems = dst.layout.partitions * dst.layout.elems
    run = min(contiguous_run_bytes(dst.layout), contiguous_run_bytes(src.layout))
    element = max(dst.layout.itemsize_bytes, src.layout.itemsize_bytes)
    run = max(run, min(dst.layout.itemsize_bytes, src.layout.itemsize_bytes))
    total = elems * element
    descriptors = max(
        1, -(-elems * min(dst.layout.itemsize_bytes, src.layout.itemsize_bytes) // run)
    )
    each_bytes = total / descriptors
    moving = each_bytes / (timing.dma_bytes_per_ns * rate)
    each = max(timing.dma_descriptor_floor_ns, moving) + timing.dma_descriptor_overhead_ns
    return Transfer(descriptors, each, _engines(dst, src, descriptors, machine), total)


def _engines(dst: Access, src: Access, descriptors: int, machine: Machine) -> int:
    timing = machine.timing
    if not timing.dma_partition_bound:
        return min(timing.dma_engines, descriptors)
    partitions = max(dst.layout.partitions, src.layout.partitions)
    served = -(-partitions // timing.dma_partitions_per_engine)
    return max(1, min(timing.dma_engines, served))


def issue_ns(instruction: Instruction, machine: Machine) -> float:
    """What the triggering queue spends on one DMA, by who writes the descriptors (DGE)."""
    timing = machine.timing
    mode = instruction.option("dge_mode", dge_mode.unknown)
    name = timing.dma_default_mode if mode is dge_mode.unknown else mode.name
    gathered = len(instruction.reads) > 1
    if gathered or name == "swdge":
        return timing.dma_issue_swdge_ns
    return timing.dma_issue_static_ns if name == "none" else timing.dma_issue_hwdge_ns


def _dma_cost(instruction: Instruction, machine: Machine, rate: float = 1.0) -> Cost:
    transfer = transfer_of(instruction.writes[0], instruction.reads[0], machine, rate)
    busy = issue_ns(instruction, machine)
    return Cost(busy_ns=busy, latency_ns=busy, transfer=transfer)


@cost_rule("dma_copy")
def copy(instruction: Instruction, machine: Machine) -> Cost:
    """Plain copies, casts and gathers."""
    return _dma_cost(instruction, machine)


@cost_rule("dma_transpose")
def transpose(instruction: Instruction, machine: Machine) -> Cost:
    """A copy at 90 % of the rate from HBM, 50 % from SBUF (A2); descriptors as of a tiled copy."""
    timing = machine.timing
    src, dst = instruction.reads[0], instruction.writes[0]
    from_hbm = src.layout.region in _HBM
    rate = timing.dma_transpose_rate if from_hbm else timing.dma_transpose_sbuf_rate
    rows = max(src.layout.partitions, dst.layout.partitions)
    total = dst.bytes_total
    each = total / rows / (timing.dma_bytes_per_ns * rate) + timing.dma_descriptor_overhead_ns
    each = max(each, timing.dma_descriptor_floor_ns)
    transfer = Transfer(rows, each, _engines(dst, src, rows, machine), total)
    busy = issue_ns(instruction, machine)
    return Cost(busy_ns=busy, latency_ns=busy, transfer=transfer)


@cost_rule("dma_compute")
def compute(instruction: Instruction, machine: Machine) -> Cost:
    """A copy at half rate before NeuronCore-v4 (A2)."""
    rate = 1.0 if machine.generation >= V4 else machine.timing.dma_compute_rate
    return _dma_cost(instruction, machine, rate)

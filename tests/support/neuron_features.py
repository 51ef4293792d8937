"""What a kernel did, read off its traces: the things that a device may not take."""

from nkisim.memory.layout import HBM, MemoryRegion
from nkisim.trace import Loop


def instructions(run):
    return [instruction for trace in run.traces for instruction in trace.instructions()]


def loops(items):
    for item in items:
        if isinstance(item, Loop):
            yield item
            yield from loops(item.body)


def has_loop(run):
    return any(True for trace in run.traces for _ in loops(trace.items))


def longest_loop(run):
    return max((loop.trips or 0 for trace in run.traces for loop in loops(trace.items)), default=0)


def psum_in_loop(run):
    return any(
        instruction.loop >= 0
        for instruction in instructions(run)
        for access in instruction.writes
        if access.allocation.region is MemoryRegion.psum
    )


def _accesses(run):
    return [a for one in instructions(run) for a in (*one.writes, *one.reads)]


def counted_offsets(run):
    """Operands that move with the counter of a loop, or by data."""
    return any(access.step or access.anywhere for access in _accesses(run))


def loaded_offsets(run):
    return any(access.anywhere for access in _accesses(run))


def sbuf_in_two_loops(run):
    held = {}
    for one in instructions(run):
        for access in (*one.writes, *one.reads):
            if access.allocation.region is MemoryRegion.sbuf and one.loop >= 0:
                held.setdefault(id(access.allocation), set()).add(one.loop)
    return any(len(found) > 1 for found in held.values())


def _copies_onto_itself(one):
    return one.op == "dma_copy" and one.writes[0].allocation is one.reads[0].allocation


def loop_stores(run):
    """For each trace with a loop that stores to HBM: whether a fence follows the last store."""
    for trace in run.traces:
        listed = list(trace.instructions())
        stores = [
            at
            for at, one in enumerate(listed)
            if one.loop >= 0 and any(a.allocation.region in HBM for a in one.writes)
        ]
        if stores:
            yield any(_copies_onto_itself(one) for one in listed[stores[-1] + 1 :])


def unfenced(run):
    return any(not fenced for fenced in loop_stores(run))


def fenced(run):
    return any(loop_stores(run))


def fixed_addresses(run):
    return any(
        access.allocation.region is MemoryRegion.sbuf
        and access.allocation.address_bytes is not None
        for access in _accesses(run)
    )


def fixed_and_written_again(run):
    written = set()
    for one in instructions(run):
        for access in one.writes:
            place = access.allocation
            if place.region is MemoryRegion.sbuf and place.address_bytes is not None:
                key = (id(place), access.byte_interval, access.start_partition)
                if key in written:
                    return True
                written.add(key)
    return False


def strided_eviction(run):
    """An engine that writes sums to columns with a step between them."""
    for one in instructions(run):
        reads = any(a.allocation.region is MemoryRegion.psum for a in one.reads)
        if one.engine.name == "tensor" or not reads:
            continue
        for access in one.writes:
            if access.allocation.region is MemoryRegion.sbuf and access.layout.free:
                step, _ = access.layout.free[-1]
                if step > 1 and access.layout.shape[-1] > 1:
                    return True
    return False


def psum_in_place(run):
    for one in instructions(run):
        if one.engine.name == "tensor":
            continue
        read = {id(a.allocation) for a in one.reads if a.allocation.region is MemoryRegion.psum}
        if any(id(access.allocation) in read for access in one.writes):
            return True
    return False


def growing_bank(run):
    """A PSUM tensor that an engine reads, and a matmul then adds to."""
    read = set()
    for one in instructions(run):
        if one.op == "nc_matmul":
            place = id(one.writes[0].allocation)
            if one.option("accumulate") and place in read:
                return True
            if not one.option("accumulate"):
                read.discard(place)
        else:
            read |= {
                id(a.allocation) for a in one.reads if a.allocation.region is MemoryRegion.psum
            }
    return False


def five_dimensions(run):
    return any(
        len(access.layout.free) > 4
        for one in instructions(run)
        if one.op == "dma_copy"
        for access in (*one.writes, *one.reads)
        if access.allocation.region in HBM
    )


def transposing_dma(run):
    return any(one.op == "dma_transpose" for one in instructions(run))


def loads_ahead(run):
    """A tile whose load stands before a store that stands before its first use."""
    for trace in run.traces:
        waiting, overtaken = set(), set()
        for one in trace.instructions():
            if any(id(access.allocation) in overtaken for access in one.reads):
                return True
            for access in one.reads:
                waiting.discard(id(access.allocation))
            into = one.writes[0].allocation if one.writes else None
            if one.op.startswith("dma") and into is not None:
                if into.region is MemoryRegion.sbuf:
                    waiting.add(id(into))
                elif into.region in HBM:
                    overtaken |= waiting
    return False


def programs_differ(run):
    def shape(trace):
        return [
            (one.op, [a.offset for a in (*one.writes, *one.reads)]) for one in trace.instructions()
        ]

    return len(run.traces) > 1 and shape(run.traces[0]) != shape(run.traces[1])

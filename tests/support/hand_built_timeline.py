"""Timelines written down by hand, for the tests of reports: every time in them is known."""

from dataclasses import replace

from nkisim.enums import engine
from nkisim.machine import TRN2, Reading
from nkisim.memory.allocation import Allocation
from nkisim.memory.layout import MemoryRegion, layout_of
from nkisim.memory.placement import MemoryUse
from nkisim.timing.timeline import DRAINED, Elision, Events, Timeline
from nkisim.trace import Access, Instruction

SBUF, PSUM, HBM = MemoryRegion.sbuf, MemoryRegion.psum, MemoryRegion.private_hbm
SHAPE = (128, 512)
TABLE_LOAD_NS = 1300.0  # of the Scalar engine
# As trn2, with the numbers that reports depend on held fast.
TIMING = replace(TRN2.timing, table_load_ns=TABLE_LOAD_NS, pe_ghz=2.4)
MACHINE = replace(TRN2, timing=TIMING)
MEMORY = MemoryUse(sbuf_peak_bytes_per_partition=4096, psum_peak_banks=2, hbm_bytes=0)


def tensor(name, region):
    """A whole tensor of 128 x 512 float32 as an operand."""
    layout = layout_of(region, "float32", SHAPE, (SHAPE[1], 1))
    row_bytes = 4 * SHAPE[1] * (1 if layout.on_chip else SHAPE[0])
    allocation = Allocation(0, name, region, SHAPE[0] if layout.on_chip else 1, row_bytes)
    return Access(allocation, layout, 0)


class Rows:
    """Events in the making: `add` appends an instruction with its times in ns."""

    def __init__(self):
        self.events = Events()

    def add(self, what, times, operands, cause=-1, *, options=(), loop=-1, index=None, name=None):
        """`what` is (engine, op), `times` (start, end), `operands` (written, read, ...)."""
        where, op = what
        row = len(self.events)
        written, *read = operands
        instruction = Instruction(
            row if index is None else index, op, where, (written,), tuple(read), options, name
        )
        instruction.loop = loop
        self.events.instructions.append(instruction)
        self.events.start_ns.append(times[0])
        for column in (self.events.busy_end_ns, self.events.released_ns, self.events.visible_ns):
            column.append(times[1])
        self.events.cause.append(cause)
        return row

    def timeline(self, makespan_ns, busy_ns, elisions=(), **facts):
        """The timeline of what was added, on trn2 in its default reading."""
        known = {
            "machine": MACHINE,
            "constants_version": "1",
            "reading": Reading.default,
            "launch_ns": 10_000.0,
            "flops": 0,
            "hbm_bytes": 1_000_000,
            "static_instructions": len(self.events),
            "compiler_instructions": len(self.events),
            "executed_instructions": len(self.events),
            "memory": MEMORY,
        }
        return Timeline(
            makespan_ns=makespan_ns,
            busy_ns=busy_ns,
            events=self.events,
            elisions=elisions,
            **{**known, **facts},
        )


LOAD = (engine.dma, "dma_copy")
STORE = LOAD
MATMUL = (engine.tensor, "nc_matmul")
COPY = (engine.vector, "tensor_copy")
ADD = (engine.vector, "tensor_tensor")
EXP = (engine.scalar, "activation")


def pipeline():
    """Two loads, three matmuls, an eviction, an exponential and a store; 7,300 ns.

    The loads overlap: the second is issued at 500 and occupies its lane from 2,000 on.
    """
    x, y, out = tensor("x", HBM), tensor("y", HBM), tensor("out", HBM)
    x_tile, y_tile, result = tensor("x_tile", SBUF), tensor("y_tile", SBUF), tensor("result", SBUF)
    total = tensor("total", PSUM)
    rows = Rows()
    rows.add(LOAD, (0, 2000), (x_tile, x))
    rows.add(LOAD, (500, 3000), (y_tile, y))
    rows.add(MATMUL, (3100, 3500), (total, x_tile, y_tile), cause=1)
    rows.add(MATMUL, (3510, 3910), (total, x_tile, y_tile))
    rows.add(COPY, (4100, 4600), (result, total), cause=3, name="evict")
    rows.add(MATMUL, (4700, 5000), (total, x_tile, y_tile), cause=4)
    rows.add(EXP, (4100, 4400), (result, total), cause=3, options=(("op", "exp"),))
    rows.add(STORE, (4700, 7000), (out, result), cause=4)
    busy = {
        "tensor": 1100.0,
        "vector": 500.0,
        "scalar": 300.0 + TABLE_LOAD_NS,
        "gpsimd": 0.0,
        "sync": 0.0,
        "dma": 900.0,
        "dma issue": 1650.0,
    }
    return rows.timeline(7300.0, busy, flops=3 * 2 * 128 * 128 * 512)


def looped():
    """A loop of ten iterations of 6,000 ns, three of them scheduled, then a store; 60,000 ns.

    An iteration works for 700 ns, then the loop branches back.
    """
    x, tile, out = tensor("x", HBM), tensor("tile", SBUF), tensor("out", HBM)
    rows = Rows()
    for start in (0, 6000, 12_000):
        rows.events.barriers.append((len(rows.events), float(start)))
        load = rows.add(LOAD, (start, start + 500), (tile, x), loop=0, index=0)
        rows.add(ADD, (start + 600, start + 700), (tile, tile), load, loop=0, index=1)
    rows.events.barriers.append((len(rows.events), 59_000.0))
    rows.add(STORE, (59_000, 59_900), (out, tile), cause=DRAINED, index=2)
    busy = {"tensor": 0.0, "vector": 1000.0, "scalar": 0.0, "dma": 400.0, "dma issue": 900.0}
    elision = Elision(17_000.0, 42_000.0, 7, 6000.0, 4, 6)
    facts = {"static_instructions": 3, "compiler_instructions": 3, "executed_instructions": 21}
    return rows.timeline(60_000.0, busy, (elision,), **facts)


def many(count, *, busy_ns=6.0, period_ns=10.0):
    """`count` equal additions, one every `period_ns`."""
    tile = tensor("tile", SBUF)
    rows = Rows()
    for number in range(count):
        start = number * period_ns
        rows.add(ADD, (start, start + busy_ns), (tile, tile))
    return rows.timeline(count * period_ns, {"vector": count * busy_ns})

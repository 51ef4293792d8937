"""How reports name lanes, instructions, operands and times."""

from __future__ import annotations

from nkisim.enums import engine
from nkisim.memory.layout import ON_CHIP
from nkisim.timing.timeline import Events
from nkisim.trace import Access, Instruction

DMA_LANES = {
    (False, True): "dma loads",
    (True, False): "dma stores",
    (False, False): "dma in hbm",
    (True, True): "dma on chip",
}  # by (from the chip, to the chip)
LANES = ("tensor", "vector", "scalar", "gpsimd", "sync", *DMA_LANES.values())
TABLE_LOAD = "function table load"

_NS_PER_US = 1e3
_NS_PER_MS = 1e6


def lane_name(instruction: Instruction) -> str:
    """The engine an instruction runs on; of a DMA, its direction."""
    if instruction.engine is not engine.dma:
        return instruction.engine.name
    from_chip = instruction.reads[0].layout.region in ON_CHIP
    to_chip = instruction.writes[0].layout.region in ON_CHIP
    return DMA_LANES[from_chip, to_chip]


def title(events: Events, row: int) -> str:
    """One instruction in a few words: "nc_matmul #17 (sums)", the tensor being its result."""
    instruction = events.instructions[row]
    label = instruction.op if instruction.name is None else f"{instruction.op} {instruction.name}"
    written = instruction.writes[0].allocation.label if instruction.writes else "no result"
    return f"{label} #{row} ({written})"


def operand(access: Access) -> str:
    """A tensor and the part of it that is used: "tile[128, 512] bfloat16 (sbuf_3)"."""
    shape = ", ".join(str(size) for size in access.layout.shape)
    label, name = access.allocation.label, access.allocation.name
    return f"{label}[{shape}] {access.layout.dtype}" + ("" if label == name else f" ({name})")


def waited_for(events: Events, row: int) -> str:
    """The kind of work that a row is, as others wait for it: "dma loads", "vector tensor_copy"."""
    instruction = events.instructions[row]
    lane = lane_name(instruction)
    return lane if instruction.engine is engine.dma else f"{lane} {instruction.op}"


def time_text(ns: float) -> str:
    """A time in the unit that suits it: "812.0 ns", "238.15 us", "16.036 ms"."""
    if ns < _NS_PER_US:
        return f"{ns:.1f} ns"
    if ns < _NS_PER_MS:
        return f"{ns / _NS_PER_US:,.2f} us"
    return f"{ns / _NS_PER_MS:,.3f} ms"

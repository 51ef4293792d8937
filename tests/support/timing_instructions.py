"""Instructions put together by hand: a timing test sees one operand pattern and no kernel."""

from itertools import count
from math import prod

from nkisim.enums import engine
from nkisim.machine import Reading, find_machine
from nkisim.memory.allocation import Allocation
from nkisim.memory.layout import ON_CHIP, MemoryRegion, layout_of
from nkisim.numerics import dtypes
from nkisim.timing.costs import cost_of
from nkisim.trace import Access, Instruction, Loop, Trace

SBUF, PSUM, HBM = MemoryRegion.sbuf, MemoryRegion.psum, MemoryRegion.private_hbm
_numbers = count()


def tensor(shape, dtype="float32", region=SBUF, *, place=None):
    """A tensor of its own: (partitions, free...) on chip, anything in HBM."""
    number = next(_numbers)
    size = dtypes.itemsize_bytes(dtype)
    partitions = shape[0] if region in ON_CHIP else 1
    row_bytes = prod(shape) * size // partitions
    return Allocation(number, f"t{number}", region, partitions, row_bytes, place)


def row_major(shape):
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def view(allocation, shape, dtype="float32", *, strides=None, offset=0, step=0, loop=-1):
    """Elements of a tensor; `strides` of the free dimensions on chip, of all of them in HBM."""
    if allocation.region in ON_CHIP:
        pitch = allocation.bytes_per_partition // dtypes.itemsize_bytes(dtype)
        strides = (pitch, *(row_major(shape[1:]) if strides is None else strides))
    elif strides is None:
        strides = row_major(shape)
    layout = layout_of(allocation.region, dtype, tuple(shape), tuple(strides))
    return Access(allocation, layout, offset, step, loop)


def whole(shape, dtype="float32", region=SBUF):
    """All of a fresh tensor."""
    return view(tensor(shape, dtype, region), shape, dtype)


def strided(shape, dtype, stride, region=SBUF):
    """A [P, N] view of a fresh tensor with a stride along N."""
    partitions, elems = shape
    room = tensor((partitions, elems * abs(stride)), dtype, region)
    return view(room, shape, dtype, strides=(stride,))


def instruction(op, where, writes, reads=(), /, *, index=0, loop=-1, **options):
    made = Instruction(index, op, where, tuple(writes), tuple(reads), tuple(options.items()), None)
    made.loop = loop
    return made


def cost(op, where, writes, reads=(), /, *, machine="trn2", reading=Reading.default, **options):
    """The cost of one instruction."""
    chosen = find_machine(machine).read(reading)
    return cost_of(instruction(op, where, writes, reads, **options), chosen)


def trace_of(*instructions):
    """A trace of instructions and loops, numbered in program order."""
    trace = Trace(items=list(instructions))
    for index, one in enumerate(trace.instructions()):
        one.index = index
    return trace


def loop_of(trips, *body, number=0):
    """A hardware loop around a body."""
    made = Loop(number, trips, 1, 0, list(body))
    for one in Trace(items=list(body)).instructions():
        one.loop = number
    return made


__all__ = [
    "HBM",
    "PSUM",
    "SBUF",
    "cost",
    "engine",
    "instruction",
    "loop_of",
    "strided",
    "tensor",
    "trace_of",
    "view",
    "whole",
]

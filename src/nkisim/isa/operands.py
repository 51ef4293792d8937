"""Reading and writing operands as NumPy arrays, and the handle an instruction returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nkisim.errors import refuse
from nkisim.numerics import dtypes
from nkisim.running.session import current
from nkisim.tensors.indirection import read_held, write_held
from nkisim.tensors.registers import NKIObject, RunTimeValue
from nkisim.tensors.tensor import FreeIndex, VectorOffset

if TYPE_CHECKING:
    from nkisim.tensors.tensor import NkiTensor
    from nkisim.trace import Instruction

Array = np.ndarray[Any, Any]

__all__ = [
    "NkiInstruction",
    "floats",
    "held",
    "index_tensors",
    "rows",
    "store_floats",
    "store_held",
]


class NkiInstruction(NKIObject):
    """Handle of an issued instruction, for ordering it after others."""

    __slots__ = ("handle",)

    def __init__(self, handle: Instruction) -> None:
        self.handle = handle

    def depends_on(self, *producers: NkiInstruction) -> NkiInstruction:
        """Run after every one of `producers`; no edge leads out of a dynamic loop."""
        around = (-1, self.handle.loop, *current().loops_around())
        for producer in producers:
            if not isinstance(producer, NkiInstruction) or producer is self:
                refuse(
                    "depends_on",
                    f"{self.handle.op} waits for {'itself' if producer is self else producer}",
                    "an instruction waits for other instructions",
                    "pass what another nisa call returned",
                )
            if producer.handle.loop not in around:
                refuse(
                    "depends_on",
                    f"{self.handle.op} waits for {producer.handle.op} inside a dynamic loop",
                    "an edge may not leave a dynamic loop",
                    "put both instructions into the same loop",
                )
        self.handle.after += tuple(producer.handle.index for producer in producers)
        return self


def held(tensor: NkiTensor) -> Array:
    """Held values in the view's shape; may share memory with the tensor."""
    return read_held(tensor)


def floats(tensor: NkiTensor) -> Array:
    """The view as float32, in the view's shape; may share memory with the tensor."""
    return dtypes.to_float32(read_held(tensor), tensor.dtype)


def rows(tensor: NkiTensor) -> Array:
    """The view as float32 [partitions, elements], free dimensions flattened row-major."""
    return floats(tensor).reshape(tensor.shape[0], -1)


def store_floats(tensor: NkiTensor, values: Array) -> None:
    """Cast float32 results to the tensor's dtype, once, and write them."""
    precise = tensor.storage.precise
    write_held(tensor, dtypes.from_float32(values, tensor.dtype, precise=precise))


def store_held(tensor: NkiTensor, values: Array) -> None:
    """Write held values of the tensor's own dtype: a bit-exact copy."""
    write_held(tensor, values)


def index_tensors(*operands: NkiTensor) -> tuple[NkiTensor, ...]:
    """Tensors whose values are part of an operand's address: the instruction reads them as well."""
    found: list[NkiTensor] = []
    for operand in operands:
        indirection = operand.indirection
        if isinstance(indirection, VectorOffset):
            found.append(indirection.rows)
        elif isinstance(indirection, FreeIndex):
            found.append(indirection.index)
        elif indirection is not None and not isinstance(indirection.source, RunTimeValue):
            found.append(indirection.source)
    return tuple(found)

"""Step: an operator of torch that a model ran, and whose results it read."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

POINTWISE, REDUCTION, PRODUCT, SOFTMAX, NORM, MOVEMENT, FILL, ATTENDING, CONVOLUTION = (
    "pointwise",
    "reduction",
    "product",
    "softmax",
    "norm",
    "movement",
    "fill",
    "attention",  # a kernel of ours
    "convolution",  # one of our kernels; so is a norm that has no name of ATen's
)


@dataclass(frozen=True)
class Operand:
    """A tensor that a step reads: which memory it lies in, and what it shows of it."""

    memory: int  # equal numbers: written by the same step, or by nobody that was seen
    shape: tuple[int, ...]
    read_bytes: int  # elements that stand for several are read once


@dataclass(frozen=True)
class Step:
    """One operator. Views are none: they move nothing."""

    name: str  # of ATen, without its namespace
    role: str
    module: str
    operands: tuple[Operand, ...]
    memory: int  # of the result
    shape: tuple[int, ...]
    dtype: str
    written_bytes: int
    groups: int = 1  # of channels, for a norm
    activation: str = ""  # likewise: what the same kernel does behind it
    sizes: tuple[int, ...] = ()  # of a modulation or an attention, as its Operation has them

    @property
    def read_bytes(self) -> int:
        """All operands; one that is given twice is read once."""
        seen = {(operand.memory, operand.shape): operand.read_bytes for operand in self.operands}
        return sum(seen.values())

    @property
    def elements(self) -> int:
        """Of the result."""
        return prod(self.shape)

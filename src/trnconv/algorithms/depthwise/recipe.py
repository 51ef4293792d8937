"""The instructions of a depthwise kernel as data, in NKI's own value types."""

from __future__ import annotations

from dataclasses import dataclass

from trnconv._nki import NKIObject
from trnconv.algorithms.digest import digest_of

# What a step does; `w` is a column of the filters, `b` another: one number for each line.
LOAD = "load"  # dst = data, by DMA
STORE = "store"  # dst = data, by DMA
BEGIN = "begin"  # dst = data * w + b, Scalar engine
FILL = "fill"  # dst = b, Scalar engine
VECTOR_BEGIN = "begin, vector"  # the same, Vector engine: trn1's Scalar engine copies or adds
VECTOR_FILL = "fill, vector"
ADD = "add"  # dst = data * w + other, Vector engine
MULTIPLY = "multiply"  # dst = data * w, Scalar engine
SUM = "sum"  # dst = data + other, GpSimd
COPY = "copy"  # dst = data, Scalar engine

# Where a place is.
X, Y, WINDOW, OUT, PSUM, WIDE = "x", "y", "window", "out", "psum", "wide"


@dataclass(frozen=True)
class Elements(NKIObject):
    """Elements of a tensor: (stride, count) pairs from `offset` on, the lines first."""

    kind: str
    slot: int
    offset: int
    pattern: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class EngineStep(NKIObject):
    """One instruction."""

    op: str
    dst: Elements
    data: Elements
    other: Elements
    lines: int
    weight: int = 0  # column of the filters
    bias: int = 0


@dataclass(frozen=True)
class DepthwiseRecipe(NKIObject):
    """Everything the kernel does; tiles of a kind have so many elements a partition."""

    y_shape: tuple[int, ...]
    lines: int
    windows: tuple[int, int]  # tiles, elements
    outs: tuple[int, int]
    psum: tuple[int, int]
    wide: tuple[int, int]
    filter_columns: int
    steps: tuple[EngineStep, ...]

    def __repr__(self) -> str:
        """What compiled kernels are kept by: a digest of all of it, and of the kernel's sources."""
        return f"{type(self).__name__}({digest_of(self)})"

    def __hash__(self) -> int:
        """By the same, which equal recipes have in common."""
        return hash(repr(self))

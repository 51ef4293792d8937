"""UpsampleRecipe: a plan by differences worked out, in NKI's own value types.

A unit is one output frame of a block. It multiplies differences of the input frames that its taps
meet, which were made while the units before it were at work. Regions are what stands before a
hardware loop, and the loop; each begins with nothing prepared.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnconv._nki import NKIObject
from trnconv.algorithms.digest import digest_of
from trnconv.algorithms.recipe_parts import Place, Rectangle, Ring
from trnconv.problem.coarse_residual import CoarseResidual


@dataclass(frozen=True)
class XTile(NKIObject):
    """Some input channels, on a partition each."""

    first: int
    channels: int


@dataclass(frozen=True)
class YTile(NKIObject):
    """Some output channels, on a partition each, and columns of what the host packs for them."""

    first: int
    channels: int
    weight: int
    constant: int


@dataclass(frozen=True)
class FrameTap(NKIObject):
    """An input frame that an output frame meets, with taps along frames that are summed up."""

    frame: int
    taps: int  # which set of taps


@dataclass(frozen=True)
class YFrame(NKIObject):
    """An output frame: what it meets, and where what is added to it lies, if that is coarse."""

    taps: tuple[FrameTap, ...]
    added: tuple[int, ...]  # elements of the residual before its first, for both rows of a cell


@dataclass(frozen=True)
class XPart(NKIObject):
    """Rows and columns of x that one DMA loads, from `offset` of the block on, into a rectangle."""

    offset: int
    into: Rectangle


@dataclass(frozen=True)
class BorderColumn(NKIObject):
    """A border column of an input tile: a copy of another one."""

    column: int
    source: int


@dataclass(frozen=True)
class UpsampleBlockType(NKIObject):
    """Blocks that look alike: input rows and columns without the ones around, and their borders."""

    rows: int
    columns: int
    parts: tuple[XPart, ...]
    clears: tuple[Rectangle, ...]
    copies: tuple[BorderColumn, ...]
    inner: int  # elements of x from the first that is loaded to the block's own first
    rectangles: tuple[Rectangle, ...]  # that banks sum up
    cut: int  # output rows before the first that is stored
    stored: int  # output rows


@dataclass(frozen=True)
class SpanPrepare(NKIObject):
    """Differences of an input frame of a block: from which slot, in which slot."""

    block: int
    frame: int
    x_slot: int
    v_slot: int


@dataclass(frozen=True)
class FrameUnit(NKIObject):
    """An output frame of a block, slots with the differences it meets, and what is made meanwhile.

    `prepared` counts all that have to be made before the next unit.
    """

    block: int
    frame: int
    slots: tuple[int, ...]
    prepared: int


@dataclass(frozen=True)
class Region(NKIObject):
    """Blocks one after the other, unrolled or as the iterations of a hardware loop."""

    kinds: tuple[int, ...]  # of each block
    places: tuple[Place, ...]  # the same; none in a loop
    first_row: int  # of the table of places
    iterations: int  # 0: unrolled
    prepares: tuple[SpanPrepare, ...]
    begun: int  # of them, before the first unit
    units: tuple[FrameUnit, ...]


@dataclass(frozen=True)
class UpsampleRecipe(NKIObject):
    """Everything the kernel does."""

    y_shape: tuple[int, int, int, int, int]
    dtype: str  # of y; empty: that of x
    has_residual: bool
    coarse: CoarseResidual | None
    fence: bool
    channel_step: int  # elements of x
    frame_elems: int
    x_width: int
    x_tiles: tuple[XTile, ...]
    y_tiles: tuple[YTile, ...]
    frames: tuple[YFrame, ...]
    kinds: tuple[UpsampleBlockType, ...]
    regions: tuple[Region, ...]
    iteration_blocks: int
    streamed: bool
    set_columns: int  # of the weights of one output channel for one set of taps
    pieces: int  # in which each plane of differences is made
    gpsimd_rows: bool
    gpsimd_sums: bool
    lines: int
    x: Ring
    v: Ring
    weights: Ring
    copies: Ring  # float32 tiles
    out: Ring
    residual: Ring
    constants: int  # columns
    constants_address: int
    places_address: int
    banks: int
    bank_elems: int

    def __repr__(self) -> str:
        """What compiled kernels are kept by: a digest of all of it, and of the kernel's sources."""
        return f"{type(self).__name__}({digest_of(self)})"

    def __hash__(self) -> int:
        """By the same, which equal recipes have in common."""
        return hash(repr(self))

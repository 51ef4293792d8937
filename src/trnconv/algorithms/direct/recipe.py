"""Recipe: a plan worked out into what a kernel does, in NKI's own value types.

A kernel that obeys a recipe decides nothing: it loads what a `InputWindow` lists, multiplies what a
`SumRecipe` lists, and stores what a `Store` lists. Offsets are in elements, relative to a place.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnconv._nki import NKIObject
from trnconv.algorithms.digest import digest_of
from trnconv.algorithms.recipe_parts import Place, Ring
from trnconv.problem.epilogue import Epilogue

Pattern = tuple[tuple[int, int], ...]  # (step, count) pairs, outermost first


@dataclass(frozen=True)
class Load(NKIObject):
    """One DMA from x into a rectangle of a window."""

    line: int  # first partition
    lines: int
    row: int
    row_end: int
    column: int
    column_end: int
    piece: int  # the tensor it reads
    offset: int
    pattern: Pattern


@dataclass(frozen=True)
class Clear(NKIObject):
    """A rectangle of a window that no load fills on every line, so that it must be zero."""

    row: int
    row_end: int
    column: int
    column_end: int


@dataclass(frozen=True)
class BorderFill(NKIObject):
    """A border column of a window: a copy of one of its other columns."""

    column: int
    source: int


@dataclass(frozen=True)
class InputWindow(NKIObject):
    """Input lines in SBUF: [lines, rows, columns]."""

    ring: int
    lines: int
    rows: int
    columns: int
    clears: tuple[Clear, ...]
    loads: tuple[Load, ...]
    fills: tuple[BorderFill, ...]


@dataclass(frozen=True)
class WindowView(NKIObject):
    """Where output position (i, j) of an accumulation reads a window, and which read it at all."""

    row: int
    row_step: int
    column: int
    column_step: int
    first_i: int
    end_i: int
    first_j: int
    end_j: int


@dataclass(frozen=True)
class Matmul(NKIObject):
    """One stationary matrix against one view of one window."""

    window: int
    view: int
    weight: int  # first column in the weight image
    part: int  # number of the part of the sum it adds to
    line: int  # first partition of that part
    lines: int


@dataclass(frozen=True)
class Chunk(NKIObject):
    """Matmuls that follow each other on one tile of positions, and their weights."""

    matmuls: tuple[Matmul, ...]
    weight: int  # first column of the weights they use
    weight_end: int


@dataclass(frozen=True)
class Tile(NKIObject):
    """A rectangle of an accumulation's positions: one PSUM bank."""

    i: int
    i_end: int
    j: int
    j_end: int


@dataclass(frozen=True)
class Visit(NKIObject):
    """One chunk on one tile."""

    tile: int
    chunk: int


@dataclass(frozen=True)
class Phase(NKIObject):
    """Partitions of a sum that hold every so many-th row and column of the output buffer."""

    line: int
    lines: int
    row: int
    row_step: int
    column: int
    step: int
    count: int  # columns that exist


@dataclass(frozen=True)
class Store(NKIObject):
    """One DMA from the output buffer to y."""

    line: int
    lines: int
    offset: int
    pattern: Pattern


@dataclass(frozen=True)
class SumRecipe(NKIObject):
    """All sums of one tile of output channels over the positions of a block."""

    columns: int  # partitions of the sum
    parts: int  # that are computed by matmuls of their own
    tile_columns: int  # of the array, for each part; 0: all of it
    bias: int  # column in the bias image
    rows: int  # of the output buffer
    width: int  # columns of the output buffer
    opens: bool  # takes a new output buffer; else goes on with the one before
    tiles: tuple[Tile, ...]
    chunks: tuple[Chunk, ...]
    visits: tuple[Visit, ...]
    phases: tuple[Phase, ...]
    stores: tuple[Store, ...]
    residuals: tuple[Store, ...] = ()  # where what is added to a new output buffer comes from
    coarse: tuple[Load, ...] = ()  # the same of a coarse residual: for each row of a cell


@dataclass(frozen=True)
class KindRecipe(NKIObject):
    """What blocks of one kind do."""

    windows: tuple[InputWindow, ...]
    views: tuple[WindowView, ...]
    accumulations: tuple[SumRecipe, ...]


@dataclass(frozen=True)
class BlockSweep(NKIObject):
    """Blocks that follow each other, and where they are: once, or as the iteration of a loop."""

    kinds: tuple[int, ...]  # of each block: its number among the recipe's kinds
    places: tuple[Place, ...]  # of the first iteration; others are read from the place table
    looped: bool  # a hardware loop
    first_iteration: int  # row of the place table, if looped
    iterations: int  # iterations of the loop


@dataclass(frozen=True)
class Recipe(NKIObject):
    """Everything a kernel does on one core."""

    y_shape: tuple[int, ...]
    lines: int  # partitions of every tensor on chip
    rings: tuple[Ring, ...]
    weights: Ring  # one slot that holds all, or slots that are streamed through
    out: Ring
    residual: Ring
    epilogue: Epilogue
    slope: float  # of a leaky ReLU at the end, else 0
    scalar_adds: bool  # whether the Scalar engine adds a bias to what it copies; trn1 refuses
    bias_columns: int
    bias_address: int
    zeros: bool  # whether a sum can begin with a product that writes a part of it only
    zeros_address: int
    places_address: int
    pieces: int  # tensors the input lies in; a coarse residual is one more
    banks: int
    bank_elems: int
    in_place: bool  # whether sums in PSUM are replaced by what comes of them
    by_column: bool  # whether sums of columns with a step between them leave PSUM one by one
    fence: bool  # whether the output is copied onto itself after loops
    ahead: bool  # windows of the next block are loaded before the stores of this one
    weight_loads: tuple[tuple[int, int], ...]  # columns of each load, in order; none if streamed
    kinds: tuple[KindRecipe, ...]
    sweeps: tuple[BlockSweep, ...]

    def __repr__(self) -> str:
        """What compiled kernels are kept by: a digest of all of it, and of the kernel's sources."""
        return f"{type(self).__name__}({digest_of(self)})"

    def __hash__(self) -> int:
        """By the same, which equal recipes have in common."""
        return hash(repr(self))

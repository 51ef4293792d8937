"""The recipe of a weight gradient: what its kernel does, in NKI's own value types.

Offsets are in elements of channel 0, relative to the place of an iteration.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnconv._nki import NKIObject
from trnconv.algorithms.digest import digest_of


@dataclass(frozen=True)
class TransposedLoad(NKIObject):
    """One DMA that brings positions to partitions: `lines` of each of some tiles."""

    line: int  # first partition
    lines: int
    tile: int  # first tile
    tiles: int
    offset: int
    step: int  # elements from tile to tile


@dataclass(frozen=True)
class TileFill(NKIObject):
    """How the tiles of a block get their positions; tiles that no DMA covers are cleared first."""

    clears: tuple[int, ...]  # tiles
    loads: tuple[TransposedLoad, ...]


@dataclass(frozen=True)
class SheetPart(NKIObject):
    """Some tiles of a sheet: some pieces of rows, by some rows."""

    piece: int
    pieces: int
    tile: int
    tiles: int


@dataclass(frozen=True)
class SheetLoad(NKIObject):
    """One DMA that brings one row of each of some tiles to partitions."""

    line: int  # first partition
    lines: int
    part: SheetPart
    offset: int
    piece_step: int  # elements from piece to piece
    tile_step: int  # from tile to tile


@dataclass(frozen=True)
class SheetFill(NKIObject):
    """How a sheet, or a copy of dy, gets its positions; what no DMA covers is cleared first."""

    clears: tuple[SheetPart, ...]
    loads: tuple[SheetLoad, ...]


@dataclass(frozen=True)
class SheetBlock(NKIObject):
    """A block of sheets: how they are cut, and the copies of dy."""

    pieces: int  # of rows, of all images
    dy_tiles: int  # of a piece of dy, and of x
    x_tiles: int
    dy: tuple[SheetFill, ...]  # by copy


NO_SHEET = SheetFill((), ())
NO_SHEETS = SheetBlock(0, 0, 0, ())


@dataclass(frozen=True)
class WindowLoad(NKIObject):
    """One DMA that brings some rows of some columns of an image to their places in a window."""

    row: int
    rows: int
    column: int
    columns: int
    offset: int


@dataclass(frozen=True)
class ColumnCopy(NKIObject):
    """A column of padding, and the one of its window that it repeats."""

    column: int
    source: int


@dataclass(frozen=True)
class PaddedWindow(NKIObject):
    """Rows of a frame in SBUF, with the padding they need, for the Tensor engine."""

    images: int  # one below the other
    rows: int
    columns: int
    clear: bool
    loads: tuple[WindowLoad, ...]  # of the first image
    copies: tuple[ColumnCopy, ...]


NO_FILL = TileFill((), ())
NO_WINDOW = PaddedWindow(0, 0, 0, clear=False, loads=(), copies=())


@dataclass(frozen=True)
class TileView(NKIObject):
    """The positions of a tile in a window."""

    row: int
    rows: int
    column: int
    columns: int


@dataclass(frozen=True)
class TapFrame(NKIObject):
    """A block of one input frame, as one frame tap reads it."""

    number: int  # equal numbers in an iteration are equal positions; -1: padding only
    fills: tuple[TileFill, ...]  # by column tap, then row tap; none if the Tensor engine transposes
    window: PaddedWindow
    sheet: SheetFill = NO_SHEET


@dataclass(frozen=True)
class GradientBlock(NKIObject):
    """Some rows of one output frame."""

    tiles: tuple[int, ...]  # positions of each
    tiles_of_image: int
    fill: TileFill  # of dy
    window: PaddedWindow
    views: tuple[TileView, ...]  # of dy, by tile
    x_views: tuple[tuple[TileView, ...], ...]  # by column tap, then row tap; by tile
    frames: tuple[TapFrame, ...]  # by frame tap
    sheets: SheetBlock = NO_SHEETS


@dataclass(frozen=True)
class IterationPlace(NKIObject):
    """Where an iteration is: what to add to its offsets."""

    x: int
    dy: int


@dataclass(frozen=True)
class IterationSweep(NKIObject):
    """Iterations that look alike, and where they are."""

    blocks: tuple[GradientBlock, ...]
    frames: int  # different ones of an iteration
    places: tuple[IterationPlace, ...]
    looped: bool
    first_iteration: int  # row of the place table, if looped


@dataclass(frozen=True)
class StripWork(NKIObject):
    """A strip, where it is in the gradient and in SBUF, and the dy it meets."""

    variant: int
    frame_tap: int
    column: int  # of the gradient
    kept: int  # first column of its accumulator
    columns: int
    taps: tuple[int, ...]  # among those of a frame: column tap, then row tap
    channel: int  # of x
    channels: int
    dy_copy: int  # masked or moved; 0: as it is
    row_tap: int  # the first
    phase: int  # of the columns of a sheet, the first
    phases: int


@dataclass(frozen=True)
class GradientPass(NKIObject):
    """Sums that are in SBUF together: some output channels by some strips."""

    out: int  # first output channel
    outs: int
    columns: int  # of the accumulators
    strips: tuple[StripWork, ...]
    with_bias: bool


@dataclass(frozen=True)
class Addresses(NKIObject):
    """Where things lie in SBUF, in bytes of every partition."""

    sums: int
    sums_pitch: int
    bias_sums: int
    dy: int
    dy_pitch: int
    x: int
    x_pitch: int
    dy_window: int
    windows: int
    window_pitch: int
    masks: int
    ones: int
    places: int
    end: int


@dataclass(frozen=True)
class SheetSteps(NKIObject):
    """How sheets lie: columns of an element, tiles from output row to row, and from tap to tap."""

    unit: int  # 0: there are none
    by_row: int
    by_tap: int


@dataclass(frozen=True)
class WeightGradientRecipe(NKIObject):
    """Everything the kernel does."""

    dw_shape: tuple[int, int]  # output channels; frame, column, row taps and channels of a pack
    wide: bool
    by_dma: bool
    lines: int  # partitions
    bank_elems: int
    banks: int  # for sums
    transpose_banks: int  # for transposes of the Tensor engine
    stores_early: bool  # a strip is stored while the next one is loaded, else after all
    wide_transposes: bool  # those are float32, whatever the input: as trn1 writes them
    tiles: int  # of the largest block
    dy_copies: int
    masks: int
    mask_tiles: int  # tiles of an image
    channels: int  # of x, all of them
    pack_in: int  # of x, those of a pack: columns of dw for each tap
    x_stride: int  # elements from channel to channel
    x_image: int  # from image to image
    x_row: int  # from row to row
    dy_stride: int
    dy_image: int
    dy_row: int
    row_step: int
    column_step: int
    variants: int  # strips of a frame tap
    outs: int  # of the largest pass
    out_tiles: int
    slots: int
    slot_elems: int
    sheets: SheetSteps
    window_slots: int
    window_elems: int  # of one tile of channels of x, and of dy
    window_tiles: int  # tiles of channels of an x window
    dy_window_elems: int
    addresses: Addresses
    passes: tuple[GradientPass, ...]
    sweeps: tuple[IterationSweep, ...]

    def __repr__(self) -> str:
        """What compiled kernels are kept by: a digest of all of it, and of the kernel's sources."""
        return f"{type(self).__name__}({digest_of(self)})"

    def __hash__(self) -> int:
        """By the same, which equal recipes have in common."""
        return hash(repr(self))

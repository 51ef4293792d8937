"""WinogradRecipe: a Winograd plan worked out into what its kernel does, in NKI's own value types.

Blocks of outputs are cut into units: one tile of frames, or some frames of row tiles. A unit
multiplies transformed inputs that were prepared while the unit before it was at work. Numbers of
loads, tiles and slots are the same for all blocks; rectangles and offsets are of a block's kind.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnconv._nki import NKIObject
from trnconv.algorithms.digest import digest_of
from trnconv.algorithms.recipe_parts import Place, Rectangle, Ring
from trnconv.algorithms.winograd.transforms import TransformStep
from trnconv.problem.epilogue import Epilogue
from trnconv.problem.prologue import Prologue

COMPLETE, LOAD, PAIR_UP = -1, -2, -3  # steps of a preparation that are no step of the transform


@dataclass(frozen=True)
class InLoad(NKIObject):
    """One DMA from a frame of x into a rectangle of some lines of an input tile."""

    line: int
    lines: int
    channel: int
    into: Rectangle
    offset: int  # in the frame, from the block's first input (of that part) on
    whole: bool  # whole rows into whole rows: one run


@dataclass(frozen=True)
class XCopy(NKIObject):
    """Channels of an input tile once more on other lines, some rows up and columns to the left."""

    line: int
    lines: int
    rows: int
    columns: int


@dataclass(frozen=True)
class VFill(NKIObject):
    """A border column of some lines of transformed inputs: a copy of another one of theirs."""

    line: int
    lines: int
    column: int
    source: int


@dataclass(frozen=True)
class InPart(NKIObject):
    """What a block of one kind needs of a tile of input channels.

    `rows` x `columns` is the input tile of a frame. The transform writes `written` of the tile of
    transformed inputs, beginning with input (`x_row`, `x_column`); the rest is cleared, or filled
    where padding repeats the input.
    """

    rows: int
    columns: int
    x_clears: tuple[Rectangle, ...]
    loads: tuple[InLoad, ...]
    loaded: int  # lines that are
    inside: Rectangle  # what loads fill of the first ones
    copies: tuple[XCopy, ...]
    written: Rectangle
    x_row: int
    x_column: int
    v_clears: tuple[Rectangle, ...]
    v_fills: tuple[VFill, ...]


@dataclass(frozen=True)
class OutRectangles(NKIObject):
    """What a block of one kind computes of a tile of output channels: rectangles of positions."""

    tiles: tuple[Rectangle, ...]


@dataclass(frozen=True)
class InputFrame(NKIObject):
    """Where an input frame of a block lies: which tensor, and how far from the block's first."""

    piece: int  # -1: it is padding
    offset: int


@dataclass(frozen=True)
class Wanted(NKIObject):
    """Which outputs of its tiles a unit computes, with which products, and where they go.

    None, if it is the stage of a frame that does not exist.
    `first` and `rows` cut what is stored from the rows of an output buffer.
    """

    outputs: tuple[int, ...]
    products: tuple[int, ...]
    y_offset: int  # of the first frame it stores
    frames: int
    first: int
    rows: int


@dataclass(frozen=True)
class WinogradBlockType(NKIObject):
    """Blocks that look alike: rows and columns of transformed inputs, and what fills them.

    `written` of a part is of one frame, `v_clears` of all that a tile has.
    """

    v_rows: int  # of all frames of a tile
    frame_rows: int
    v_columns: int
    columns: int  # outputs
    ins: tuple[InPart, ...]
    outs: tuple[OutRectangles, ...]  # of each tile of output channels
    frames: tuple[InputFrame, ...]
    units: tuple[Wanted, ...]


@dataclass(frozen=True)
class XLoad(NKIObject):
    """An input frame of a block of the body, to be loaded into a slot."""

    block: int
    frame: int
    slot: int


@dataclass(frozen=True)
class Prepare(NKIObject):
    """Transformed inputs of a block of the body, made in a slot from input slots.

    `fresh` are those of the input slots that no other preparation has read before, `frames` the
    input frames of the block that they hold.
    """

    block: int
    slot: int
    x_slots: tuple[int, ...]
    fresh: tuple[int, ...]
    frames: tuple[int, ...]
    stage: int = 0  # of the unit they are for


class PrepareStep(NKIObject):
    """A part of the work of preparing transformed inputs: one step on one tile of channels.

    `COMPLETE` is what inputs need before they are transformed. It comes early: nobody waits for it.
    It is of all frames that are new, or of each by itself where other steps come late.
    `LOAD` is the load of the tile's inputs, if inputs of a few tiles only are held. `PAIR_UP` adds
    or subtracts two frames, which are transformed then.
    """

    def __init__(self, prepare: Prepare, tile: int, frame: int, step: int, after: int) -> None:
        self.prepare = prepare
        self.tile = tile
        self.frame = frame  # of those that lie one after the other in transformed inputs
        self.step = step
        self.after = after  # so many early steps


@dataclass(frozen=True)
class Unit(NKIObject):
    """A unit of the body: what it reads, and what is loaded and prepared meanwhile."""

    block: int
    number: int  # of the unit in its block
    reads: tuple[int, ...]  # slots of transformed inputs, by frame if tiles are rows
    loads: tuple[XLoad, ...]
    prepares: tuple[Prepare, ...]


@dataclass(frozen=True)
class InTile(NKIObject):
    """Input channels on partitions, some of them several times: `shifts` of rows and columns."""

    channel: int
    channels: int
    lines: int
    x: Ring
    v: Ring


@dataclass(frozen=True)
class MatrixProduct(NKIObject):
    """One stationary matrix against a view of transformed inputs."""

    tile: int
    read: int
    row: int
    column: int
    weight: int  # column of the weight image, from that of the product's position


@dataclass(frozen=True)
class ChannelTile(NKIObject):
    """Output channels, with `stack` neighbouring columns of each on partitions."""

    channel: int
    channels: int
    stack: int
    pitch: int  # partitions from column to column of the stack
    lines: int
    width: int  # columns of a stationary matrix
    side_by_side: bool  # each column of the stack in a column tile of the array
    number: int
    constant: int  # first column in the image of constants
    weight: int  # first column in the weight image
    position_weights: int  # columns of one product
    products: tuple[MatrixProduct, ...]
    streamed: int  # products whose weights one load brings, if weights are streamed


@dataclass(frozen=True)
class Group(NKIObject):
    """Output tiles whose weights are in SBUF together: columns of the weight image."""

    weight: int
    weight_end: int
    tiles: tuple[ChannelTile, ...]


@dataclass(frozen=True)
class Located(NKIObject):
    """A block: its kind and its place."""

    kind: int
    place: Place


@dataclass(frozen=True)
class Iterations(NKIObject):
    """A hardware loop over blocks of these kinds in turn, read from the table of places."""

    kinds: tuple[int, ...]
    first_row: int
    iterations: int


@dataclass(frozen=True)
class NormRecipe(NKIObject):
    """A norm of the outputs of a unit over their channels, in steps of positions."""

    terms: tuple[float, ...]  # what is added under the root, as a sum of bf16 numbers
    by_lines: bool  # they stand on lines beside the last tile's channels; else a matmul adds them
    quadrant: int
    activation: str
    has_beta: bool
    keeps: bool  # y is stored too
    first: int  # frames in a tensor of their own; 0: one tensor
    squares: Ring
    products: Ring
    ones: Ring
    under_root: Ring
    scales: Ring
    sums: int  # banks of PSUM, that chains do not need


@dataclass(frozen=True)
class WinogradRecipe(NKIObject):
    """Everything the kernel does on one core."""

    y_shape: tuple[int, ...]
    transform: str
    outputs: int  # of a tile
    positions: int  # products of a tile
    by_rows: bool  # tiles are rows; else frames
    unit_frames: int  # output frames that share sums, if tiles are rows
    v_frames: int  # that lie one after the other in a tile of transformed inputs
    x_tiles: int  # of input channels whose inputs are loaded as they are transformed; 0: ahead
    stages: int  # units that compute the same outputs together: see stages.py
    pair_steps: tuple[TransformStep, ...]  # which frames each stage adds, or subtracts
    gpsimd_pairs: bool  # that engine does
    steps: tuple[TransformStep, ...]
    gpsimd_steps: int  # the first so many steps are the GpSimd engine's
    step_needs: tuple[int, ...]  # how many of them each step has to wait for
    steps_ahead: bool  # they are done ahead of the others; else just before those that need them
    late_pauses: int  # of a unit, before the first of the other steps
    gpsimd_outputs: tuple[int, ...]  # to which that engine adds the residual, before sums are read
    fence: bool  # whether the output is copied onto itself after loops
    midgroup: bool  # sums are read while they still grow
    epilogue: Epilogue
    prologue: Prologue
    channel_steps: tuple[int, ...]  # from channel to channel, of each tensor x lies in
    frame_elems: int  # of x
    x_width: int
    completes: bool  # inputs are scaled or copied before they are transformed
    in_tiles: tuple[InTile, ...]
    groups: tuple[Group, ...]
    kinds: tuple[WinogradBlockType, ...]
    first_loads: tuple[XLoad, ...]
    first_prepares: tuple[Prepare, ...]
    units: tuple[Unit, ...]
    body_blocks: int
    blocks: tuple[Located, ...]  # unrolled
    loops: tuple[Iterations, ...]
    lines: int
    weights: Ring
    streamed: bool  # weights are loaded product by product; else group by group
    scratch: Ring  # one tile of transformed inputs, if steps need one
    paired: Ring  # sums or differences of two input frames
    held: Ring  # float32 tiles: what stages hold of each tile of output channels
    copies: Ring  # float32 tiles
    out: Ring
    residual: Ring
    constants: int  # columns
    constants_address: int
    factors_address: int
    places_address: int
    banks: int
    bank_elems: int
    norm: NormRecipe | None

    def __repr__(self) -> str:
        """What compiled kernels are kept by: a digest of all of it, and of the kernel's sources."""
        return f"{type(self).__name__}({digest_of(self)})"

    def __hash__(self) -> int:
        """By the same, which equal recipes have in common."""
        return hash(repr(self))

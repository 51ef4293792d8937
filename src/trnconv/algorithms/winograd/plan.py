"""WinogradPlan: the decisions of a convolution by F(m, 3); `lower.py` works out what follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from trnconv.algorithms.algorithm import Plan
from trnconv.algorithms.winograd.error import expected_ratio
from trnconv.algorithms.winograd.transforms import OUTER, Transform, transform_of, whole_of
from trnconv.geometry import ConvShape
from trnconv.problem.epilogue import ITEM_BYTES

DEPTH, HEIGHT, WIDTH = 0, 1, 2
V_DTYPE = "float16"  # of transformed inputs and weights
V_BYTES = ITEM_BYTES[V_DTYPE]
PAIR = 2  # frames whose sum or difference is transformed, if frames are paired
STACKED_COLUMNS = (2, 4)  # that a matmul of few output channels may make
_ALONG = {DEPTH: "frames", HEIGHT: "rows"}


def family_of(transform: str, axis: int, *, pairs: bool = False) -> str:
    """A family by name: its transform, and what its tiles are made of."""
    if pairs:
        return f"{OUTER.name} x {transform}, {_ALONG[DEPTH]} x {_ALONG[axis]}"
    return f"{transform}, {_ALONG[axis]}"


# Buffers, groups of weights and loops of a plan that has as little as can be: what the sizes of its
# blocks decide does not depend on them.
LEAST: Mapping[str, Any] = {
    "x_slots": 1,
    "v_slots": 1,
    "group": 1,
    "streamed": 0,
    "body_blocks": 1,
    "looped": False,
    "spans": 0,
}


@dataclass(frozen=True)
class WinogradPlan(Plan):
    """How one core computes a convolution by F(m, 3) along frames or rows.

    A block is `units` x `rows` x `columns` of outputs: a unit is a tile of m frames, or
    `unit_frames` frames of rows / m tiles of rows. Tiles begin at multiples of m counted from
    -`anchor`, the position of the first output in a longer sequence; so parts of a sequence cut it
    into the same tiles. Outputs of F(2,3) meet no inputs but their own three, so a part may end
    within a tile and still have the bits of the whole; parts of F(4,3) have to end with whole tiles
    for that. With `frame_pairs`, F(2,3) along frames goes around the transform along rows: a unit
    is one of its products (`stages.py`), so that every two frames have four units.
    """

    algorithm: ClassVar[str] = "winograd"

    shape: ConvShape
    transform: str
    axis: int  # DEPTH or HEIGHT
    units: int
    rows: int
    columns: int
    x_slots: int  # input frames in SBUF
    v_slots: int  # transformed inputs in SBUF
    group: int  # tiles of output channels whose weights are in SBUF together
    streamed: int = 0  # slots for weights of one product that are loaded as they are used
    pieces: tuple[int, ...] = ()  # frames of each tensor that x lies in
    anchor: int = 0
    body_blocks: int = 1
    looped: bool = False
    spans: int = (
        0  # along rows, of an iteration: one loop over whole spans; 0: a loop a kind of block
    )
    out_buffers: int = 2
    midgroup: bool = True  # a bank is read while it still grows
    paired_rows: bool = False  # rests of channels also with their next row, on partitions
    gpsimd_steps: int = 0  # the first so many steps of a transform are that engine's
    gpsimd_residual: bool = False  # that engine adds the residual, before sums are read
    shares_residual: bool = False  # the Vector engine adds that of every other output, afterwards
    residual_buffers: int = 2
    rows_of: tuple[int, int] | None = None  # output rows of one of two cores; None: all
    unit_frames: int = 1  # that share matmuls and streamed weights, if tiles are rows
    x_tiles: int = 0  # of input channels in SBUF, loaded as they are transformed; 0: all, ahead
    frame_pairs: bool = False  # tiles of rows of two frames, which F(2,3) computes together
    gpsimd_pairs: bool = False  # that engine makes sums and differences of frames
    stacked_columns: int = STACKED_COLUMNS[0]  # of few output channels, that share a matmul
    late_pauses: int = 0  # of a unit, before the first step that prepares the next: see prefetch.py
    cut_from_end: bool = (
        False  # of rows that no blocks fill, the first block has fewer, not the last
    )

    @property
    def family(self) -> str:
        """The transform, and what its tiles are made of."""
        return family_of(self.transform, self.axis, pairs=self.frame_pairs)

    @property
    def piece_frames(self) -> tuple[int, ...]:
        """Frames of each tensor that x lies in."""
        return self.frames

    @property
    def is_looped(self) -> bool:
        """Whether equal blocks are a hardware loop."""
        return self.looped

    @property
    def is_reproducible(self) -> bool:
        """Whether every output is summed in an order that depends on its row and column only.

        Output channels that share a matmul with those of the next column are summed by whether
        their column is the first or the second: blocks must not begin between the two. Plans
        differ in whether a residual is added before the last product, and in how many columns
        share a matmul if it may be more than two.
        """
        whole = self.columns >= self.shape.out_size(WIDTH)
        two = self.stacked_columns == STACKED_COLUMNS[0]
        even = self.columns % STACKED_COLUMNS[0] == 0
        last = not self.gpsimd_residual and not self.frame_pairs
        return self.by_rows and last and two and (not self.shares_columns or whole or even)

    @property
    def expected_ratio(self) -> float:
        """See `error.py`."""
        return expected_ratio(self.whole, self.dtype)

    def block(self) -> tuple[int, int, int]:
        """Output frames, rows and columns of a block."""
        return self.frames_of_units, self.rows, self.columns

    def in_words(self) -> str:
        """The decisions in a line."""
        along = "rows" if self.by_rows else "frames"
        loop = "a hardware loop" if self.looped else "unrolled"
        weights = "weights streamed" if self.streamed else "weights in SBUF"
        if self.frame_pairs:
            along += f" in {OUTER.name} along frames"
        units = f"{self.units} units"
        if self.shares_sums:
            units += f" of {self.unit_frames} frames"
        if self.x_tiles:
            weights += ", inputs too"
        return (
            f"{self.transform} along {along}, blocks of {units} x {self.rows} rows x"
            f" {self.columns} columns, {weights}, {loop}"
        )

    @property
    def transforms(self) -> Transform:
        """The transform."""
        return transform_of(self.transform)

    @property
    def whole(self) -> Transform:
        """The transform of everything along frames and rows."""
        return whole_of(self.transforms, pairs=self.frame_pairs)

    @property
    def stages(self) -> int:
        """Units that compute the same outputs together."""
        return OUTER.products if self.frame_pairs else 1

    @property
    def frames_of_units(self) -> int:
        """Output frames of a block."""
        if self.frame_pairs:
            return self.units // self.stages * OUTER.outputs
        return self.units * self.out_frames

    @property
    def by_rows(self) -> bool:
        """Whether tiles are rows."""
        return self.axis == HEIGHT

    @property
    def m(self) -> int:
        """Outputs of a tile."""
        return self.transforms.outputs

    @property
    def chain_banks(self) -> int:
        """PSUM banks of chains in hand: one of F(4,3) ends after the next one has begun."""
        banks, between = self.transforms.banks, int(self.frame_pairs)  # see stages.py
        if self.m > 2:
            return 2 * banks - 1 + between
        return (banks if self.midgroup else 2 * banks) + between

    @property
    def phase(self) -> int:
        """Outputs of the first tile that lie before the first output."""
        return self.anchor % self.m

    @property
    def tiles(self) -> int:
        """Tiles along the axis."""
        return -(-(self.shape.out_size(self.axis) + self.phase) // self.m)

    @property
    def row_span(self) -> tuple[int, int]:
        """Output rows that are computed, first and end."""
        return self.rows_of or (0, self.shape.out_size(HEIGHT))

    @property
    def out_frames(self) -> int:
        """Output frames of a unit."""
        return self.unit_frames if self.by_rows else self.m

    @property
    def shares_sums(self) -> bool:
        """Whether matmuls of a unit compute several frames of row tiles at once."""
        return self.unit_frames > 1

    @property
    def block_frames(self) -> int:
        """Input frames of a block, padding included."""
        if self.by_rows:
            return self.frames_of_units + self.shape.kernel[DEPTH] - 1
        return self.m * (self.units - 1) + self.transforms.products

    @property
    def tile_frames(self) -> int:
        """Input frames that a tile of transformed inputs is made of.

        Where a unit has one frame of row tiles, units share tiles of a frame each.
        """
        if not self.by_rows:
            return self.transforms.products
        if self.frame_pairs:
            return PAIR
        return self.unit_frames + self.shape.kernel[DEPTH] - 1 if self.shares_sums else 1

    @property
    def v_frames(self) -> int:
        """Frames that lie one after the other in a tile of transformed inputs."""
        return self.tile_frames if self.by_rows and not self.frame_pairs else 1

    @property
    def shares_columns(self) -> bool:
        """Whether output channels that fill no tile share a matmul with those of a next column."""
        rest, lines = self.shape.c_out % self.machine.partitions, self.machine.partitions
        return self.columns > 1 and 0 < rest * STACKED_COLUMNS[0] <= lines

    @property
    def read_frames(self) -> int:
        """Tiles of transformed inputs that one unit reads."""
        apart = self.shares_sums or self.frame_pairs
        return self.shape.kernel[DEPTH] if self.by_rows and not apart else 1

    @property
    def steps_ahead(self) -> bool:
        """Whether steps of the GpSimd engine need nothing but inputs that were loaded long ago."""
        return not self.x_tiles and not self.frame_pairs

    @property
    def gpsimd_outputs(self) -> tuple[int, ...]:
        """Outputs of a tile to which the GpSimd engine adds the residual."""
        step = 2 if self.shares_residual else 1
        return tuple(range(step - 1, self.m, step)) if self.gpsimd_residual else ()

    @property
    def frames(self) -> tuple[int, ...]:
        """Frames of each tensor that x lies in."""
        return self.pieces or (self.shape.size[DEPTH],)

    @property
    def out_bytes(self) -> int:
        """Bytes of an element of y."""
        return ITEM_BYTES[self.epilogue.dtype or self.dtype]

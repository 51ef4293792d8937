"""MinimalPlan: the decisions of a convolution by F(m, 3); `lower.py` works out what follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from trnconv.ask.ends import ITEM_BYTES
from trnconv.forms.form import Plan
from trnconv.forms.minimal.error import expected_ratio
from trnconv.forms.minimal.transforms import Transform, transform_of
from trnconv.geometry import ConvShape

DEPTH, HEIGHT, WIDTH = 0, 1, 2
V_DTYPE = "float16"  # of transformed inputs and weights
V_BYTES = ITEM_BYTES[V_DTYPE]
STACKED_COLUMNS = 2  # that a matmul of few output channels makes
_ALONG = {DEPTH: "frames", HEIGHT: "rows"}


def family_of(transform: str, axis: int) -> str:
    """An algorithm by name: its transform, and what its tiles are made of."""
    return f"{transform}, {_ALONG[axis]}"


# Buffers, groups of weights and loops of a plan that has as little as can be: what the sizes of its
# blocks decide does not depend on them.
LEAST: Mapping[str, Any] = {
    "x_slots": 1,
    "v_slots": 1,
    "group": 1,
    "streamed": 0,
    "body_blocks": 1,
    "rolled": False,
    "spans": 0,
}


@dataclass(frozen=True)
class MinimalPlan(Plan):
    """How one core computes a convolution by F(m, 3) along frames or rows.

    A block is `units` x `rows` x `columns` of outputs: a unit is a tile of m frames, or one frame
    of rows / m tiles of rows. Tiles begin at multiples of m counted from -`anchor`, the position of
    the first output in a longer sequence; so parts of a sequence cut it into the same tiles.
    Outputs of F(2,3) meet no inputs but their own three, so a part may end within a tile and still
    have the bits of the whole; parts of F(4,3) have to end with whole tiles for that.
    """

    form: ClassVar[str] = "minimal"

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
    rolled: bool = False
    spans: int = 0  # along rows, of a turn: one loop over whole spans; 0: a loop a kind of block
    out_buffers: int = 2
    midgroup: bool = True  # a bank is read while it still grows
    paired_rows: bool = False  # rests of channels also with their next row, on partitions
    gpsimd_steps: bool = False  # that engine makes a transform's differences of inputs
    gpsimd_residual: bool = False  # that engine adds the residual, before sums are read
    gpsimd_norm: bool = False  # that engine multiplies outputs by roots that the Scalar one takes
    rows_of: tuple[int, int] | None = None  # output rows of one of two cores; None: all

    @property
    def family(self) -> str:
        """The transform, and what its tiles are made of."""
        return family_of(self.transform, self.axis)

    @property
    def piece_frames(self) -> tuple[int, ...]:
        """Frames of each tensor that x lies in."""
        return self.frames

    @property
    def is_rolled(self) -> bool:
        """Whether equal blocks are a hardware loop."""
        return self.rolled

    @property
    def is_reproducible(self) -> bool:
        """Whether every output is summed in an order that depends on its row and column only.

        Output channels that share a matmul with those of the next column are summed by whether
        their column is the first or the second: blocks must not begin between the two. Plans
        differ in which engines add a residual and take roots of a norm, with other roundings.
        """
        whole = self.columns >= self.shape.out_size(WIDTH)
        even = self.columns % STACKED_COLUMNS == 0
        rounds_alike = not (self.gpsimd_residual or self.gpsimd_norm)
        return self.by_rows and rounds_alike and (not self.shares_columns or whole or even)

    @property
    def expected_ratio(self) -> float:
        """See `error.py`."""
        return expected_ratio(self.algorithm, self.dtype)

    def block(self) -> tuple[int, int, int]:
        """Output frames, rows and columns of a block."""
        return self.units * (1 if self.by_rows else self.m), self.rows, self.columns

    def in_words(self) -> str:
        """The decisions in a line."""
        along = "rows" if self.by_rows else "frames"
        loop = "a hardware loop" if self.rolled else "unrolled"
        weights = "weights streamed" if self.streamed else "weights in SBUF"
        return (
            f"{self.transform} along {along}, blocks of {self.units} units x {self.rows} rows x"
            f" {self.columns} columns, {weights}, {loop}"
        )

    @property
    def algorithm(self) -> Transform:
        """The transform."""
        return transform_of(self.transform)

    @property
    def by_rows(self) -> bool:
        """Whether tiles are rows."""
        return self.axis == HEIGHT

    @property
    def m(self) -> int:
        """Outputs of a tile."""
        return self.algorithm.outputs

    @property
    def early_steps(self) -> int:
        """Steps of the transform, the first, that the GpSimd engine does."""
        return self.algorithm.differences if self.gpsimd_steps else 0

    @property
    def chain_banks(self) -> int:
        """PSUM banks of chains in hand: one of F(4,3) ends after the next one has begun."""
        banks = self.algorithm.banks
        if self.m > 2:
            return 2 * banks - 1
        return banks if self.midgroup else 2 * banks

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
    def block_frames(self) -> int:
        """Input frames of a block, padding included."""
        if self.by_rows:
            return self.units + self.shape.kernel[DEPTH] - 1
        return self.m * (self.units - 1) + self.algorithm.products

    @property
    def shares_columns(self) -> bool:
        """Whether output channels that fill no tile share a matmul with those of a next column."""
        rest, lines = self.shape.c_out % self.target.partitions, self.target.partitions
        return self.columns > 1 and 0 < rest * STACKED_COLUMNS <= lines

    @property
    def read_frames(self) -> int:
        """Tiles of transformed inputs that one unit reads."""
        return self.shape.kernel[DEPTH] if self.by_rows else 1

    @property
    def frames(self) -> tuple[int, ...]:
        """Frames of each tensor that x lies in."""
        return self.pieces or (self.shape.size[DEPTH],)

    @property
    def out_bytes(self) -> int:
        """Bytes of an element of y."""
        return ITEM_BYTES[self.end.dtype or self.dtype]

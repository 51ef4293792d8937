"""FastPlan: the decisions of a fast convolution. What follows from them is in `fast_work.py`."""

from __future__ import annotations

from dataclasses import dataclass

from nkisim.machine import Machine, find_machine
from trnconv.geometry import ConvShape
from trnconv.plan.ends import ITEM_BYTES, PLAIN_END, End
from trnconv.plan.fast_transforms import Transform, transform_of

DEPTH, HEIGHT, WIDTH = 0, 1, 2
V_BYTES = 2  # of transformed inputs and weights: fp16


@dataclass(frozen=True)
class FastPlan:
    """How one core computes a convolution by F(m, 3) along frames or rows.

    A block is `units` x `rows` x `columns` of outputs: a unit is a tile of m frames, or one frame
    of rows / m tiles of rows. Tiles begin at multiples of m counted from -`anchor`, the position of
    the first output in a longer sequence; so parts of a sequence cut it into the same tiles.
    Outputs of F(2,3) meet no inputs but their own three, so a part may end within a tile and still
    have the bits of the whole; parts of F(4,3) have to end with whole tiles for that.
    """

    shape: ConvShape
    machine: str
    dtype: str
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
    out_buffers: int = 2
    midgroup: bool = True  # a bank is read while it still grows
    paired_rows: bool = False  # rests of channels also with their next row, on partitions
    even_rows: bool = False  # blocks at the first and last row look like all others
    end: End = PLAIN_END

    @property
    def target(self) -> Machine:
        """The machine this was planned for."""
        return find_machine(self.machine)

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
    def phase(self) -> int:
        """Outputs of the first tile that lie before the first output."""
        return self.anchor % self.m

    @property
    def tiles(self) -> int:
        """Tiles along the axis."""
        return -(-(self.shape.out_size(self.axis) + self.phase) // self.m)

    @property
    def block_frames(self) -> int:
        """Input frames of a block, padding included."""
        if self.by_rows:
            return self.units + self.shape.kernel[DEPTH] - 1
        return self.m * (self.units - 1) + self.algorithm.products

    @property
    def read_frames(self) -> int:
        """Tiles of transformed inputs that one unit reads."""
        return self.shape.kernel[DEPTH] if self.by_rows else 1

    @property
    def frames(self) -> tuple[int, ...]:
        """Frames of each tensor that x lies in."""
        return self.pieces or (self.shape.size[DEPTH],)

    @property
    def item_bytes(self) -> int:
        """Bytes of an element of x."""
        return ITEM_BYTES[self.dtype]

    @property
    def out_bytes(self) -> int:
        """Bytes of an element of y."""
        return ITEM_BYTES[self.end.dtype or self.dtype]

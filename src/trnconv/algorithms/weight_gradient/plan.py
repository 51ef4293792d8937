"""WeightGradientPlan: the decisions about a weight gradient. What follows is worked out elsewhere.

    dw[o, i, t] = sum over images n, positions p of  dy[n, o, p] * x[n, i, window(p, t)]

The sum runs over positions, so positions stand on partitions: a *tile* is up to 128 positions of
x or of dy, transposed. A *block* is some rows of an output frame, cut into tiles. A *strip* is the
columns (taps and input channels) of the gradient that one matmul makes. All tiles of a block add
up in a PSUM bank, and blocks add up in SBUF.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import ClassVar, NamedTuple

from trnconv.algorithms.algorithm import ArraySpec, Plan
from trnconv.algorithms.weight_gradient.sheets import (
    joined_taps,
    row_steps,
    sheet_shifts,
    sheet_span,
)
from trnconv.geometry import ConvShape, Triple
from trnconv.problem.epilogue import Epilogue

DEPTH, HEIGHT, WIDTH = 0, 1, 2
Span = tuple[int, int]


@dataclass(frozen=True)
class GradientStrip:
    """Columns of the gradient made at once: some taps along the height, one along the depth."""

    variant: int  # its number among the strips of one frame tap
    frame_tap: int
    column_tap: int
    row_tap: int  # the first
    row_taps: int
    channel: int  # the first, in its pack
    channels: int
    column_taps: int = 1  # of sheets: so many phases of the same elements

    @property
    def columns(self) -> int:
        """Columns of the matmul."""
        return self.column_taps * self.row_taps * self.channels


WIDE_EPILOGUE = Epilogue(dtype="float32")


class StripSizes(NamedTuple):
    """Of all strips: the most columns, the most channels, and the columns before each."""

    columns: int
    channels: int
    before: tuple[int, ...]  # and those of all at the end


@dataclass(frozen=True)
class WeightGradientPlan(Plan):
    """How one core computes a weight gradient and a bias gradient."""

    algorithm: ClassVar[str] = "weight_gradient"

    shape: ConvShape  # folded
    wide: bool  # dw in float32, whatever the type of x: what its end asks for
    by_dma: bool  # tiles are transposed on the way from HBM, else by the Tensor engine
    pack: int  # groups that are computed together; what lies between two of them is dropped
    images: int  # images of a block
    rows: int  # output rows of a block
    columns: int  # output columns of a block
    outs: int  # output channels of a pass
    pass_strips: int  # strips of a pass
    slots: int  # transposed tiles of x held in SBUF, a strip of a block each
    windows: int  # blocks of x that wait in SBUF for the Tensor engine to transpose them
    iteration_frames: int  # output frames of an iteration
    iteration_areas: int  # rows by columns of a frame, of an iteration
    looped: bool  # equal iterations are one hardware loop
    # What one of two cores computes, first and end; None: all.
    outs_of: Span | None = None  # output channels: whole packs, or some of the only one
    ins_of: Span | None = None  # input channels of a pack
    strips_of: Span | None = None  # halves of strips, of those that these input channels make
    # Of sheets (`sheets.py`): taps share tiles that DMA transposes.
    piece: int = 0  # columns of a tile; 0: no sheets, each tap has tiles of its own
    apart: int = 1  # rows from row to row of a tile

    @property
    def is_looped(self) -> bool:
        """Whether equal iterations are a hardware loop."""
        return self.looped

    def input_specs(self) -> tuple[ArraySpec, ...]:
        """The tensors that a caller gives: x and dy."""
        shape = self.shape
        dy = (shape.batch, shape.c_out, *shape.out_sizes())
        return (*super().input_specs(), ArraySpec(dy, self.dtype))

    def block(self) -> Triple:
        """Output frames, rows and columns of a block."""
        return 1, self.rows, self.columns

    def in_words(self) -> str:
        """The decisions in a line."""
        engine = "DMA" if self.by_dma else "the Tensor engine"
        engine += ", once for all taps" if self.has_sheets else ""
        loop = "a hardware loop" if self.looped else "unrolled"
        return (
            f"weight gradient, blocks of {self.images} images x {self.rows} rows x {self.columns}"
            f" columns, transposed by {engine}, {self.pass_strips} strips a pass, {loop}"
        )

    @property
    def groups(self) -> int:
        """Groups of channels of the convolution."""
        return self.shape.groups

    @property
    def pack_in(self) -> int:
        """Input channels of a pack."""
        return self.shape.c_in // self.groups * self.pack

    @property
    def pack_out(self) -> int:
        """Output channels of a pack."""
        return self.shape.c_out // self.groups * self.pack

    @property
    def packs(self) -> int:
        """Packs of groups: gradients that have nothing to do with each other."""
        return self.groups // self.pack

    @property
    def own_packs(self) -> range:
        """The packs that this core computes."""
        if self.outs_of is None or self.packs == 1:
            return range(self.packs)
        return range(self.outs_of[0] // self.pack_out, self.outs_of[1] // self.pack_out)

    @property
    def own_outs(self) -> Span:
        """The output channels of each of them that it computes, first and end."""
        only = self.outs_of if self.packs == 1 else None
        return only or (0, self.pack_out)

    @property
    def most_outs(self) -> int:
        """How many they are."""
        first, end = self.own_outs
        return end - first

    @property
    def makes_bias(self) -> bool:
        """Whether this core sums up dy: cores that share output channels do not both."""
        return not (self.ins_of or (0,))[0] and not (self.strips_of or (0,))[0]

    @property
    def gradient_columns(self) -> int:
        """Columns of the gradient of one output channel: taps x input channels of a pack."""
        return self.shape.taps() * self.pack_in

    @property
    def has_sheets(self) -> bool:
        """Whether all taps of a frame share tiles of x."""
        return self.piece > 0

    @property
    def sheet_columns(self) -> int:
        """Columns of a sheet, and of dy that it meets."""
        return sheet_span(self.shape).columns

    @property
    def unit(self) -> int:
        """Columns of x that DMA transposes as one element."""
        return self.shape.stride[WIDTH] if self.has_sheets else 1

    @property
    def is_flat(self) -> bool:
        """Whether tiles run on from row to row, so that taps beyond a row's ends are masked."""
        return self.by_dma and self.rows > 1 and not self.has_sheets

    @property
    def pitch(self) -> int:
        """Positions from row to row of a block."""
        return self.shape.size[WIDTH] if self.is_flat else self.columns

    @property
    def rows_of_tile(self) -> int:
        """Whole rows that a tile of the Tensor engine holds."""
        return max(1, self.machine.partitions // self.columns)

    @property
    def tile_lines(self) -> int:
        """Positions of a whole tile of a single tap.

        Fewer than there are partitions, if no more tiles of a block are then all alike: one DMA
        brings them, where a smaller last one is a DMA of its own.
        """
        lines = self.machine.partitions
        positions = (self.rows - 1) * self.pitch + self.columns
        tiles = -(-positions // lines)
        return lines if positions % tiles else positions // tiles

    def tile_count(self, rows: int, columns: int) -> int:
        """Tiles of so many rows and columns of an image."""
        if self.has_sheets:
            return -(-self.sheet_columns // self.piece) * min(self.apart, rows)
        if not self.by_dma:
            return -(-rows // self.rows_of_tile)
        return -(-((rows - 1) * self.pitch + columns) // self.tile_lines)

    @property
    def tiles(self) -> int:
        """Tiles of a whole block."""
        return self.images * self.tile_count(self.rows, self.columns)

    @property
    def masks(self) -> tuple[int, ...]:
        """Column shifts at which a row's neighbours show up, so that dy is masked; 0 is none."""
        if not self.is_flat:
            return ()
        shape = self.shape
        shifts = (
            tap * shape.dilation[WIDTH] - shape.pad_before[WIDTH]
            for tap in range(shape.kernel[WIDTH])
        )
        beyond = shape.size[WIDTH] - shape.out_size(WIDTH)
        return tuple(shift for shift in shifts if not 0 <= shift <= beyond)

    @property
    def shifts(self) -> tuple[int, ...]:
        """How dy is moved, for sheets: a copy each, the first one not moved."""
        return sheet_shifts(self.shape) if self.has_sheets else (0,)

    @property
    def dy_copies(self) -> int:
        """Copies of dy: as it is, masked or moved."""
        return len(self.shifts) + len(self.masks)

    @property
    def slot_elems(self) -> int:
        """Elements a partition of a slot: a strip of a block of x, or a sheet."""
        if not self.has_sheets:
            return self.tiles * self.strip_sizes.columns
        pieces = self.images * -(-self.sheet_columns // self.piece)
        rows = row_steps(self.shape).tiles(min(self.apart, self.rows), self.shape.kernel[HEIGHT])
        return pieces * rows * self.strip_sizes.channels * self.unit

    def strips(self) -> tuple[GradientStrip, ...]:
        """The columns of the gradient of a pack, in the order in which they are made."""
        return _strips(*self._strips_by())

    def _strips_by(self) -> tuple[Triple, Span, int, Span | None, tuple[Span, ...]]:
        """What strips follow from."""
        ins, bank = self.ins_of or (0, self.pack_in), self.machine.psum_bank_fp32_elems
        return self.shape.kernel, ins, bank, self.strips_of, self._joined_taps(ins, bank)

    def _joined_taps(self, ins: Span, bank: int) -> tuple[Span, ...]:
        """Column taps of a strip, first and how many: several where a sheet and a bank have them.

        Cores that share strips count those of single taps.
        """
        columns = self.shape.kernel[HEIGHT] * (ins[1] - ins[0])
        if self.has_sheets and self.strips_of is None and columns * self.unit <= bank:
            return joined_taps(self.shape)
        return tuple((tap, 1) for tap in range(self.shape.kernel[WIDTH]))

    @property
    def out_tiles(self) -> int:
        """Tiles of output channels of a pass."""
        return -(-self.outs // self.machine.partitions)

    @property
    def pass_columns(self) -> int:
        """Columns of the gradient that stay in SBUF during a pass."""
        return _pass_columns(self.strip_sizes, self.pass_strips)

    @property
    def strip_sizes(self) -> StripSizes:
        """What SBUF has to hold of strips."""
        return _strip_sizes(*self._strips_by())

    def frames_read(self, frame: int) -> tuple[int, ...]:
        """The input frame each frame tap of an output frame reads; -1 for zeros."""
        return self.all_frames_read()[frame]

    def all_frames_read(self) -> tuple[tuple[int, ...], ...]:
        """The same for every output frame."""
        return _frames_read(self.shape)

    def image_spans(self) -> tuple[tuple[int, int], ...]:
        """First image and images of each block."""
        return _cut(self.shape.batch, self.images)

    def row_spans(self) -> tuple[tuple[int, int], ...]:
        """First row and rows of each block of a frame."""
        return _cut(self.shape.out_size(HEIGHT), self.rows)

    def column_spans(self) -> tuple[tuple[int, int], ...]:
        """First column and columns of each block of a row."""
        return _cut(self.shape.out_size(WIDTH), self.columns)


@lru_cache(maxsize=256)
def _frames_read(shape: ConvShape) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(
            shape.source(DEPTH, shape.in_position(DEPTH, frame, tap))
            for tap in range(shape.kernel[DEPTH])
        )
        for frame in range(shape.out_size(DEPTH))
    )


@lru_cache(maxsize=256)
def _strips(
    taps: Triple, ins: Span, most: int, part: Span | None, joined: tuple[Span, ...]
) -> tuple[GradientStrip, ...]:
    begin, end = ins
    row_taps = max(1, min(taps[HEIGHT], most // (end - begin)))
    strips = []
    for frame_tap in range(taps[DEPTH]):
        variant = 0
        for channel in range(begin, end, most):
            channels = min(most, end - channel)
            for column_tap, columns in joined:
                for row_tap in range(0, taps[HEIGHT], row_taps):
                    count = min(row_taps, taps[HEIGHT] - row_tap)
                    taken = (frame_tap, column_tap, row_tap, count, channel, channels, columns)
                    strips.append(GradientStrip(variant, *taken))
                    variant += 1
    return _own_halves(strips, part) if part else tuple(strips)


def _own_halves(strips: list[GradientStrip], part: Span) -> tuple[GradientStrip, ...]:
    """Strips from one half to another: of one that is cut, the first or the last channels.

    Tiles of a cut strip are others than those of its variant for another frame tap.
    """
    variants = max(strip.variant for strip in strips) + 1
    own = []
    for number, strip in enumerate(strips):
        first, end = max(part[0], 2 * number), min(part[1], 2 * number + 2)
        begin, stop = (strip.channels * (at - 2 * number) // 2 for at in (first, end))
        if first < end and stop - begin == strip.channels:
            own.append(strip)
        elif first < end and begin < stop:
            cut = replace(strip, variant=variants, channel=strip.channel + begin)
            own.append(replace(cut, channels=stop - begin))
    return tuple(own)


@lru_cache(maxsize=256)
def _strip_sizes(
    taps: Triple, ins: Span, most: int, part: Span | None, joined: tuple[Span, ...]
) -> StripSizes:
    strips = _strips(taps, ins, most, part, joined)
    columns = [strip.columns for strip in strips]
    channels = max(strip.channels for strip in strips)
    return StripSizes(max(columns), channels, tuple(accumulate(columns, initial=0)))


@lru_cache(maxsize=4096)
def _pass_columns(sizes: StripSizes, pass_strips: int) -> int:
    before, last = sizes.before, len(sizes.before) - 1
    return max(
        before[min(first + pass_strips, last)] - before[first]
        for first in range(0, last, pass_strips)
    )


def _cut(size: int, part: int) -> tuple[tuple[int, int], ...]:
    return tuple((first, min(part, size - first)) for first in range(0, size, part))

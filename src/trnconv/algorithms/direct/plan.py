"""DirectPlan: the decisions of a direct convolution; `lower.py` works out what follows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import lcm
from typing import ClassVar

from nkisim.machine import PARTITIONS, V3
from trnconv.algorithms.algorithm import Plan
from trnconv.algorithms.direct.reduced_problem import ReducedProblem
from trnconv.problem.epilogue import ITEM_BYTES

# What one line (partition) of a window stands for. The deeper the level, the more taps are stacked
# on partitions, and the fewer are left to shifted views of one window.
BY_FRAME, BY_ROW, BY_COLUMN = 1, 2, 3
_LEVEL_WORDS = {BY_FRAME: "frames", BY_ROW: "frames and rows"}

# In which order the views of a window are added up. Only the first looks at where the borders are;
# the others are the same for every output, and so are the sums.
INNER_FIRST, MIDDLE_FIRST, ASCENDING = "inner first", "middle first", "ascending"


@dataclass(frozen=True)
class PePacking:
    """Some output channels, and how many of their output positions share one matmul.

    A stationary matrix holds the filters of `frames` x `rows` x `columns` neighbouring outputs,
    each shifted against the input lines they have in common, with zeros where an output does not
    read a line (a Toeplitz matrix). `levels` says how input lines are stacked: whole tiles of lines
    at the first level, what is left over at the next, and so on. Tiles of the first level are cut
    from all lines of a block and shared by its outputs, or cut for each tile of outputs on its own:
    more loads, fewer tiles.

    With `tile_columns`, the array is split into column tiles that work side by side, each on `unit`
    frames and rows of the stack, with a moving operand of its own. Only for machines that run
    column tiles in parallel.

    With an `order` other than INNER_FIRST, every output is summed alike: from the same products in
    the same order, wherever it is. Frames that do not exist then keep their lines, as zeros.
    """

    first_channel: int
    channels: int
    frames: int = 1
    rows: int = 1
    columns: int = 1
    levels: tuple[int, ...] = (BY_FRAME,)
    own_windows: bool = False
    separate: bool = False  # every position of the stack in sums of its own
    pairs_columns: bool = False  # but for its columns, which share them
    tile_columns: int = PARTITIONS
    unit: tuple[int, int] = (0, 0)  # frames and rows of one column tile
    apart: bool = False  # no window has lines of two frames
    order: str = INNER_FIRST  # of views

    def at(self, levels: tuple[int, ...], own_windows: bool) -> PePacking:  # noqa: FBT001
        """The same outputs with input lines stacked another way."""
        return replace(self, levels=levels, own_windows=own_windows)

    @property
    def takes_needed_lines_only(self) -> bool:
        """Whether no window holds lines that its sums do not read."""
        return len(self.levels) > 1 or self.own_windows or self.apart

    @property
    def sums_alike(self) -> bool:
        """Whether the order of a sum does not depend on where its output is."""
        return self.order != INNER_FIRST

    @property
    def stack(self) -> int:
        """Output positions of one channel in one matmul column."""
        return self.frames * self.rows * self.columns

    def in_words(self) -> str:
        """How it fills the array."""
        last = self.first_channel + self.channels - 1
        counts = ((self.frames, "frames"), (self.rows, "rows"), (self.columns, "columns"))
        stack = [f"{count} {name}" for count, name in counts if count > 1]
        outputs = f", {' x '.join(stack)} of outputs {self._sums_in_words()}" if stack else ""
        deeper = [_LEVEL_WORDS.get(level, "all taps") for level in self.levels]
        lines = f"lines stacked by {', the rest by '.join(deeper)}"
        tiles = f", column tiles of {self.tile_columns}" if self.unit != (0, 0) else ""
        return f"channels {self.first_channel}..{last}{outputs}; {lines}{tiles}"

    def _sums_in_words(self) -> str:
        """Which of its stacked outputs are on M together."""
        if not self.separate:
            return "on M"
        return "with their columns on M" if self.pairs_columns else "in sums of their own"


@dataclass(frozen=True)
class DirectPlan(Plan):
    """How one core computes a problem (or its share of one)."""

    algorithm: ClassVar[str] = "direct"

    reduced: ReducedProblem  # the shape, folded
    passes: tuple[PePacking, ...]
    frames: int  # output frames of a block
    rows: int  # output rows of a block
    columns: int  # output columns of a block
    slots: tuple[int, int, int]  # windows held in SBUF, by level
    ahead: bool = False  # windows of the next block are loaded before this one is stored
    out_buffers: int = 2
    streamed: int = 0  # slots for weights that are loaded as they are used; 0: all stay in SBUF
    window_major: bool = False  # window by window over all open sums, not sum by sum
    looped: bool = False  # equal blocks are a hardware loop (`loops.py`)
    body_blocks: int = 1  # spans in an iteration of it, each with all its blocks; by kind, blocks
    by_kind: bool = False  # a loop for each kind of block, not one along an axis
    lead: tuple[int, ...] = ()  # sizes of the first blocks, mirrored at the end
    rows_of: tuple[int, int] = (0, 0)  # the output rows this core computes; (0, 0): all
    columns_of: tuple[int, int] = (0, 0)  # the same of columns

    @property
    def piece_frames(self) -> tuple[int, ...]:
        """Frames of each tensor that x lies in."""
        return self.reduced.pieces or (self.shape.size[0],)

    @property
    def placed_tensors(self) -> int:
        """Tensors that blocks have an offset into, besides y: of x, and a coarse residual."""
        return self.reduced.piece_count() + (self.epilogue.coarse is not None)

    @property
    def evicts_by_column(self) -> bool:
        """Whether sums of columns with a step between them leave PSUM one by one."""
        return not self.machine.accepts.strided_evictions

    @property
    def is_looped(self) -> bool:
        """Whether equal blocks are a hardware loop."""
        return self.looped

    def block(self) -> tuple[int, int, int]:
        """Output frames, rows and columns of a block."""
        return self.frames, self.rows, self.columns

    def in_words(self) -> str:
        """The decisions in a line."""
        loop = self.loop_in_words()
        weights = "weights streamed" if self.streamed else "weights in SBUF"
        return (
            f"direct, blocks of {self.frames} frames x {self.rows} rows x {self.columns} columns,"
            f" {weights}, {loop}"
        )

    def loop_in_words(self) -> str:
        """Whether there are hardware loops, and how long their iterations are."""
        if not self.looped:
            return "unrolled"
        if self.by_kind:
            return f"hardware loops of {self.body_blocks} blocks an iteration"
        return f"a hardware loop of {self.body_blocks} spans an iteration"

    def variant(self) -> str:
        """How it fills the array."""
        return "; ".join(packing.in_words() for packing in self.passes)

    @property
    def out_bytes(self) -> int:
        """Bytes of an element of y."""
        return ITEM_BYTES[self.epilogue.dtype or self.dtype]

    @property
    def scalar_adds(self) -> bool:
        """Whether the Scalar engine adds a bias to what it copies (device rule: not on trn1)."""
        return self.machine.generation >= V3 and self.machine.accepts.scalar_bias

    @property
    def row_multiple(self) -> int:
        """Blocks have a multiple of this many rows, so that every pass fills its stacks."""
        return self.multiple_of(self.passes)

    @staticmethod
    def multiple_of(passes: tuple[PePacking, ...]) -> int:
        """The least common number of rows that fills the stacks of all passes."""
        return lcm(*(packing.rows for packing in passes))

    @property
    def row_span(self) -> tuple[int, int]:
        """The output rows this core computes, first and end."""
        return self.rows_of if self.rows_of != (0, 0) else (0, self.reduced.out[1])

    @property
    def column_span(self) -> tuple[int, int]:
        """The output columns this core computes, first and end."""
        return self.columns_of if self.columns_of != (0, 0) else (0, self.reduced.out[2])

    @property
    def frame_area(self) -> int:
        """Output positions of a frame that this core computes."""
        (row, row_end), (column, column_end) = self.row_span, self.column_span
        return (row_end - row) * (column_end - column)

    @property
    def is_plain(self) -> bool:
        """Whether every window holds channels of one frame, and every matmul one position."""
        return all(packing.stack == 1 and packing.levels == (BY_FRAME,) for packing in self.passes)

    @property
    def is_reproducible(self) -> bool:
        """Whether the order in which an output is summed depends on the filters alone."""
        return all(packing.sums_alike for packing in self.passes)

    def exact_for_non_finite(self) -> bool:
        """Whether an Inf or NaN reaches only the outputs whose taps meet it.

        Zeros of a Toeplitz matrix, and of a tile that is only partly needed, meet inputs that an
        output has no tap for: 0 * Inf is NaN.
        """
        whole = self.reduced.c_in % PARTITIONS == 0
        alone = [packing.stack == 1 or packing.unit == (1, 1) for packing in self.passes]
        return all(alone) and (
            whole or all(packing.takes_needed_lines_only for packing in self.passes)
        )

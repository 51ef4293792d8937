"""UpsamplePlan: how one core computes an upsampled convolution by differences of neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trnconv.algorithms.algorithm import Plan
from trnconv.algorithms.winograd_upsample.error import expected_ratio
from trnconv.algorithms.winograd_upsample.terms import TIMES
from trnconv.geometry import ConvShape
from trnconv.problem.epilogue import ITEM_BYTES

DEPTH, HEIGHT, WIDTH = 0, 1, 2
V_DTYPE = "float16"  # of differences and weights
V_BYTES = ITEM_BYTES[V_DTYPE]


@dataclass(frozen=True)
class UpsamplePlan(Plan):
    """A block is `rows` x `columns` of the input, and all frames of an image.

    Blocks side by side are a span. A hardware loop has `iteration_spans` of them in an iteration;
    spans at the first and the last row stand before it, unrolled.
    """

    algorithm: ClassVar[str] = "winograd_upsample"

    shape: ConvShape
    rows: int
    columns: int
    streamed: bool = False  # weights are loaded for each tile of outputs; else all stay in SBUF
    gpsimd_rows: bool = False  # whether the GpSimd engine subtracts rows, not the Vector engine
    gpsimd_sums: bool = False  # whether it makes the sums of lower rows of copies, the same
    iteration_spans: int = 0  # 0: everything is unrolled
    rows_of: tuple[int, int] | None = None  # of the output, first and end: one of two cores'

    @property
    def family(self) -> str:
        """There is one algorithm."""
        return "differences"

    @property
    def is_looped(self) -> bool:
        """Whether spans are a hardware loop."""
        return self.iteration_spans > 0

    @property
    def is_reproducible(self) -> bool:
        """Frames are computed alone; with taps along them, which ones are summed first differs."""
        return self.shape.kernel[DEPTH] == 1

    @property
    def expected_ratio(self) -> float:
        """Over a direct convolution whose merged taps are not rounded."""
        return expected_ratio(self.dtype)

    @property
    def row_span(self) -> tuple[int, int]:
        """Output rows that this core computes."""
        return self.rows_of or (0, self.shape.out_size(HEIGHT))

    @property
    def out_bytes(self) -> int:
        """Bytes of an element of y."""
        return ITEM_BYTES[self.epilogue.dtype or self.dtype]

    def block(self) -> tuple[int, int, int]:
        """Output frames, rows and columns of a block."""
        return self.shape.out_size(DEPTH), TIMES * self.rows, TIMES * self.columns

    def in_words(self) -> str:
        """The decisions in a line."""
        words = [f"differences, blocks of {self.rows} rows x {self.columns} columns of the input"]
        words.append("weights streamed" if self.streamed else "weights in SBUF")
        by_gpsimd = [("rows", self.gpsimd_rows), ("sums", self.gpsimd_sums)]
        named = " and ".join(name for name, chosen in by_gpsimd if chosen)
        words += [f"{named} by GpSimd"] if named else []
        words.append(
            f"a loop of {self.iteration_spans} spans an iteration" if self.is_looped else "unrolled"
        )
        return ", ".join(words)

    def variant(self) -> str:
        """How it differs from other plans, blocks aside."""
        return "weights streamed" if self.streamed else "weights in SBUF"

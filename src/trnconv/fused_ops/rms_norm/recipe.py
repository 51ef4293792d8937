"""What an RMS norm's kernel does, in NKI's own value types."""

from __future__ import annotations

from dataclasses import dataclass

from trnconv._nki import NKIObject
from trnconv.algorithms.digest import digest_of
from trnconv.fused_ops.sweep import SweepRow


@dataclass(frozen=True)
class RmsNormRecipe(NKIObject):
    """Everything the kernel does on one core."""

    shape: tuple[int, int, int]  # images, channels, positions
    x_first: int  # position of x that is the first of them
    x_positions: int  # of a channel of x, which may have more
    tiles: tuple[tuple[int, int], ...]  # first channel and channels of each tile
    width: int  # positions of a step
    bank: int  # positions whose sums stand in one PSUM bank
    vector_columns: int  # of a step, squared by the Vector engine
    squares: str  # type of the squares
    under_root: tuple[float, ...]  # terms, on a partition each, of what is added to the sums
    quadrant: int  # partitions from one of these to the next
    lines: int  # partitions: rows and columns of the array
    activation: str
    has_beta: bool
    rows: tuple[SweepRow, ...]

    def __repr__(self) -> str:
        """What compiled kernels are kept by: a digest of all of it, and of the kernel's sources."""
        return f"{type(self).__name__}({digest_of(self)})"

    def __hash__(self) -> int:
        """By the same, which equal recipes have in common."""
        return hash(repr(self))

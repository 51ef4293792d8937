"""What the modulation kernel does, in NKI's own value types."""

from __future__ import annotations

from dataclasses import dataclass

from trnconv._nki import NKIObject
from trnconv.algorithms.digest import digest_of


@dataclass(frozen=True)
class BlockRun(NKIObject):
    """Blocks of a frame, one after the other: `blocks` of them, `iterations` times."""

    frame: int
    low_frame: int
    first: int  # block
    blocks: int
    iterations: int  # of a hardware loop; 1: none


@dataclass(frozen=True)
class PsumChunk(NKIObject):
    """Positions of a step whose sums stand in one bank: rows that share low ones, some columns."""

    low_row: int  # of the step
    low_rows: int
    row: int  # of those that share a low one
    rows: int
    low_column: int
    low_columns: int


@dataclass(frozen=True)
class ModulationRecipe(NKIObject):
    """Everything the kernel does on one core; a block is `low_rows` low rows, in `parts` steps."""

    shape: tuple[int, int, int, int]  # of x and y: channels, frames, rows, columns
    low: tuple[int, int, int]  # frames, rows, columns of scales and shifts
    factor: int
    tiles: tuple[tuple[int, int], ...]  # first channel and channels of each tile
    lines: int
    bank: int
    low_rows: int
    parts: int
    rows: int  # of a step that share a low one
    width: int  # positions of a step
    chunks: tuple[PsumChunk, ...]  # of a step
    has_scale_shift: bool
    activation: str
    runs: tuple[BlockRun, ...]

    def __repr__(self) -> str:
        """What compiled kernels are kept by: a digest of all of it, and of the kernel's sources."""
        return f"{type(self).__name__}({digest_of(self)})"

    def __hash__(self) -> int:
        """By the same, which equal recipes have in common."""
        return hash(repr(self))

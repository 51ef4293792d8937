"""What the two kernels of a group norm do, in NKI's own value types."""

from __future__ import annotations

from dataclasses import dataclass

from trnconv._nki import NKIObject
from trnconv.algorithms.digest import digest_of
from trnconv.fused_ops.sweep import SweepRow


@dataclass(frozen=True)
class GroupNormRecipe(NKIObject):
    """Everything the kernels do on one core."""

    shape: tuple[int, int, int]  # of x and y: images, channels, positions of all frames
    images: int  # what has statistics of its own: images, or frames of one
    image_pitch: int  # elements of x from one of these to the next
    channel_pitch: int
    tiles: tuple[tuple[int, int], ...]  # first channel and channels of each tile
    lines: int  # partitions
    width: int  # positions of a step
    chunk: int  # positions of one record of statistics
    shared: int  # of a whole step's positions, whose sums two engines take; 0: all have records
    held: int  # whole steps, before their records are combined
    stride: int  # columns of the records of such a step
    part: int  # of the statistics that this core writes
    parts: int
    eps: float
    activation: str
    rows: tuple[SweepRow, ...]

    def __repr__(self) -> str:
        """What compiled kernels are kept by: a digest of all of it, and of the kernel's sources."""
        return f"{type(self).__name__}({digest_of(self)})"

    def __hash__(self) -> int:
        """By the same, which equal recipes have in common."""
        return hash(repr(self))

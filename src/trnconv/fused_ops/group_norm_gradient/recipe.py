"""What the two kernels of a group norm's gradient do, in NKI's own value types."""

from __future__ import annotations

from dataclasses import dataclass

from trnconv._nki import NKIObject
from trnconv.algorithms.digest import digest_of
from trnconv.fused_ops.sweep import SweepRow


@dataclass(frozen=True)
class GroupNormGradientRecipe(NKIObject):
    """Everything the kernels do on one core."""

    shape: tuple[int, int, int]  # one image, channels, positions
    tiles: tuple[tuple[int, int], ...]  # first channel and channels of each tile
    lines: int  # partitions
    width: int  # positions of a step
    between: str  # type of what engines hand to each other
    activation: str
    part: int  # which of the sums over positions this core writes
    parts: int
    rows: tuple[SweepRow, ...]

    def __repr__(self) -> str:
        """What compiled kernels are kept by: a digest of all of it, and of the kernel's sources."""
        return f"{type(self).__name__}({digest_of(self)})"

    def __hash__(self) -> int:
        """By the same, which equal recipes have in common."""
        return hash(repr(self))

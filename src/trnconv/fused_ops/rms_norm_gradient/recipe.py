"""What the kernel of an RMS norm's gradient does, in NKI's own value types."""

from __future__ import annotations

from dataclasses import dataclass

from trnconv._nki import NKIObject
from trnconv.algorithms.digest import digest_of
from trnconv.fused_ops.rms_norm.recipe import RmsNormRecipe


@dataclass(frozen=True)
class RmsNormGradientRecipe(NKIObject):
    """Everything the kernel does on one core."""

    norm: RmsNormRecipe  # the norm itself: sizes, tiles, steps, what is under the root
    between: str  # type of what engines hand to each other
    gpsimd_passes: int  # of the two products with dy, from the last one on
    part: int  # which of the sums over positions this core writes
    parts: int

    def __repr__(self) -> str:
        """What compiled kernels are kept by: a digest of all of it, and of the kernel's sources."""
        return f"{type(self).__name__}({digest_of(self)})"

    def __hash__(self) -> int:
        """By the same, which equal recipes have in common."""
        return hash(repr(self))

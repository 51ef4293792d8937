"""The context of lazy tensors: the patched model at work, and what may be rewritten."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from trnconv.problem.policy import ALWAYS_DIRECT, DEFAULT_POLICY, Policy
from trnconv.pytorch.lazy.base.stats import PatchStats
from trnconv.pytorch.lazy.convolutions.filters import Filters
from trnconv.pytorch.lazy.convolutions.operands import ConvOperands, Window3d
from trnconv.pytorch.lazy.frames.video import LazyVideo
from trnconv.runtime.ranges import Ranges


@dataclass(frozen=True)
class Rewrites:
    """What a patched model may do differently, each exact in real arithmetic."""

    splice: bool = True  # padding, cache and copies of frames are read where they lie
    fold_upsample: bool = True  # nearest upsampling becomes phases of the convolution
    before_upsample: bool = True  # pointwise convolutions run before upsampling
    fuse_epilogues: bool = True  # residual and activation happen on the way out of PSUM
    fuse_norms: bool = True  # a norm and the activation behind it are one kernel
    fuse_attention: bool = True  # attention is one kernel, and skips what a mask hides
    norm_epilogues: bool = True  # a norm over channels is an epilogue, where that is faster
    coarse_residuals: bool = True  # a shortcut past an upsampling is read at its own resolution


ALL_REWRITES = Rewrites()
NO_REWRITES = Rewrites(
    splice=False,
    fold_upsample=False,
    before_upsample=False,
    fuse_epilogues=False,
    fuse_norms=False,
    fuse_attention=False,
    norm_epilogues=False,
    coarse_residuals=False,
)


class BandPort(Protocol):
    """Every tensor is a band, along rows, columns or both, of what the model is about."""

    @property
    def axes(self) -> tuple[int, ...]:
        """1: bands of rows, 2: of columns; none: tensors are whole at the moment."""

    def whole(self, operands: ConvOperands, window: Window3d) -> ConvOperands:
        """The operands of all ranks together: sizes only."""

    def every(self, operands: ConvOperands, window: Window3d) -> list[ConvOperands]:
        """The operands of each rank, with the rows its outputs read: sizes only."""

    def extended(
        self, operands: ConvOperands, window: Window3d, filters: Filters, context: PatchContext
    ) -> ConvOperands:
        """The operands of this rank, with the rows its outputs read, or with `later`."""

    def require_movable(self, video: LazyVideo) -> None:
        """Refuse to do padding of bands, where no convolution asks what is beyond."""

    def require_local(self, filters: Filters) -> None:
        """Refuse a convolution that reads other rows, and whose input is no video."""


@dataclass
class PatchContext:
    """One patched model at work."""

    stats: PatchStats
    rewrites: Rewrites = ALL_REWRITES
    reproducible: bool = False
    policy: Policy = DEFAULT_POLICY
    ranges: Ranges | None = None  # of the inputs of its layers, if they were sampled
    backend: str = "auto"
    refused: frozenset[str] = frozenset()  # modules whose own calls of torch's functions stay
    left_to_torch: frozenset[str] = frozenset()  # convolutions
    within: Callable[[], AbstractContextManager[Any]] = nullcontext  # of every session
    lazy: bool = True  # False: convolutions run at once, and nothing is recorded
    spread: BandPort | None = None  # over several ranks

    def policy_for(self, module: str) -> Policy:
        """What a layer may give for speed.

        Bands of a video would have to cut it into the same tiles to have the same bits, so between
        ranks that are to agree nothing is given.
        """
        if self.reproducible and self.spread is not None:
            return ALWAYS_DIRECT
        if self.ranges is None:
            return self.policy
        return self.ranges.policy(module, self.policy) if module in self.ranges else ALWAYS_DIRECT


# Records an operator and its arguments: returns what torch would, lazily, or NotImplemented.
Recorder = Callable[[PatchContext, Any, Any, Any], Any]

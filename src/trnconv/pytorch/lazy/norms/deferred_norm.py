"""A norm that was asked for: what is normed and how, and the kernels that do it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import torch

from trnconv.problem.epilogue import IDENTITY
from trnconv.pytorch.lazy.base.memory import storage_of
from trnconv.pytorch.lazy.convolutions.deferred_conv import dense
from trnconv.pytorch.lazy.frames.materialize import done, stored
from trnconv.pytorch.lazy.frames.video import NO_PADS, AxisOrder, FrameRun, LazyVideo
from trnconv.pytorch.lazy.tensors.context import PatchContext
from trnconv.pytorch.operators.norm_call import FRAME_GROUPS, GROUPS, ModulationCall, NormCall
from trnconv.pytorch.operators.norms import (
    factors_refusal,
    group_factors,
    modulated,
    modulation_refusal,
    normed,
    refusal,
)

Tensor = torch.Tensor


class NormPart(Enum):
    """How far a norm has come."""

    squares = "x^2"
    lengths = "root of the sum of squares over channels"
    means = "mean of squares over channels"
    roots = "root of the mean"
    inverses = "1 / root of the mean"
    scaled = "x normed, times a video of a lower resolution"
    whole = "x normed, scaled and shifted"


@dataclass(frozen=True)
class LowVideo:
    """A video that was upsampled on paper: frames of a base, each for so many rows and columns."""

    base: Any  # StoredFrames or Pending
    factor: int
    frame_map: tuple[int, ...]

    @staticmethod
    def of(video: LazyVideo) -> LowVideo | None:
        """None if it is not all of one base, upsampled by whole numbers."""
        first = video.runs[0]
        of_one_base = all((run.base, run.scale) == (first.base, first.scale) for run in video.runs)
        if not of_one_base or video.pads != NO_PADS or first.scale[0] != first.scale[1]:
            return None
        frames = [
            frame
            for run in video.runs
            for frame in range(run.start, run.stop)
            for _ in range(run.repeat)
        ]
        every = set(frames) == set(range(first.base.shape[2])) and first.base.shape[0] == 1
        plain = every and video.dtype == first.base.dtype and video.layout is AxisOrder.video
        return LowVideo(first.base, first.scale[0], tuple(frames)) if plain else None

    def tensor(self, context: PatchContext) -> Tensor:
        """The base, in order."""
        return dense(stored(FrameRun(self.base, 0, self.base.shape[2])), context.stats)


@dataclass(frozen=True)
class DeferredNorm:
    """What is normed, and how; of a part, so far as it is known."""

    source: LazyVideo  # frames of x, in the type they have in memory
    axis: int  # of channels, where the model looks
    call: NormCall
    context: PatchContext
    gamma: Tensor | None = None
    beta: Tensor | None = None
    scale: LowVideo | None = None  # what a group norm is multiplied by
    shift: LowVideo | None = None  # what is then added

    def reads(self) -> frozenset[int]:
        """Storages of x, gamma and beta."""
        weights = [tensor for tensor in (self.gamma, self.beta) if tensor is not None]
        own = frozenset(storage_of(tensor) for tensor in weights)
        lows = [low.base for low in (self.scale, self.shift) if low is not None]
        bases = [*(run.base for run in self.source.runs), *lows]
        return own.union(*(base.lies_in() for base in bases))

    def by_kernel(self, dtype: torch.dtype) -> Tensor | None:
        """In one kernel, or two; None if none does it."""
        if dtype != self.source.dtype or (self.beta is not None and self.gamma is None):
            return None
        has_beta = self.beta is not None
        if self.scale is not None:
            return self._modulated(self.scale)
        if refusal(self.source, self.call, self.context.backend, has_beta=has_beta):
            return None
        x, call = self._in_memory()
        return normed(x, self.gamma, self.beta, call, self.context.backend)

    def _modulated(self, scale: LowVideo) -> Tensor | None:
        """With scale and shift: statistics, and a kernel that does the rest."""
        backend, shift = self.context.backend, self.shift
        linear = replace(self.call, activation=IDENTITY)
        call = ModulationCall(scale.factor, scale.frame_map, self.call.activation)
        if shift is None or modulation_refusal(self.source, call, backend):
            return None
        if factors_refusal(self.source, linear, backend, has_beta=self.beta is not None):
            return None
        x, _ = self._in_memory()
        low = (scale.tensor(self.context), shift.tensor(self.context))
        scale_shift = group_factors(x, self.gamma, self.beta, linear, backend)
        return modulated(x, low, scale_shift, call, backend)

    def _in_memory(self) -> tuple[Tensor, NormCall]:
        """x in order. Some frames of a tensor are read where they lie, by a norm over channels."""
        run = self.source.runs[0]
        if len(self.source.runs) == 1 and not run.whole and not self.by_groups:
            every = stored(replace(run, start=0, stop=run.base.shape[2]))
            if every.is_contiguous():
                return every, replace(self.call, first=run.start, frames=run.stop - run.start)
        x = done(replace(self.source, layout=AxisOrder.video), self.context.stats)
        return dense(x, self.context.stats), self.call

    @property
    def by_groups(self) -> bool:
        """Whether statistics are of many positions, of several frames perhaps."""
        return self.call.kind in (GROUPS, FRAME_GROUPS)

    def of_frames(self, start: int, stop: int) -> DeferredNorm | None:
        """The norm of some frames; None if others have to do with it."""
        some = None if self.by_groups else self.source.frames(start, stop)
        return None if some is None else replace(self, source=some)

"""A norm that has not run, or a part of one: an operator of torch on its way."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import torch

from trnconv.problem.epilogue import IDENTITY
from trnconv.pytorch.backends.aten import finished
from trnconv.pytorch.backends.choice import on_neuron
from trnconv.pytorch.lazy.base.deferred_result import Pending
from trnconv.pytorch.lazy.base.memory import Counted
from trnconv.pytorch.lazy.norms.deferred_norm import DeferredNorm, NormPart
from trnconv.pytorch.lazy.norms.epilogues import conv_to_norm, normed_by
from trnconv.pytorch.lazy.norms.proven_range import largest_of

Tensor = torch.Tensor


class PendingNorm(Pending):
    """A norm, or a part of one. `by_torch` is the model's own operator."""

    def __init__(
        self,
        part: NormPart,
        norm: DeferredNorm,
        like: tuple[torch.Size, torch.dtype],
        by_torch: Callable[[], Tensor],
        counted: tuple[Counted, ...] = (),
    ) -> None:
        self.part = part
        self.norm: DeferredNorm | None = norm  # None: it has run
        self._by_torch: Callable[[], Tensor] | None = by_torch
        self._counted = counted
        self._largest: float | None = None
        self._cut: tuple[weakref.ref[PendingNorm], ...] = ()  # the parts, of which this is one
        super().__init__(*like, norm.source.device)

    @property
    def largest(self) -> float | None:
        """By its kind, gamma and beta."""
        norm = self.norm
        if self._largest is None and norm is not None and norm.scale is None:
            sizes = norm.source.sizes
            self._largest = largest_of(norm.call, sizes, norm.gamma, norm.beta)
        return self._largest if self.part is NormPart.whole else None

    def operand_storages(self) -> frozenset[int]:
        """Those of the whole norm: a part reads no others."""
        return frozenset() if self.norm is None else self.norm.reads()

    def run(self) -> Tensor:
        """By a kernel if it is whole and there is one, else as the model says."""
        for counted in self._counted:
            counted.require_unchanged()
        assert self.norm is not None
        assert self._by_torch is not None
        whole = self.part is NormPart.whole
        y = self._by_convolution() if whole else None
        if y is None:
            y = self.norm.by_kernel(self.dtype) if whole else None
        if y is None:
            y = self._by_torch()
        self.let_go()
        return y

    def _by_convolution(self) -> Tensor | None:
        """As the epilogue of the convolution that it norms, with its other parts; None if not.

        Who else reads that convolution is known once the model's own operators have gone.
        """
        parts = self._parts()
        norms = tuple(part.norm for part in parts if part.norm is not None)
        base = conv_to_norm(norms, self.dtype)
        if base is None:
            return None
        for part in parts:
            part.let_go()
        for part, z in zip(parts, normed_by(base, norms), strict=True):
            part.known(z)
        return self.result()

    def _parts(self) -> tuple[PendingNorm, ...]:
        """All parts of the norm that was cut into this and others; this one if it is alone.

        If one has run, or nobody wants it, this is a part of its own.
        """
        cut = [part() for part in self._cut]
        known = tuple(part for part in cut if part is not None and part.norm is not None)
        return known if known and len(known) == len(cut) else (self,)

    def let_go(self) -> None:
        """A kernel computes it: the model's own operators are not wanted, nor does it read."""
        if on_neuron(self):
            _ = self.largest  # convolutions ask for it after gamma and beta have gone
        self.norm = self._by_torch = None

    def known(self, result: Tensor) -> None:
        """As any; and it asks for nothing any more."""
        super().known(result)
        self.norm = self._by_torch = None

    def reads_of(self, base: Pending) -> bool:
        """Whether it is a norm of this."""
        return self.norm is not None and any(run.base is base for run in self.norm.source.runs)

    def in_parts(self, bounds: Sequence[int]) -> list[PendingNorm] | None:
        """Norms of the frames between bounds, in place of this one; None if it cannot be."""
        cut = [self.of_frames(start, stop) for start, stop in pairwise(bounds)]
        parts = [part for part in cut if part is not None]
        if len(parts) < len(cut):
            return None
        for part in parts:
            part._cut = tuple(map(weakref.ref, parts))  # noqa: SLF001 (its own class)
        return parts

    def of_frames(self, start: int, stop: int) -> PendingNorm | None:
        """Some frames of it, as a norm of its own: a kernel for them alone; None if it cannot be.

        It takes the place of this one, which must not run as well.
        """
        whole = None if self.part is not NormPart.whole else self.norm
        norm = None if whole is None else whole.of_frames(start, stop)
        if norm is None:
            return None
        sizes = torch.Size((*self.shape[:2], stop - start, *self.shape[3:]))

        def by_torch() -> Tensor:
            return self.result()[:, :, start:stop].contiguous()

        return PendingNorm(
            NormPart.whole,
            norm,
            (sizes, self.dtype),
            by_torch,
            self._counted,
        )

    def activated(self, activation: str) -> PendingNorm | None:
        """The same with an activation, in the same kernel; None if it has one."""
        norm = self.norm
        if norm is None or self.part is not NormPart.whole or norm.call.activation != IDENTITY:
            return None
        call = replace(norm.call, activation=activation)
        return PendingNorm(
            NormPart.whole,
            replace(norm, call=call),
            (self.shape, self.dtype),
            lambda: finished(self.result(), activation, None),
            self._counted,
        )

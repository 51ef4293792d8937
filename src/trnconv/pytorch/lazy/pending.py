"""A convolution that was asked for and has not run: what follows may still go into its end."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from trnconv.ask.ends import IDENTITY
from trnconv.geometry import ConvShape
from trnconv.pytorch.arrays import dtype_name
from trnconv.pytorch.conv_call import ConvSpec
from trnconv.pytorch.lazy.memory import require_unchanged
from trnconv.pytorch.lazy.noted import Notebook, Work
from trnconv.pytorch.lazy.spreading import Later
from trnconv.pytorch.ops import fused_convolution

Tensor = torch.Tensor


@dataclass(frozen=True)
class Asked:
    """All that a convolution needs, and the book it is noted in."""

    pieces: tuple[Tensor, ...]
    w: Tensor
    bias: Tensor | None
    spec: ConvSpec
    module: str
    book: Notebook
    written: tuple[int, ...]  # how often each operand had been changed in place
    backend: str = "auto"
    residual: Tensor | None = None
    instead_of: ConvShape | None = None
    later: Later | None = None  # some outputs read rows of other ranks, on their way

    @property
    def problem(self) -> ConvShape:
        """The problem in integers."""
        return self.spec.shape([piece.shape for piece in self.pieces], self.w.shape)

    def run(self) -> Tensor:
        """Run it, and note it."""
        for tensor, times in zip((*self.pieces, self.w), self.written, strict=True):
            require_unchanged(tensor, times)
        frames = tuple(piece.shape[2] for piece in self.pieces)
        work = Work(
            module=self.module,
            shape=self.problem,
            dtype=dtype_name(self.pieces[0]),
            pieces=frames if len(frames) > 1 else (),
            end=self.spec.end(residual=self.residual is not None),
            reproducible=self.spec.reproducible,
            policy=self.spec.policy,
            instead_of=self.instead_of,
        )
        self.book.works[work] += 1
        pieces = [dense(piece, self.book) for piece in self.pieces]
        residual = None if self.residual is None else dense(self.residual, self.book)
        y = fused_convolution(pieces, self.w, self.bias, self.spec, residual, self.backend)
        return y if self.later is None else self.later.completed(self, y)


def dense(tensor: Tensor, book: Notebook) -> Tensor:
    """The tensor, copied if its elements do not lie in order."""
    if not tensor.is_contiguous():
        book.moved("contiguous", 2 * tensor.nbytes)
    return tensor.contiguous()


@dataclass
class _Family:
    """The same convolution with different ends."""

    has_run: bool = False


class Pending:
    """The result of a convolution, run when somebody looks at it. [N, C, T, H, W].

    It holds its operands until then and its result from then on, never both.
    """

    def __init__(self, asked: Asked, family: _Family | None = None) -> None:
        shape = asked.problem
        self.shape = torch.Size((shape.batch, shape.c_out, *shape.out_sizes()))
        self.macs = shape.macs()
        self.dtype = asked.pieces[0].dtype
        self.device = asked.pieces[0].device
        self._state: Asked | Tensor = asked
        self._family = family or _Family()

    @property
    def has_run(self) -> bool:
        """Whether there is a result, so that nothing can be fused any more."""
        return isinstance(self._state, Tensor)

    def reads(self) -> list[Tensor]:
        """Tensors that must not change before it is read: its operands, or its result."""
        if isinstance(self._state, Tensor):
            return [self._state]
        added = [] if self._state.residual is None else [self._state.residual]
        return [*self._state.pieces, *added]

    def result(self) -> Tensor:
        """Run it, the first time."""
        if isinstance(self._state, Asked):
            if self._family.has_run:
                self._state.book.repeated[self._state.module] += 1
            self._family.has_run = True
            self._state = self._state.run()
        return self._state

    def plus(self, residual: Tensor) -> Pending | None:
        """The same with a tensor added, in one kernel; None if it cannot be fused."""
        own = self._state
        if isinstance(own, Tensor) or own.residual is not None:
            return None
        alike = (residual.shape, residual.dtype) == (self.shape, self.dtype)
        if own.spec.activation != IDENTITY or not alike:
            return None
        return Pending(replace(own, residual=residual), self._family)

    def activated(self, activation: str) -> Pending | None:
        """The same with an activation, in one kernel; None if it cannot be fused."""
        own = self._state
        if isinstance(own, Tensor) or own.spec.activation != IDENTITY:
            return None
        spec = replace(own.spec, activation=activation)
        return Pending(replace(own, spec=spec), self._family)

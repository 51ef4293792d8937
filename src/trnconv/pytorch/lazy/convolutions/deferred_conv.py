"""A convolution that was asked for and has not run: what follows may still become its epilogue."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from nkisim.machine import Machine
from trnconv.geometry import ConvShape
from trnconv.problem.coarse_residual import CoarseResidual
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.epilogue import IDENTITY, NormEpilogue, norm_text
from trnconv.problem.policy import ALWAYS_DIRECT
from trnconv.pytorch.backends.arrays import dtype_name
from trnconv.pytorch.backends.choice import on_neuron
from trnconv.pytorch.backends.conv_call import ConvSpec
from trnconv.pytorch.lazy.base.deferred_result import Pending
from trnconv.pytorch.lazy.base.memory import Counted, require_present, same_memory, storage_of
from trnconv.pytorch.lazy.base.stats import PatchStats, PolicedConv
from trnconv.pytorch.operators.convolutions import fused_convolution
from trnconv.pytorch.operators.normed_convolution import OutputNorming, normed_convolution

Tensor = torch.Tensor
ByTorch = Callable[[Tensor], Tensor]


class Made(Protocol):
    """What holds the result of a convolution for those who may read it."""

    real: Tensor | None  # the result, once it is made

    def made(self) -> Tensor:
        """The result, as the model sees it."""


class Later(Protocol):
    """What is left to do when a convolution of a band alone has run."""

    def complete(
        self,
        conv: DeferredConv,
        outputs: tuple[Tensor, ...],
        outputs_of: Callable[[Tensor], tuple[Tensor, ...]],
    ) -> None:
        """Put outputs that read rows of other ranks into place; `outputs_of` is the epilogue."""


@dataclass(frozen=True)
class DeferredConv:
    """All that a convolution needs, and the stats that count it."""

    pieces: tuple[Tensor, ...]
    w: Tensor
    bias: Tensor | None
    spec: ConvSpec
    module: str
    stats: PatchStats
    counted: tuple[Counted, ...] = ()  # operands
    backend: str = "auto"
    residual: Tensor | None = None
    instead_of: ConvShape | None = None
    scale_shift: Tensor | None = None  # of the norm in its prologue
    later: Later | None = None  # some outputs read rows of other ranks, on their way

    @property
    def problem(self) -> ConvShape:
        """The problem in integers."""
        return self.spec.shape([piece.shape for piece in self.pieces], self.w.shape)

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """All tensors it reads."""
        optional = (self.bias, self.residual, self.scale_shift)
        others = [operand for operand in optional if operand is not None]
        return (*self.pieces, self.w, *others)

    def run(self) -> Tensor:
        """Run it, and count it."""
        self._count(self.spec)
        pieces, residual = self._in_order()
        y = fused_convolution(
            pieces, self.w, self.bias, self.spec, residual, self.backend, self.scale_shift
        )
        if self.later is not None:
            self.later.complete(self, (y,), lambda made: (made,))
        return y

    def run_normed(self, norming: OutputNorming, norm: NormEpilogue) -> tuple[Tensor, ...]:
        """The same with a norm as its epilogue: y, if that is kept, and the norm's tensors."""
        spec = replace(self.spec, norm=norm_text(norm))
        self._count(spec)
        pieces, residual = self._in_order()
        operands = (pieces, self.w, self.bias, residual, self.scale_shift)
        outputs = normed_convolution(operands, spec, norming, self.backend)
        if self.later is not None:
            self.later.complete(
                self, outputs, lambda made: norming.outputs_of(made, norm, self.backend)
            )
        return outputs

    def work(self, spec: ConvSpec) -> PolicedConv:
        """What the stats count it as."""
        frames = tuple(piece.shape[2] for piece in self.pieces)
        return PolicedConv(
            module=self.module,
            shape=self.problem,
            dtype=dtype_name(self.pieces[0]),
            pieces=frames if len(frames) > 1 else (),
            epilogue=spec.epilogue(residual=self.residual is not None),
            reproducible=spec.reproducible,
            policy=spec.policy,
            instead_of=self.instead_of,
            prologue=spec.prologue,
        )

    def _count(self, spec: ConvSpec) -> None:
        for counted in self.counted:
            counted.require_unchanged()
        for operand in self.operands:
            require_present(operand)
        self.stats.works[self.work(spec)] += 1

    def _in_order(self) -> tuple[list[Tensor], Tensor | None]:
        """Pieces and residual, dense; what is both is copied once."""
        pieces = [dense(piece, self.stats) for piece in self.pieces]
        if self.residual is None:
            return pieces, None
        for piece, made in zip(self.pieces, pieces, strict=True):
            if are_same(piece, self.residual):
                return pieces, made
        return pieces, dense(self.residual, self.stats)


def dense(tensor: Tensor, stats: PatchStats) -> Tensor:
    """The tensor, copied if its elements do not lie in order."""
    if not tensor.is_contiguous():
        stats.moved("contiguous", 2 * tensor.nbytes)
    return tensor.contiguous()


def are_same(tensor: Tensor, other: Tensor) -> bool:
    """Whether both show the same elements in the same order."""
    begin_alike = tensor.storage_offset() == other.storage_offset() and same_memory(tensor, other)
    lie_alike = (tensor.shape, tensor.stride()) == (other.shape, other.stride())
    return begin_alike and lie_alike and tensor.dtype == other.dtype


@dataclass
class _Family:
    """The same convolution with different epilogues."""

    has_run: bool = False


class PendingConv(Pending):
    """The result of a convolution."""

    def __init__(self, conv: DeferredConv, family: _Family | None = None) -> None:
        shape = conv.problem
        sizes = torch.Size((shape.batch, shape.c_out, *shape.out_sizes()))
        self.macs = shape.macs()
        self._conv: DeferredConv | None = conv
        self._family = family or _Family()
        self._bare: tuple[weakref.ref[Made], ByTorch] | None = None
        self._part_of: tuple[PendingConv, int] | None = None  # from which of its frames on
        super().__init__(sizes, conv.pieces[0].dtype, conv.pieces[0].device)

    def operand_storages(self) -> frozenset[int]:
        """Of all operands; and of the bare result, if the epilogue is torch's."""
        if self._part_of is not None:
            return self._part_of[0].lies_in()
        operands = () if self._conv is None else self._conv.operands
        bare = None if self._bare is None else self._bare[0]()
        made = () if bare is None or bare.real is None else (bare.real,)
        return frozenset(storage_of(tensor) for tensor in (*operands, *made))

    def run(self) -> Tensor:
        """One with another epilogue took this one's place, unless both are run."""
        if self._part_of is not None:
            whole, first = self._part_of
            return whole.result()[:, :, first : first + self.shape[2]]
        conv = self._conv
        assert conv is not None
        if (read := self._of_bare()) is not None:
            self._conv = None
            return read
        if self._family.has_run:
            conv.stats.repeated[conv.module] += 1
        self._family.has_run = True
        y = conv.run()
        self._conv = None
        return y

    def continued_by(
        self, other: PendingConv, both: Callable[[DeferredConv, DeferredConv], DeferredConv | None]
    ) -> PendingConv | None:
        """One convolution for this and the next frames, which these are parts of from now on.

        None if `both` finds none, or one of them has run.
        """
        first, second = self._conv, other._conv
        if first is None or second is None or self._family.has_run or other._family.has_run:
            return None
        conv = both(first, second)
        if conv is None:
            return None
        whole = PendingConv(conv)
        self._part_of, other._part_of = (whole, 0), (whole, self.shape[2])
        self._conv = other._conv = None
        return whole

    def reads_of(self, base: Pending) -> bool:
        """Whether it is a part of this."""
        return self._part_of is not None and self._part_of[0] is base

    def unless_read(self, bare: Made, by_torch: ByTorch) -> None:
        """Leave the epilogue to torch if the holder of the result without it is alive then."""
        self._bare = weakref.ref(bare), by_torch

    def _of_bare(self) -> Tensor | None:
        """The result, by torch, of the one without its epilogue; None if nobody can read that."""
        if self._bare is None:
            return None
        holder, by_torch = self._bare
        bare = holder()
        return None if bare is None else by_torch(bare.made())

    def problem(self, machine: Machine) -> ConvProblem | None:
        """What is asked of the planner; None if it has run."""
        conv = self._conv
        if conv is None or self._family.has_run:
            return None
        # Without calibration, nobody on a device looks at the data: see `neuron.problem_of`.
        known = conv.spec.policy.x_max is not None or not on_neuron(self)
        policy = None if known else ALWAYS_DIRECT
        return conv.work(conv.spec).problem(machine, policy=policy)

    def run_normed(self, norming: OutputNorming, *, keeps: bool, first: int) -> tuple[Tensor, ...]:
        """With a norm as its epilogue: the norm's tensors; its own result is there if it is kept.

        If it is not, and somebody asks for it all the same, it runs once more.
        """
        conv = self._conv
        assert conv is not None
        self._family.has_run = True
        norm = norming.epilogue(self.shape[1], keeps=keeps, first=first)
        done = conv.run_normed(norming, norm)
        if not keeps:
            return done
        self._conv = None
        self.known(done[0])
        return done[1:]

    def plus(self, residual: Tensor, counted: tuple[Counted, ...]) -> PendingConv | None:
        """The same with a tensor added, in one kernel; None if it cannot be fused."""
        conv = self._conv
        if conv is None or conv.residual is not None:
            return None
        fits = (residual.shape, residual.dtype) == (self.shape, self.dtype)
        if conv.spec.activation != IDENTITY or not fits:
            return None
        counts = (*conv.counted, *counted)
        return PendingConv(replace(conv, residual=residual, counted=counts), self._family)

    def plus_cells(
        self, residual: Tensor, coarse: CoarseResidual, counted: tuple[Counted, ...]
    ) -> PendingConv | None:
        """The same with a residual of lower resolution; None if it cannot be fused."""
        conv = self._conv
        if conv is None or conv.residual is not None or conv.later is not None:
            return None
        if conv.spec.activation != IDENTITY or residual.dtype != self.dtype:
            return None
        if coarse.spread(tuple(residual.shape)) != tuple(self.shape):
            return None
        spec, counts = replace(conv.spec, coarse=coarse.text()), (*conv.counted, *counted)
        fused = replace(conv, residual=residual, spec=spec, counted=counts)
        return PendingConv(fused, self._family)

    def activated(self, activation: str) -> PendingConv | None:
        """The same with an activation, in one kernel; None if it cannot be fused."""
        conv = self._conv
        if conv is None or conv.spec.activation != IDENTITY:
            return None
        spec = replace(conv.spec, activation=activation)
        return PendingConv(replace(conv, spec=spec), self._family)

    def rewritten(
        self, change: Callable[[DeferredConv], DeferredConv | None]
    ) -> PendingConv | None:
        """The same result by a changed convolution; None if it cannot be, or has run."""
        conv = None if self._conv is None else change(self._conv)
        return None if conv is None else PendingConv(conv, self._family)

"""Norms over channels that are the epilogue of a convolution, if that is faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from trnconv.planner.best import is_searched
from trnconv.pytorch.lazy.base import pending_reads
from trnconv.pytorch.lazy.base.deferred_result import Pending
from trnconv.pytorch.lazy.convolutions.deferred_conv import PendingConv
from trnconv.pytorch.lazy.convolutions.modelled_time import is_normed_faster
from trnconv.pytorch.lazy.norms.deferred_norm import DeferredNorm
from trnconv.pytorch.lazy.tensors.cell import LazyCell
from trnconv.pytorch.operators.normed_convolution import OutputNorming
from trnconv.pytorch.operators.norms import place_of

Tensor = torch.Tensor
_MOST_PARTS = 2  # tensors of a norm


def conv_to_norm(norms: Sequence[DeferredNorm], dtype: torch.dtype) -> PendingConv | None:
    """The convolution, not run, that these norms are all frames of; None: they are done apart."""
    if not norms[0].context.rewrites.norm_epilogues:
        return None
    base, at = norms[0].source.runs[0].base, 0
    if not isinstance(base, PendingConv) or len(norms) > _MOST_PARTS or base.dtype != dtype:
        return None
    for norm in norms:
        if not _is_next(norm, base, at):
            return None
        at = norm.source.runs[0].stop
    return base if at == base.shape[2] and _wins(base, norms) else None


def _is_next(norm: DeferredNorm, base: object, at: int) -> bool:
    """Whether a norm is of frames of a base from one on, and a kernel's."""
    run = norm.source.runs[0]
    plain = len(norm.source.runs) == 1 and run.plain and norm.scale is None
    weighed = norm.beta is None or norm.gamma is not None
    return run.base is base and run.start == at and plain and weighed and not norm.by_groups


def _wins(base: PendingConv, norms: Sequence[DeferredNorm]) -> bool:
    """Whether the epilogue is the faster place; on the meta device, whether it is one at all.

    There nothing runs, and who plans what was recorded compares prices.
    """
    machine, cores = place_of(base, norms[0].context.backend)
    bare = base.problem(machine)
    if bare is None:
        return False
    norm = _norming(norms[0]).epilogue(base.shape[1], keeps=True, first=_cut(norms))
    problem = replace(bare, epilogue=replace(bare.epilogue, norm=norm))
    return is_searched(problem) if base.device.type == "meta" else is_normed_faster(problem, cores)


def _norming(norm: DeferredNorm) -> OutputNorming:
    return OutputNorming(norm.call, norm.gamma, norm.beta)


def _cut(norms: Sequence[DeferredNorm]) -> int:
    """Frames of the first of two norms; 0 if there is one."""
    return norms[0].source.runs[0].stop if len(norms) > 1 else 0


def normed_by(base: PendingConv, norms: Sequence[DeferredNorm]) -> tuple[Tensor, ...]:
    """The norms of a convolution's result, with that if anybody else may read it."""
    return base.run_normed(_norming(norms[0]), keeps=_is_read(base), first=_cut(norms))


def _is_read(base: PendingConv) -> bool:
    """Whether somebody may still look at the result."""
    return any(
        (isinstance(reader, LazyCell) and reader.is_of(base))
        or (isinstance(reader, Pending) and reader.reads_of(base))
        for reader in pending_reads.readers(base.reads())
    )

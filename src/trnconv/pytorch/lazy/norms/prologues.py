"""Group norms that are the prologue of a convolution, if that is faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from nkisim.machine import Machine
from trnconv.fused_ops.group_norm.problem import GroupNorm
from trnconv.geometry import ConvShape
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.epilogue import BEFORE, IDENTITY, epilogue_of
from trnconv.problem.policy import Policy
from trnconv.problem.prologue import prologue_of
from trnconv.pytorch.backends.arrays import dtype_name
from trnconv.pytorch.lazy.convolutions.deferred_conv import dense
from trnconv.pytorch.lazy.convolutions.modelled_time import is_planned, priced
from trnconv.pytorch.lazy.frames.materialize import stored
from trnconv.pytorch.lazy.frames.video import FrameRun
from trnconv.pytorch.lazy.norms.deferred_norm import DeferredNorm, NormPart
from trnconv.pytorch.lazy.norms.pending_norm import PendingNorm
from trnconv.pytorch.operators.norm_call import GROUPS
from trnconv.pytorch.operators.norms import factors_refusal, group_factors, place_of

Tensor = torch.Tensor
_COMPARED = 4096  # pairs of a process


@dataclass(frozen=True)
class ScaledInput:
    """What a convolution is given instead of a norm: x, its scale and shift, and the activation."""

    x: Tensor
    scale_shift: Tensor
    activation: str


def scaled_input(runs: Sequence[FrameRun], shape: ConvShape, policy: Policy) -> ScaledInput | None:
    """The input of a convolution before its norm; None if it has none, or does better behind it."""
    norm = _norm_of(runs)
    if norm is None or shape.upsample != (1, 1, 1) or shape.groups != 1:
        return None
    source, call = norm.source, norm.call
    backend, has_beta = norm.context.backend, norm.beta is not None
    if factors_refusal(source, call, backend, has_beta=has_beta):
        return None
    problem = call.problem(source.sizes, dtype_name(source), has_beta=has_beta)
    assert isinstance(problem, GroupNorm)
    if not prologue_wins(shape, policy, problem, *place_of(source, backend)):
        return None
    x = dense(stored(source.runs[0]), norm.context.stats)
    return ScaledInput(x, group_factors(x, norm.gamma, norm.beta, call, backend), call.activation)


def _norm_of(runs: Sequence[FrameRun]) -> DeferredNorm | None:
    """The group norm, not run, of one whole video that the runs are all of."""
    base = runs[0].base
    if len(runs) > 1 or not runs[0].whole or not isinstance(base, PendingNorm):
        return None
    norm = base.norm
    if norm is None or base.part is not NormPart.whole or norm.call.kind != GROUPS:
        return None
    if norm.scale is not None:
        return None
    source = norm.source
    plain = len(source.runs) == 1 and source.runs[0].whole and source.dtype == base.dtype
    return norm if plain and source.sizes[0] == 1 else None


@lru_cache(_COMPARED)
def prologue_wins(
    shape: ConvShape, policy: Policy, norm: GroupNorm, machine: Machine, cores: int
) -> bool:
    """Whether it is modelled to be faster than a norm and a convolution apart.

    Whether its epilogue adds a residual is not known yet: either way there has to be a plan.
    """
    bare = ConvProblem(shape, machine, norm.dtype, policy=policy)
    scaled = replace(bare, prologue=prologue_of(norm.activation))
    added = replace(scaled, epilogue=epilogue_of(IDENTITY, BEFORE, ""))
    parts = norm.in_launches()
    reduced = sum(part.scale_shift_price(machine, cores).ns for part in parts)
    applied = sum(part.apply_price(machine, cores).ns for part in parts)
    wins = priced(scaled, cores) + reduced < priced(bare, cores) + applied
    return wins and is_planned(added, cores)

"""Group norms that a convolution does where it loads its input, if that is faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from nkisim.machine import Machine
from trnconv.ask.ends import BEFORE, IDENTITY, end_of
from trnconv.ask.policy import Policy
from trnconv.ask.question import Question
from trnconv.ask.starts import start_of
from trnconv.fused_ops.group_norm.problem import GroupNorm
from trnconv.geometry import ConvShape
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
    """What a convolution is given instead of a norm: x, its factors, and the activation."""

    x: Tensor
    factors: Tensor
    activation: str


def scaled_input(runs: Sequence[FrameRun], shape: ConvShape, policy: Policy) -> ScaledInput | None:
    """The input of a convolution before its norm; None if it has none, or does better behind it."""
    asked = _norm_of(runs)
    if asked is None or shape.upsample != (1, 1, 1) or shape.groups != 1:
        return None
    source, call = asked.source, asked.call
    backend, has_beta = asked.around.backend, asked.beta is not None
    if factors_refusal(source, call, backend, has_beta=has_beta):
        return None
    problem = call.problem(source.sizes, dtype_name(source), has_beta=has_beta)
    assert isinstance(problem, GroupNorm)
    if not start_wins(shape, policy, problem, *place_of(source, backend)):
        return None
    x = dense(stored(source.runs[0]), asked.around.book)
    return ScaledInput(x, group_factors(x, asked.gamma, asked.beta, call, backend), call.activation)


def _norm_of(runs: Sequence[FrameRun]) -> DeferredNorm | None:
    """The group norm, not run, of one whole video that the runs are all of."""
    base = runs[0].base
    if len(runs) > 1 or not runs[0].whole or not isinstance(base, PendingNorm):
        return None
    asked = base.asked
    if asked is None or base.part is not NormPart.whole or asked.call.kind != GROUPS:
        return None
    if asked.scale is not None:
        return None
    source = asked.source
    plain = len(source.runs) == 1 and source.runs[0].whole and source.dtype == base.dtype
    return asked if plain and source.sizes[0] == 1 else None


@lru_cache(_COMPARED)
def start_wins(
    shape: ConvShape, policy: Policy, norm: GroupNorm, machine: Machine, cores: int
) -> bool:
    """Whether factors and a convolution that scales are modelled to be faster than both apart.

    Whether a residual ends it is not known yet: either way there has to be a plan.
    """
    asked = Question(shape, machine, norm.dtype, policy=policy)
    scaled = replace(asked, start=start_of(norm.activation))
    added = replace(scaled, end=end_of(IDENTITY, BEFORE, ""))
    parts = norm.in_launches()
    factors = sum(part.scale_shift_price(machine, cores).ns for part in parts)
    applied = sum(part.apply_price(machine, cores).ns for part in parts)
    wins = priced(scaled, cores) + factors < priced(asked, cores) + applied
    return wins and is_planned(added, cores)

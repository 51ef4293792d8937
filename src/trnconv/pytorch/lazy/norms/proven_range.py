"""Ranges that follow from a norm: no convolution behind one needs calibration.

    |x / |x||           at most 1 in each channel
    |x / rms(x)|        at most the root of the number of channels
    |group norm of x|   at most the root of the number of elements of a group

times the largest |factor gamma|, plus the largest |beta|. No activation adds to that: |silu(z)|,
|relu(z)|, |tanh(z)| and |gelu(z)| are at most |z|, and sigmoid is at most 1.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from math import prod, sqrt

import torch

from trnconv.problem.epilogue import IDENTITY
from trnconv.problem.policy import DIRECT, Policy
from trnconv.pytorch.backends.choice import on_neuron
from trnconv.pytorch.lazy.base.deferred_result import Pending
from trnconv.pytorch.lazy.frames.video import FrameRun
from trnconv.pytorch.lazy.tensors.context import PatchContext
from trnconv.pytorch.operators.norm_call import LENGTH, MEAN_SQUARE, NormCall

_SHRINKING = (IDENTITY, "silu", "relu", "tanh", "gelu", "gelu_tanh", "mish")
_ROUNDED = 1.01  # sums, roots and products of a kernel are rounded, the result to 16 bits
_largest: MutableMapping[torch.Tensor, tuple[int, float]] = (
    torch.utils.weak.WeakTensorKeyDictionary()
)


def with_proven_range(policy: Policy, runs: Sequence[FrameRun], context: PatchContext) -> Policy:
    """A policy that knows the range of an input, where it is a norm's, on a Neuron device.

    Elsewhere calls look at their data.
    """
    model_policy = context.policy
    if not on_neuron(runs[0].base) or policy.x_max is not None or model_policy.accuracy == DIRECT:
        return policy
    bounds = [run.base.largest for run in runs if isinstance(run.base, Pending)]
    known = [bound for bound in bounds if bound is not None]
    return replace(model_policy, x_max=max(known)) if len(known) == len(runs) else policy


def largest_of(
    call: NormCall,
    sizes: tuple[int, ...],
    gamma: torch.Tensor | None,
    beta: torch.Tensor | None,
) -> float | None:
    """The largest magnitude that a norm gives for any x of these sizes; None if nobody knows."""
    if call.activation not in _SHRINKING:
        return None
    c, *positions = sizes[1:]
    in_group = c // call.groups * prod(positions)
    root = {LENGTH: 1.0, MEAN_SQUARE: sqrt(c)}.get(call.kind, sqrt(in_group))
    scale = 1.0 if gamma is None else _most(gamma)
    shift = 0.0 if beta is None else _most(beta)
    return _ROUNDED * (root * abs(call.factor) * scale + shift)


def _most(weights: torch.Tensor) -> float:
    """The largest magnitude among weights; read again when they have changed."""
    version = -1 if weights.is_inference() else weights._version  # noqa: SLF001 (torch's name)
    known = _largest.get(weights)
    if known is None or known[0] != version or version < 0:
        known = (version, float(weights.detach().float().cpu().abs().max()))
        _largest[weights] = known
    return known[1]

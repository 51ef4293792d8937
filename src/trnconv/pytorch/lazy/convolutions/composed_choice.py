"""Whether an activation of several instructions is better off at the end of a convolution."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trnconv.ask.ends import ELU
from trnconv.pytorch.backends.kernel_place import runs_kernels
from trnconv.pytorch.lazy.context import PatchContext
from trnconv.pytorch.lazy.convolutions.deferred_conv import PendingConv
from trnconv.pytorch.lazy.convolutions.modelled_time import is_ended_faster
from trnconv.pytorch.operators.norms import place_of


def takes_composed(base: Any, activation: str, around: PatchContext, *, lines: bool) -> bool:
    """Whether a result that has not run is given the activation; all lines that can be are.

    Videos and images may have a fast form that knows functions of one instruction only. Which is
    faster depends on their sizes: where chunks are to have the bits of the whole, or bands of
    several ranks are computed alike, torch does it.
    """
    if not isinstance(base, PendingConv):
        return False
    if not runs_kernels(base, around.backend):
        return True
    machine, cores = place_of(base, around.backend)
    if activation == ELU and not machine.accepts.psum_in_place:
        return False
    if lines or around.reproducible or around.spread is not None:
        return lines
    bare = base.question(machine)
    if bare is None:
        return False
    activated = replace(bare, end=replace(bare.end, activation=activation))
    return is_ended_faster(activated, bare, cores, tensors=2)

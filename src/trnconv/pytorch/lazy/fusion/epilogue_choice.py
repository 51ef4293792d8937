"""Whether an activation or a sum is faster as the epilogue of a convolution, or after it.

An activation of several instructions costs more than one. Of short lines, thousands of which are a
batch, a kernel loads every residual by itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trnconv.problem.epilogue import ELU, NO_RESIDUAL
from trnconv.pytorch.backends.kernel_place import runs_kernels
from trnconv.pytorch.lazy.convolutions.deferred_conv import PendingConv
from trnconv.pytorch.lazy.convolutions.modelled_time import is_epilogue_faster
from trnconv.pytorch.lazy.tensors.context import PatchContext
from trnconv.pytorch.operators.norms import place_of


def takes_composed(base: Any, activation: str, context: PatchContext, *, lines: bool) -> bool:
    """Whether a result that has not run is given the activation; all lines that can be are.

    Videos and images may have a Winograd plan that knows functions of one instruction only. Which
    is faster depends on their sizes: where chunks are to have the bits of the whole, or bands of
    several ranks are computed alike, torch does it.
    """
    if not isinstance(base, PendingConv):
        return False
    if not runs_kernels(base, context.backend):
        return True
    machine, cores = place_of(base, context.backend)
    if activation == ELU and not machine.accepts.psum_in_place:
        return False
    if lines or context.reproducible or context.spread is not None:
        return lines
    bare = base.problem(machine)
    if bare is None:
        return False
    activated = replace(bare, epilogue=replace(bare.epilogue, activation=activation))
    return is_epilogue_faster(activated, bare, cores, tensors=2)


def adds_lines(fused: Any, context: PatchContext) -> bool:
    """Whether a convolution of lines that was given a residual keeps it.

    A sum in its epilogue is rounded once: where chunks are to have the bits of the whole, or bands
    of several ranks are computed alike, it is there whatever their sizes.
    """
    if not isinstance(fused, PendingConv) or not runs_kernels(fused, context.backend):
        return True
    if context.reproducible or context.spread is not None:
        return True
    machine, cores = place_of(fused, context.backend)
    added = fused.problem(machine)
    if added is None:
        return True
    bare = replace(added, epilogue=replace(added.epilogue, residual=NO_RESIDUAL))
    return is_epilogue_faster(added, bare, cores, tensors=3)

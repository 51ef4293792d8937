"""Whether lines are added to at the end of a convolution, or afterwards.

Of short lines, thousands of which are a batch, a kernel loads every residual by itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trnconv.ask.ends import NO_RESIDUAL
from trnconv.pytorch.backends.kernel_place import runs_kernels
from trnconv.pytorch.lazy.context import PatchContext
from trnconv.pytorch.lazy.convolutions.deferred_conv import PendingConv
from trnconv.pytorch.lazy.convolutions.modelled_time import is_ended_faster
from trnconv.pytorch.operators.norms import place_of


def adds_lines(fused: Any, around: PatchContext) -> bool:
    """Whether a convolution of lines that was given a residual keeps it.

    A sum at its end is rounded once: where chunks are to have the bits of the whole, or bands of
    several ranks are computed alike, it is there whatever their sizes.
    """
    if not isinstance(fused, PendingConv) or not runs_kernels(fused, around.backend):
        return True
    if around.reproducible or around.spread is not None:
        return True
    machine, cores = place_of(fused, around.backend)
    added = fused.question(machine)
    if added is None:
        return True
    bare = replace(added, end=replace(added.end, residual=NO_RESIDUAL))
    return is_ended_faster(added, bare, cores, tensors=3)

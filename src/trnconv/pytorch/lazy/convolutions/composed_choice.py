"""Whether an activation of several instructions is better off at the end of a convolution."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

from nkisim.machine import Reading
from trnconv.ask.ends import ELU, IDENTITY, ITEM_BYTES
from trnconv.ask.question import Question
from trnconv.pytorch.backends.kernel_place import runs_kernels
from trnconv.pytorch.lazy.context import PatchContext
from trnconv.pytorch.lazy.convolutions.deferred_conv import PendingConv
from trnconv.pytorch.lazy.convolutions.modelled_time import priced
from trnconv.pytorch.operators.norms import place_of

_COMPARED = 4096  # questions of a process


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
    return bare is not None and _wins(
        replace(bare, end=replace(bare.end, activation=activation)), cores
    )


@lru_cache(_COMPARED)
def _wins(question: Question, cores: int) -> bool:
    """Whether one kernel is modelled to be faster than two.

    The second takes as long as its bytes at the rate of HBM, and the latency of a load and a store.
    """
    bare = replace(question, end=replace(question.end, activation=IDENTITY))
    shape, timing = question.shape, question.machine.timing.read(Reading.default)
    elems = shape.batch * shape.c_out * prod(shape.out_sizes())
    moved = 2 * elems * ITEM_BYTES[question.dtype]
    rate = min(cores * timing.dma_engines * timing.dma_bytes_per_ns, timing.hbm_bytes_per_ns)
    apart = moved / rate + 2 * (timing.dma_start_ns + timing.dma_done_ns)
    return priced(question, cores) <= priced(bare, cores) + apart

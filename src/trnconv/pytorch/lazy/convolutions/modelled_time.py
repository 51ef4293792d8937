"""What a convolution is modelled to take, for choices between ways to run a model."""

from __future__ import annotations

from functools import lru_cache
from math import inf, isfinite, prod

from nkisim.machine import Reading
from trnconv.ask.ends import ITEM_BYTES
from trnconv.ask.question import Question
from trnconv.errors import TrnconvError
from trnconv.fused_ops.rms_norm.ends import is_faster_at_end
from trnconv.runtime.pricing import price

_COMPARED = 4096  # questions of a process


def priced(question: Question, cores: int) -> float:
    """Modelled time of a convolution, ns; infinite if there is no plan."""
    try:
        return price(question, cores=cores).ns
    except TrnconvError:  # no plan is no price: it never wins
        return inf


@lru_cache(_COMPARED)
def is_ended_faster(question: Question, bare: Question, cores: int, tensors: int) -> bool:
    """Whether a convolution with its end is modelled to be no slower than both apart.

    Apart, what ends it is an operator on elements that reads and writes so many tensors.
    """
    apart = priced(bare, cores) + _elementwise_ns(bare, cores, tensors)
    return priced(question, cores) <= apart


def _elementwise_ns(question: Question, cores: int, tensors: int) -> float:
    """The bytes of so many results at the rate of HBM, and the latency of a load and a store."""
    shape, timing = question.shape, question.machine.timing.read(Reading.default)
    elems = shape.batch * shape.c_out * prod(shape.out_sizes())
    rate = min(cores * timing.dma_engines * timing.dma_bytes_per_ns, timing.hbm_bytes_per_ns)
    moved = tensors * elems * ITEM_BYTES[question.dtype]
    return moved / rate + 2 * (timing.dma_start_ns + timing.dma_done_ns)


@lru_cache(_COMPARED)
def is_planned(question: Question, cores: int) -> bool:
    """Whether there is a plan."""
    return isfinite(priced(question, cores))


@lru_cache(_COMPARED)
def is_normed_faster(question: Question, cores: int) -> bool:
    """Whether a convolution with its norm is modelled to be faster than both apart."""
    return is_faster_at_end(question, cores, lambda asked: priced(asked, cores))

"""What a convolution is modelled to take, for choices between ways to run a model."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import inf, isfinite, prod

from nkisim.machine import TRN2, Reading
from trnconv.errors import TrnconvError
from trnconv.fused_ops.rms_norm.epilogue import is_faster_fused
from trnconv.geometry import ConvShape
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.epilogue import ITEM_BYTES
from trnconv.problem.policy import ALWAYS_DIRECT
from trnconv.runtime.pricing import price

_COMPARED = 4096  # problems or shapes of a process


def priced(problem: ConvProblem, cores: int) -> float:
    """Modelled time of a convolution, ns; infinite if there is no plan."""
    try:
        return price(problem, cores=cores).ns
    except TrnconvError:  # no plan is no price: it never wins
        return inf


@lru_cache(_COMPARED)
def is_epilogue_faster(problem: ConvProblem, bare: ConvProblem, cores: int, tensors: int) -> bool:
    """Whether a convolution with its epilogue is modelled to be no slower than both apart.

    Apart, the epilogue is an operator on elements that reads and writes so many tensors.
    """
    apart = priced(bare, cores) + _elementwise_ns(bare, cores, tensors)
    return priced(problem, cores) <= apart


def _elementwise_ns(problem: ConvProblem, cores: int, tensors: int) -> float:
    """The bytes of so many results at the rate of HBM, and the latency of a load and a store."""
    shape, timing = problem.shape, problem.machine.timing.read(Reading.default)
    elems = shape.batch * shape.c_out * prod(shape.out_sizes())
    rate = min(cores * timing.dma_engines * timing.dma_bytes_per_ns, timing.hbm_bytes_per_ns)
    moved = tensors * elems * ITEM_BYTES[problem.dtype]
    return moved / rate + 2 * (timing.dma_start_ns + timing.dma_done_ns)


@lru_cache(_COMPARED)
def is_planned(problem: ConvProblem, cores: int) -> bool:
    """Whether there is a plan."""
    return isfinite(priced(problem, cores))


@lru_cache(_COMPARED)
def is_normed_faster(problem: ConvProblem, cores: int) -> bool:
    """Whether a convolution with its norm is modelled to be faster than both apart."""
    return is_faster_fused(problem, cores, lambda asked: priced(asked, cores))


def upsampled_before(folded: ConvShape) -> ConvShape:
    """The convolution a model asks for: of an input that was upsampled in memory."""
    left_out = [min(0, after) for after in folded.pad_after]
    axes = zip(folded.size, folded.upsample, folded.skip, left_out, strict=True)
    depth, height, width = (size * times - skip + less for size, times, skip, less in axes)
    after = (max(0, folded.pad_after[0]), max(0, folded.pad_after[1]), max(0, folded.pad_after[2]))
    return replace(
        folded,
        size=(depth, height, width),
        upsample=(1, 1, 1),
        skip=(0, 0, 0),
        pad_after=after,
    )


@lru_cache(_COMPARED)
def folding_wins(folded: ConvShape) -> bool:
    """Whether the direct convolution alone is modelled to be faster (trn2); the copy is a bonus.

    Folded sums are rounded elsewhere. So frames that do not mix are asked about one by one: however
    a video is cut into chunks, the answer is the same.
    """
    frame = _one_frame(folded)
    return _direct_ns(frame) <= _direct_ns(upsampled_before(frame))


def _one_frame(folded: ConvShape) -> ConvShape:
    if folded.kernel[0] > 1 or folded.upsample[0] > 1:
        return folded
    return replace(folded, batch=1, size=(1, *folded.size[1:]))


def _direct_ns(shape: ConvShape) -> float:
    return priced(ConvProblem(shape, TRN2, policy=ALWAYS_DIRECT), cores=1)

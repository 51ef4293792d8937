"""Whether upsampling is cheaper inside a convolution than before it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from nkisim.machine import TRN2
from trnconv.ask.policy import ALWAYS_DIRECT
from trnconv.ask.question import Question
from trnconv.errors import TrnconvError
from trnconv.geometry import ConvShape
from trnconv.runtime.pricing import price

_COMPARED = 4096  # shapes of a process


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
    asked = _one_frame(folded)
    return _ns(asked) <= _ns(upsampled_before(asked))


def _one_frame(folded: ConvShape) -> ConvShape:
    if folded.kernel[0] > 1 or folded.upsample[0] > 1:
        return folded
    return replace(folded, batch=1, size=(1, *folded.size[1:]))


def _ns(shape: ConvShape) -> float:
    try:
        return price(Question(shape, TRN2, policy=ALWAYS_DIRECT), cores=1).ns
    except TrnconvError:  # no plan is no price: it never wins
        return float("inf")

"""Stages: F(2,3) along frames around the transform along rows, one product of it after the other.

With d0 .. d3 four input frames, and r(d, w) the convolution of one frame with taps of rows and
columns, by F(m, 3) along rows:

    m1 = r(d1 + d2, (w0 + w1 + w2) / 2)        y0 = m0 + m1 + m2
    m2 = r(d2 - d1, (w0 - w1 + w2) / 2)        y1 = m1 - m2 + m3
    m0 = r(d0 - d2, w0)
    m3 = r(d1 - d3, -w2)

A unit of the kernel is one of these, in this order, for all output channels. Between them, float32
tiles hold of every output channel what the next one needs: m1; then m1 + m2 and m1 - m2; the last
two stages complete a frame each. Sums go through a bank of PSUM, from which the Vector engine
adds in one cycle an element instead of two.
"""

from __future__ import annotations

from functools import lru_cache

from trnconv.algorithms.winograd.transforms import OUTER

FIRST, SECOND, EARLIER_FRAME, LATER_FRAME = range(4)
HELD = 2  # tiles of sums between stages, of each tile of output channels
_SIGNS = (1, 1, 1, -1)  # of a stage's weights, so that every stage adds


@lru_cache(maxsize=1024)
def frames_of_unit(unit: int) -> tuple[int, int]:
    """The two input frames of a block that a unit's step reads."""
    pair, stage = divmod(unit, OUTER.products)
    step, first = OUTER.steps[stage], pair * OUTER.outputs
    return first + step.a, first + step.b


def stored_of(unit: int, frames: int) -> tuple[int, int]:
    """The output frame that a unit completes, and how many of those: none that does not exist."""
    pair, stage = divmod(unit, OUTER.products)
    frame = pair * OUTER.outputs + (stage == LATER_FRAME)
    return frame, int(stage in (EARLIER_FRAME, LATER_FRAME) and frame < frames)


def is_needed(unit: int, frames: int) -> bool:
    """Whether a unit is computed: not the one that is for a second frame which does not exist."""
    return unit % OUTER.products != LATER_FRAME or stored_of(unit, frames)[1] > 0


def weight_rows() -> list[list[float]]:
    """What each stage multiplies the taps of frames by."""
    rows = [OUTER.g[step.dst - OUTER.products] for step in OUTER.steps]
    return [[sign * float(value) for value in row] for sign, row in zip(_SIGNS, rows, strict=True)]

"""A video at another frame rate: which frame is shown at each tick."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

Frame = TypeVar("Frame")
_ROUNDING_S = 1e-6  # of timestamps; far below any frame's duration


def at_rate(timed: Iterable[tuple[float, Frame]], fps: float) -> Iterator[Frame]:
    """The frame shown at the first frame's time, 1 / fps later, and so on, up to the last frame.

    A frame is shown until the next one's time; so it may come twice, or not at all. Times ascend.
    """
    frames = iter(timed)
    first = next(frames, None)
    if first is None:
        return
    (start, shown), tick = first, 0
    last = start
    for last, frame in frames:
        while start + tick / fps < last - _ROUNDING_S:
            yield shown
            tick += 1
        shown = frame
    if start + tick / fps <= last + _ROUNDING_S:
        yield shown

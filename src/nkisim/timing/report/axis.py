"""The time axis of a picture: from ns to pixels, with extrapolated stretches cut out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from nkisim.timing.timeline import Elision, Timeline

CUT_PX: Final = 112.0
_MOST_CUTS: Final = 4  # the longest ones; others are drawn to scale
_TICKS: Final = 12
_UNITS: Final = ((1e6, "ms"), (1e3, "us"), (1.0, "ns"))


class Piece(NamedTuple):
    """A stretch of time and where it is drawn; `cut` if it is not to scale."""

    begin_ns: float
    end_ns: float
    left_px: float
    right_px: float
    cut: Elision | None = None


class Axis:
    """Maps times to pixels, monotonically."""

    def __init__(self, timeline: Timeline, left_px: float, right_px: float) -> None:
        self.end_ns = timeline.makespan_ns
        longest = sorted(timeline.elisions, key=lambda elision: -elision.duration_ns)[:_MOST_CUTS]
        cuts = sorted(
            (elision for elision in longest if elision.duration_ns > 0),
            key=lambda elision: elision.at_ns,
        )
        self.drawn_ns = self.end_ns - sum(cut.duration_ns for cut in cuts)
        room_px = right_px - left_px - CUT_PX * len(cuts)
        self.px_per_ns = room_px / self.drawn_ns if self.drawn_ns > 0 else 0.0
        self.pieces = list(self._pieces(cuts, left_px))
        self._begins = [piece.begin_ns for piece in self.pieces]

    def _pieces(self, cuts: list[Elision], left_px: float) -> Iterator[Piece]:
        now_ns, x_px = 0.0, left_px
        for cut in cuts:
            at = max(now_ns, cut.at_ns)
            middle_px = x_px + (at - now_ns) * self.px_per_ns
            yield Piece(now_ns, at, x_px, middle_px)
            now_ns, x_px = at + cut.duration_ns, middle_px + CUT_PX
            yield Piece(at, now_ns, middle_px, x_px, cut)
        end_px = x_px + max(0.0, self.end_ns - now_ns) * self.px_per_ns
        yield Piece(now_ns, self.end_ns, x_px, end_px)

    def _piece(self, ns: float) -> Piece:
        return self.pieces[max(0, bisect_right(self._begins, ns) - 1)]

    def hides(self, begin_ns: float, end_ns: float) -> bool:
        """Whether a stretch of time takes no time, or lies in one that is cut out."""
        piece = self._piece(begin_ns)
        return begin_ns == end_ns or (piece.cut is not None and end_ns <= piece.end_ns)

    def x_px(self, ns: float) -> float:
        """Where a time is drawn."""
        piece = self._piece(ns)
        span = piece.end_ns - piece.begin_ns
        share = (ns - piece.begin_ns) / span if span > 0 else 0.0
        return piece.left_px + min(1.0, max(0.0, share)) * (piece.right_px - piece.left_px)

    @property
    def unit(self) -> tuple[float, str]:
        """ns in a unit, and its name, such that what is drawn to scale takes a few digits."""
        return next((unit for unit in _UNITS if self.drawn_ns >= 2 * unit[0]), _UNITS[-1])

    def ticks(self) -> Iterator[tuple[float, str]]:
        """(pixel, number) of round times in what is drawn to scale."""
        scale, _ = self.unit
        step = round_step(self.drawn_ns / scale / _TICKS)
        digits = max(0, -_exponent(step))
        for piece in self.pieces:
            if piece.cut is None and step > 0:
                number = -(-piece.begin_ns // (step * scale))
                while number * step * scale <= piece.end_ns:
                    yield self.x_px(number * step * scale), f"{number * step:,.{digits}f}"
                    number += 1


def round_step(least: float) -> float:
    """The smallest of 1, 2, 5, 10, ... times a power of ten that is at least `least`."""
    if least <= 0:
        return 0.0
    power = 10.0 ** _exponent(least)
    return next(f * power for f in (1, 2, 5, 10) if f * power >= least * (1 - 1e-9))


def _exponent(value: float) -> int:
    """The power of ten just below a value."""
    return int(f"{value:e}".partition("e")[2])

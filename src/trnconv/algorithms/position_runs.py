"""Positions along an axis that are read from neighbouring places: what one DMA brings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class PositionRun(NamedTuple):
    """Positions `at` .. `end - 1` of a window, read from `first` on in steps of `step`."""

    at: int
    end: int
    first: int
    step: int


def runs_of(places: Iterable[tuple[int, int]]) -> list[PositionRun]:
    """(position, source) pairs as runs of neighbouring positions with equal steps forward."""
    runs: list[PositionRun] = []
    for position, source in places:
        last = runs[-1] if runs else None
        if last is None or last.end != position:
            runs.append(PositionRun(position, position + 1, source, 1))
        elif last.end - last.at == 1 and source > last.first:
            runs[-1] = PositionRun(last.at, position + 1, last.first, source - last.first)
        elif last.end - last.at > 1 and source == last.first + (last.end - last.at) * last.step:
            runs[-1] = last._replace(end=position + 1)
        else:
            runs.append(PositionRun(position, position + 1, source, 1))
    return runs


def repeated(sources: Sequence[int]) -> list[tuple[int, int]]:
    """Positions outside of the longest run whose source is in it, and where: copies of those."""
    if not sources:
        return []
    inner = max(runs_of(enumerate(sources)), key=lambda run: run.end - run.at)
    held = {sources[position]: position for position in range(inner.at, inner.end)}
    return [
        (position, held[source])
        for position, source in enumerate(sources)
        if not inner.at <= position < inner.end and source in held
    ]

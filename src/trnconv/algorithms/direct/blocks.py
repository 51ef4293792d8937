"""Cutting the output into blocks, and blocks into tiles of a PSUM bank."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from trnconv.algorithms.direct.reduced_problem import DEPTH, WIDTH, ReducedProblem
from trnconv.geometry import ZEROS


class OutputSpan(NamedTuple):
    """Outputs `first` .. `first + outputs - 1` of an axis."""

    first: int
    outputs: int


class InputSpan(NamedTuple):
    """The part of the input that a span of outputs reads."""

    first: int  # the first position that exists
    inputs: int
    missing: int  # positions before it that are zero padding
    sources: tuple[int, ...] = ()  # of each position, from `first` on, if padding has values


def input_span(reduced: ReducedProblem, axis: int, span: OutputSpan) -> InputSpan:
    """What the taps of a span reach, without the padding."""
    begin, end = reached(reduced, axis, span)
    if reduced.modes[axis] != ZEROS and (begin < 0 or end > reduced.size[axis]):
        sources = [reduced.source(axis, position) for position in range(begin, end)]
        first = min(sources)
        return InputSpan(first, end - begin, 0, tuple(source - first for source in sources))
    first = min(max(begin, 0), reduced.size[axis])
    return InputSpan(first, max(0, min(end, reduced.size[axis]) - first), first - begin)


def input_count(reduced: ReducedProblem, axis: int, span: OutputSpan) -> int:
    """The `inputs` of an input span."""
    begin, end = reached(reduced, axis, span)
    if reduced.modes[axis] != ZEROS:
        return end - begin
    return max(0, min(end, reduced.size[axis]) - max(begin, 0))


def reached(reduced: ReducedProblem, axis: int, span: OutputSpan) -> tuple[int, int]:
    """The same with the padding: the first position, and the end.

    Columns that a stride leaves at the end of a row are loaded, too: whole rows lie together.
    """
    begin = reduced.advance(axis, span.first) - reduced.pad[axis]
    last = reduced.advance(axis, span.outputs) - reduced.step[axis]
    end, size = begin + last + reduced.reach(axis), reduced.size[axis]
    return begin, size if axis == WIDTH and size - reduced.step[axis] < end < size else end


def valid(line: tuple[int, int], count: int, held: int) -> tuple[int, int]:
    """The positions i of `count` for which `first + i * step` is one of `held`: first and end."""
    first, step = line
    begin = max(0, -(first // step))
    end = min(count, (held - 1 - first) // step + 1)
    return (begin, end) if begin < end else (0, 0)


@lru_cache(maxsize=4096)  # both cores of a launch, and plans that differ elsewhere, have the same
def spans(
    outputs: tuple[int, int], size: int, multiple: int = 1, lead: tuple[int, ...] = ()
) -> tuple[OutputSpan, ...]:
    """Blocks of `size` from the first to the end of `outputs`, small ones at both ends.

    Every block has a multiple of `multiple` outputs; where the last has too few, it reaches back
    over outputs that are computed twice.
    """
    begin, end = outputs
    sizes = list(lead) if 2 * sum(lead) + size <= end - begin else []
    middle = end - begin - 2 * sum(sizes)
    whole, rest = divmod(middle, size)
    last = [-(-rest // multiple) * multiple] if rest else []
    cut: list[OutputSpan] = []
    at = begin
    for count in [*sizes, *[size] * whole]:
        cut.append(OutputSpan(at, count))
        at += count
    for count in last:
        at = begin + sum(sizes) + middle
        cut.append(OutputSpan(at - count, count))
    for count in reversed(sizes):
        cut.append(OutputSpan(at, count))
        at += count
    return tuple(cut)


def equal_spans(total: int, size: int) -> list[OutputSpan]:
    """Blocks of one size; the last reaches back over outputs that are computed twice."""
    count = min(size, total)
    firsts = [*range(0, total - count, count), total - count]
    return [OutputSpan(first, count) for first in firsts]


def frame_spans(reduced: ReducedProblem, frames: int) -> list[OutputSpan]:
    """Blocks of frames in whole phases; what is left of a last phase is a block of its own."""
    out = reduced.out[DEPTH]
    left = out % reduced.phases[DEPTH]
    whole = equal_spans(out - left, frames)
    return [*whole, OutputSpan(out - left, left)] if left else whole


def _parts(total: int, count: int) -> list[tuple[int, int]]:
    """`total` in `count` parts that differ by one at most."""
    small, larger = divmod(total, count)
    ends = [small * (part + 1) + min(part + 1, larger) for part in range(count)]
    return list(zip([0, *ends[:-1]], ends, strict=True))


@lru_cache(maxsize=4096)
def bank_tiles(rows: int, columns: int, most: int) -> tuple[tuple[int, int, int, int], ...]:
    """Rectangles (row, row end, column, column end) of at most `most` positions, few and equal."""
    best: list[tuple[int, int, int, int]] = []
    for high in range(1, min(rows, most) + 1):
        tiles = [
            (row, row_end, column, column_end)
            for row, row_end in _parts(rows, -(-rows // high))
            for column, column_end in _parts(columns, -(-columns // (most // (row_end - row))))
        ]
        if not best or len(tiles) < len(best):
            best = tiles
    return tuple(best)


@lru_cache(maxsize=4096)
def bank_tile_count(rows: int, columns: int, most: int) -> int:
    """How many rectangles `bank_tiles` cuts."""
    best = rows * columns
    for high in range(1, min(rows, most) + 1):
        whole, larger = divmod(rows, -(-rows // high))
        parts = -(-rows // high)
        count = larger * -(-columns // (most // (whole + 1))) if larger else 0
        best = min(best, count + (parts - larger) * -(-columns // (most // whole)))
    return best

"""Sheets: tiles of x that all taps of a frame share, so that x is transposed once.

Output column w and column tap t meet input column

    stride * w + dilation * t - pad  =  stride * (w + ahead) + phase,    0 <= phase < stride.

DMA transposes elements of 2 or 4 bytes: with stride 2, two 16-bit columns that lie together are
one element, and go to one partition. So column v of a sheet holds columns stride * (v + origin) of
x and those up to the next one; a tap reads its phase of it. Taps of another `ahead` than `origin`
read the same sheet, and meet dy moved by the difference.

A sheet is as wide as the output where zeros are all that is beyond it. Where padding has values, or
there is none, it has every column that a tap reads, and dy has zeros at those that are more.

A tile of a sheet has every `apart`-th row of a block. So a row tap further down is another tile
of the same sheet.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from trnconv.algorithms.position_runs import PositionRun, runs_of
from trnconv.geometry import ConvShape

_HEIGHT, _WIDTH = 1, 2


@dataclass(frozen=True)
class ColumnTap:
    """What a column tap reads: dy moved by so many columns, and a phase of a sheet."""

    shift: int
    phase: int


@dataclass(frozen=True)
class RowSteps:
    """How tiles of a sheet lie: input rows from tile to tile, and tiles by output row and tap."""

    rows: int
    by_row: int
    by_tap: int

    def tiles(self, rows: int, taps: int) -> int:
        """Tiles that so many output rows and taps read."""
        return self.by_row * (rows - 1) + self.by_tap * (taps - 1) + 1


def row_steps(shape: ConvShape) -> RowSteps:
    """Tiles of input rows that taps meet, as few as can be."""
    stride, dilation = shape.stride[_HEIGHT], shape.dilation[_HEIGHT]
    rows = gcd(stride, dilation)
    return RowSteps(rows, stride // rows, dilation // rows)


@dataclass(frozen=True)
class SheetSpan:
    """Where sheets begin, in units of the stride, and how many columns they have."""

    origin: int
    columns: int


@lru_cache(maxsize=256)
def sheet_span(shape: ConvShape) -> SheetSpan:
    """The columns of a sheet: as few as hold all that a tap meets."""
    width, out = shape.size[_WIDTH] // shape.stride[_WIDTH], shape.out_size(_WIDTH)
    aheads = {ahead for ahead, _ in _column_reads(shape)}
    for origin in () if shape.repeats(_WIDTH) else sorted(aheads, key=abs):
        firsts = (max(0, ahead) for ahead in aheads)
        lasts = (min(width, out + ahead) for ahead in aheads)
        if min(firsts) >= origin and max(lasts) <= out + origin:
            return SheetSpan(origin, out)
    return SheetSpan(min(aheads), out + max(aheads) - min(aheads))


@lru_cache(maxsize=256)
def sheet_column_runs(shape: ConvShape) -> tuple[PositionRun, ...]:
    """Columns of a sheet that are there, and where."""
    span = sheet_span(shape)
    if shape.repeats(_WIDTH):
        places = (shape.source(_WIDTH, span.origin + column) for column in range(span.columns))
        return tuple(runs_of(enumerate(places)))
    return existing_run(span.origin, span.columns, shape.size[_WIDTH] // shape.stride[_WIDTH])


def existing_run(first: int, count: int, limit: int) -> tuple[PositionRun, ...]:
    """Those of `count` columns from `first` on that lie between 0 and `limit`."""
    begin, end = max(0, -first), min(count, limit - first)
    return (PositionRun(begin, end, first + begin, 1),) if begin < end else ()


@lru_cache(maxsize=256)
def column_taps(shape: ConvShape) -> tuple[ColumnTap, ...]:
    """What each column tap reads."""
    origin = sheet_span(shape).origin
    return tuple(ColumnTap(origin - ahead, phase) for ahead, phase in _column_reads(shape))


def sheet_shifts(shape: ConvShape) -> tuple[int, ...]:
    """How dy is moved for some of the taps; not moved comes first."""
    return tuple(
        sorted({tap.shift for tap in column_taps(shape)}, key=lambda shift: (abs(shift), shift))
    )


@lru_cache(maxsize=256)
def joined_taps(shape: ConvShape) -> tuple[tuple[int, int], ...]:
    """Column taps that meet the same dy and follow each other in a sheet: first, and how many."""
    joined: list[tuple[int, int]] = []
    for number, tap in enumerate(column_taps(shape)):
        first, count = joined[-1] if joined else (0, 0)
        begin = column_taps(shape)[first]
        if count and (tap.shift, tap.phase) == (begin.shift, begin.phase + count):
            joined[-1] = (first, count + 1)
        else:
            joined.append((number, 1))
    return tuple(joined)


def _column_reads(shape: ConvShape) -> list[tuple[int, int]]:
    """`ahead` and `phase` of each column tap."""
    stride = shape.stride[_WIDTH]
    starts = (shape.in_position(_WIDTH, 0, tap) for tap in range(shape.kernel[_WIDTH]))
    return [divmod(start, stride) for start in starts]

"""Blocks of time as shapes on a lane: wide ones as they are, narrow neighbours merged.

Narrow blocks of one op with next to nothing between them become one block. What is still narrow
goes into columns of one pixel, in which every op gets a share of the height, as it had of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from nkisim.timing.report.axis import Axis

_NARROW_PX: Final = 1.2
_MERGED_PX: Final = 6.0  # blocks below this lose their borders where they touch
_TOUCHING: Final = 0.1  # of the narrower block: a smaller gap than this does not show
_STEPS: Final = 20  # heights are rounded to this, so that equal columns can be joined
_LEAST_SHARE: Final = 0.5 / _STEPS


class Span(NamedTuple):
    """Something that takes time: which kind, and an instruction to point at."""

    begin_ns: float
    end_ns: float
    op: str
    row: int


class Wide(NamedTuple):
    """A block that is drawn by itself; of so many instructions from `row` on."""

    left_px: float
    right_px: float
    op: str
    row: int
    instructions: int
    ns: float


class Columns(NamedTuple):
    """Equal columns side by side: a band of the lane's height, 0 at the bottom and 1 at the top."""

    left_px: int
    right_px: int
    low: float
    high: float
    op: str


def shapes(spans: Iterable[Span], axis: Axis) -> tuple[list[Wide], list[Columns]]:
    """What to draw for the spans of one lane."""
    wide: list[Wide] = []
    shares: dict[int, dict[str, float]] = {}
    for block in _merged(spans, axis):
        if block.right_px - block.left_px >= _NARROW_PX:
            wide.append(block)
        else:
            _spread(shares, block, range(int(block.left_px), int(block.right_px) + 1))
    for block in wide:  # a column that a wide block has a part of is as high as both together
        edges = {int(block.left_px), int(block.right_px)}
        _spread(shares, block, edges.intersection(shares))
    return wide, list(_joined(_stacked(shares)))


def _merged(spans: Iterable[Span], axis: Axis) -> Iterator[Wide]:
    last: Wide | None = None
    last_px = 0.0  # width of the latest block in `last`
    for span in spans:
        left, right = axis.x_px(span.begin_ns), axis.x_px(span.end_ns)
        narrower = min(right - left, last_px)
        if (
            last is not None
            and last.op == span.op
            and max(right - left, last_px) < _MERGED_PX
            and left - last.right_px <= _TOUCHING * narrower
        ):
            ns = last.ns + span.end_ns - span.begin_ns
            last = last._replace(
                right_px=max(right, last.right_px), instructions=last.instructions + 1, ns=ns
            )
        else:
            if last is not None:
                yield last
            last = Wide(left, right, span.op, span.row, 1, span.end_ns - span.begin_ns)
        last_px = right - left
    if last is not None:
        yield last


def _spread(shares: dict[int, dict[str, float]], block: Wide, columns: Iterable[int]) -> None:
    for column in columns:
        part = min(block.right_px, column + 1) - max(block.left_px, column)
        if part > 0:
            ops = shares.setdefault(column, {})
            ops[block.op] = ops.get(block.op, 0.0) + part


def _stacked(shares: dict[int, dict[str, float]]) -> Iterator[Columns]:
    """One band per op and column; the op with most time in the lane is at the bottom."""
    totals: dict[str, float] = {}
    for ops in shares.values():
        for op, share in ops.items():
            totals[op] = totals.get(op, 0.0) + share
    order = sorted(totals, key=lambda op: (-totals[op], op))
    for column in sorted(shares):
        low = 0.0
        for op in order:
            share = shares[column].get(op, 0.0)
            high = min(1.0, low + max(1, round(share * _STEPS)) / _STEPS)
            if share >= _LEAST_SHARE and high > low:
                yield Columns(column, column + 1, low, high, op)
                low = high


def _joined(columns: Iterable[Columns]) -> Iterator[Columns]:
    """Bands of one op and height that touch become one."""
    growing: dict[tuple[float, float, str], Columns] = {}
    for column in columns:
        key = (column.low, column.high, column.op)
        last = growing.get(key)
        if last is not None and last.right_px == column.left_px:
            growing[key] = last._replace(right_px=column.right_px)
        else:
            if last is not None:
                yield last
            growing[key] = column
    yield from growing.values()

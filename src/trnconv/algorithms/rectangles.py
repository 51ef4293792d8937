"""Rectangles of positions: what a bank of PSUM sums up, and the border around one."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

from trnconv.algorithms.recipe_parts import Rectangle


@lru_cache(maxsize=1000)
def rectangles(rows: int, columns: int, most: int) -> tuple[Rectangle, ...]:
    """As few rectangles of at most `most` positions as cover all, of about one size."""
    best: tuple[int, int] | None = None
    for down in range(1, rows + 1):
        height = -(-rows // down)
        across = -(-columns // max(1, most // height)) if height <= most else columns
        if height * -(-columns // across) > most:
            continue
        if best is None or down * across < best[0] * best[1]:
            best = (down, across)
    assert best is not None, "one position fits"
    return tuple(
        Rectangle(row, row_end, column, column_end)
        for row, row_end in _cuts(rows, best[0])
        for column, column_end in _cuts(columns, best[1])
    )


def _cuts(size: int, parts: int) -> list[tuple[int, int]]:
    """Parts of a size that differ by one at most."""
    ends = [size * part // parts for part in range(parts + 1)]
    return [(first, end) for first, end in pairwise(ends) if end > first]


def around(inner: Rectangle, rows: int, columns: int) -> tuple[Rectangle, ...]:
    """What is left of a rectangle from (0, 0) on: above, below, left and right of another."""
    sides = (
        Rectangle(0, inner.row, 0, columns),
        Rectangle(inner.row_end, rows, 0, columns),
        Rectangle(inner.row, inner.row_end, 0, inner.column),
        Rectangle(inner.row, inner.row_end, inner.column_end, columns),
    )
    return tuple(
        side for side in sides if side.row_end > side.row and side.column_end > side.column
    )

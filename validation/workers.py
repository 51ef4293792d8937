"""Workers: rows are independent of each other, so several processes may share them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from validation.row import Row

_Found = TypeVar("_Found")


def for_each(
    function: Callable[[Row], _Found], rows: Sequence[Row], workers: int = 1
) -> Iterator[_Found]:
    """What a function finds for each row, in order. With several workers it has a module's name."""
    if workers == 1:
        yield from map(function, rows)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap(partial(_of_number, function), [row.number for row in rows])


def _of_number(function: Callable[[Row], _Found], number: str) -> _Found:
    """In a worker, which finds the row by itself: kernels do not travel between processes."""
    from validation.rows import ROWS  # noqa: PLC0415 (all rows: for workers only)

    return function(next(row for row in ROWS if row.number == number))

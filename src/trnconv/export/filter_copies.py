"""Where filters go, as few strided copies: what packs them then needs no plan."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from trnconv.algorithms.algorithm import FilterSources

Array = np.ndarray[Any, Any]


@dataclass
class FilterCopy:
    """image[line + i, column + j * column_step] = filters[source + i * line_step + j * step]."""

    line: int
    lines: int
    column: int
    columns: int
    column_step: int
    source: int  # among the filters, flat
    line_step: int
    step: int

    def numbers(self) -> list[int]:
        """As a folder has it."""
        return list(astuple(self))


def filter_copies(sources: FilterSources) -> list[list[int]]:
    """Copies that make all of an image of zeros; each takes a rectangle of it."""
    per_output = int(np.prod(sources.filters[1:]))
    per_input = int(np.prod(sources.filters[2:]))
    done: list[FilterCopy] = []
    open_ones: dict[tuple[int, int, int, int], FilterCopy] = {}
    for column in range(sources.numbers.shape[1]):
        for line, lines, source in _runs(sources.numbers[:, column], per_input):
            # The output channel before this one, of the same inputs and tap, is what it goes on.
            key = (line, lines, source - per_output, 0)
            last = open_ones.pop(key, None)
            if last is None or not _goes_on(last, column):
                last = FilterCopy(line, lines, column, 0, 1, source, per_input, per_output)
                done.append(last)
            elif last.columns == 1:
                last.column_step = column - last.column
            last.columns += 1
            open_ones[line, lines, source, 0] = last
    return [copy.numbers() for copy in done]


def _goes_on(last: FilterCopy, column: int) -> bool:
    if last.columns == 1:
        return True
    return column == last.column + last.columns * last.column_step


def _runs(column: Array, per_input: int) -> list[tuple[int, int, int]]:
    """First line, number of lines and first element of filters that lie one below the other."""
    filled = np.flatnonzero(column)
    if not filled.size:
        return []
    values = column[filled]
    apart = (np.diff(filled) != 1) | (np.diff(values) != per_input)
    firsts = [0, *(np.flatnonzero(apart) + 1).tolist()]
    ends = [*firsts[1:], filled.size]
    return [
        (int(filled[first]), end - first, int(values[first]) - 1)
        for first, end in zip(firsts, ends, strict=True)
    ]

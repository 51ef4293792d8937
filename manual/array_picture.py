"""How plans fill the array: the first stationary matrix of each, coloured by tap."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from manual.canvas import box, picture, text
from nkisim.machine import PARTITIONS, TRN2
from trnconv.algorithms.direct.pack import sources
from trnconv.geometry import conv_shape
from trnconv.planner.best import best_plan
from trnconv.planner.table import algorithm_of
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.policy import policy_of

Array = np.ndarray[Any, Any]
_CELL = 2.9
_SIDE = _CELL * PARTITIONS
_PITCH = _SIDE + 74
_TOP = 112
_HUES = ("#0072b2", "#d55e00", "#009e73")  # by frame of the kernel
_SHAPES = (
    ("3 to 96 channels, 3x3x3", (1, 3, 6, 48, 320), (96, 3, 3, 3, 3)),
    ("96 to 96 channels, 3x3x3", (1, 96, 6, 48, 320), (96, 96, 3, 3, 3)),
    ("96 to 3 channels, 3x3x3", (1, 96, 6, 48, 320), (3, 96, 3, 3, 3)),
)


def draw() -> str:
    """Three plans side by side."""
    parts: list[str] = [
        text((24, 36), "What lies where in the array of 128 x 128", 20, font_weight="600"),
        text((24, 60), "Rows: input lines, in partitions (K). Columns: outputs (M).", 14, "faint"),
    ]
    for number, (title, x, w) in enumerate(_SHAPES):
        parts += _panel(24 + 34 + number * _PITCH, title, _matrices(x, w))
    width, height = 24 + 34 + 3 * _PITCH, _TOP + _SIDE + 120
    parts += _legend(58, height - 24)
    return picture((width, height), "The array's filling for three plans, modelled", parts)


def _matrices(x: tuple[int, ...], w: tuple[int, ...]) -> tuple[Array, int]:
    """The first matrix as (out, in, tap frame, row, column) or -1, and how many there are."""
    shape = conv_shape(x, w, padding=(0, 1, 1))
    plan = best_plan(ConvProblem(shape, TRN2, policy=policy_of("direct"))).plan
    lowered = algorithm_of(plan).lower(plan)
    filters = sources(lowered)[0]
    chunk, first = lowered.weights[0]
    cells = filters.numbers[:, first : first + chunk.matrix_width]
    count = sum(len(chunk.views) for chunk, _ in lowered.weights)
    found = np.full((*cells.shape, 5), -1)
    used = cells > 0
    found[used] = np.stack(np.unravel_index(cells[used] - 1, filters.filters), axis=-1)
    return found, count


def _panel(left: float, title: str, matrices: tuple[Array, int]) -> Iterator[str]:
    cells, count = matrices
    yield text((left, _TOP - 10), title, 15, font_weight="600")
    yield box((left, _TOP), (_SIDE, _SIDE), "lane")
    for row, group in _groups(cells, 0):
        for column, wide in _groups(cells, 1):
            tap = cells[row, column, 2:]
            if tap[0] >= 0:
                at = (left + column * _CELL, _TOP + row * _CELL)
                size = (wide * _CELL - 0.35, group * _CELL - 0.35)
                yield box(at, size, _shade(*tap), f"tap {tuple(tap.tolist())}")
    yield from _line_labels(left, cells)
    share = (cells[..., 0] >= 0).sum() / PARTITIONS**2
    which = "the only matrix" if count == 1 else f"the first of {count} matrices"
    words = f"{which}; {share:.0%} of the cells in use"
    yield text((left, _TOP + _SIDE + 44), words, 13, "faint")


def _groups(cells: Array, axis: int) -> list[tuple[int, int]]:
    """(first, length) of rows or columns in which taps are the same."""
    taps = np.moveaxis(cells[..., 2:], axis, 0).reshape(cells.shape[axis], -1)
    starts = [0, *(np.nonzero((taps[1:] != taps[:-1]).any(axis=1))[0] + 1).tolist()]
    ends = [*starts[1:], cells.shape[axis]]
    return [(first, end - first) for first, end in zip(starts, ends, strict=True)]


def _line_labels(left: float, cells: Array) -> Iterator[str]:
    """Where channels of one line, or of one output, begin and end."""
    for axis, what in ((0, 1), (1, 0)):
        seen = np.moveaxis(cells[..., what], axis, 0).max(axis=1)
        breaks = [0, *(np.nonzero(seen[1:] != seen[:-1] + 1)[0] + 1).tolist(), len(seen)]
        for first, end in pairwise(breaks):
            if seen[first] < 0 or end - first < 5:
                continue
            words = f"{seen[first]}-{seen[end - 1]}"
            middle = _CELL * (first + end) / 2
            if axis:
                at = (left + middle, _TOP + _SIDE + 18)
                yield text(at, words, 12, "faint", text_anchor="middle")
            else:
                yield text((left - 5, _TOP + middle + 4), words, 12, "faint", text_anchor="end")


def _shade(frame: int, row: int, column: int) -> str:
    """The hue is the tap's frame, the lightness its row and column."""
    hue, share = _HUES[frame % len(_HUES)], 1 - 0.085 * (3 * row + column)
    parts = [int(hue[place : place + 2], 16) for place in (1, 3, 5)]
    mixed = [round(part * share + 235 * (1 - share)) for part in parts]
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _legend(left: float, y: float) -> Iterator[str]:
    yield text((left, y), "taps:", 13)
    for frame in range(3):
        x = left + 48 + 384 * frame
        for row in range(3):
            for column in range(3):
                at = (x + 14 * (3 * row + column), y - 11)
                yield box(at, (13, 13), _shade(frame, row, column))
        yield text((x + 134, y), f"frame {frame}, rows 0-2 x columns 0-2", 13)

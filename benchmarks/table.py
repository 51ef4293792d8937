"""Aligned tables, and numbers as they are printed in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10


@dataclass(frozen=True)
class Column:
    """A heading of one or two lines, and the side its cells are pushed to: `<` or `>`."""

    heading: str
    side: str = ">"


def aligned(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """Headings, then rows, two blanks between columns and none at the end of a line."""
    height = max(len(column.heading.splitlines()) for column in columns)
    lines = [*zip(*[_heading_cells(column, height) for column in columns], strict=True), *rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    return "\n".join(_line(columns, widths, cells) for cells in lines)


def _heading_cells(column: Column, height: int) -> list[str]:
    lines = column.heading.splitlines()
    return [""] * (height - len(lines)) + lines


def _line(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str]) -> str:
    fields = zip(columns, widths, cells, strict=True)
    return "  ".join(f"{cell:{column.side}{width}}" for column, width, cell in fields).rstrip()


def significant(value: float, digits: int = 3) -> str:
    """A positive number with this many significant digits, never with an exponent."""
    if value <= 0:
        return "0"
    decimals = digits - 1 - floor(log10(value))
    rounded = round(value, decimals)
    decimals = digits - 1 - floor(log10(rounded))  # 9.999 became 10.0
    return f"{rounded:.{max(0, decimals)}f}"


def microseconds(ns: float) -> str:
    """A time in us, with one decimal."""
    return f"{ns / 1000:.1f}"


def percent(share: float) -> str:
    """A difference with its sign: +1.5 %."""
    return f"{100 * share:+.1f} %"


def yes_or_no(*, holds: bool) -> str:
    """The answer to a check."""
    return "yes" if holds else "no"


def by_times(sizes: Sequence[int]) -> str:
    """Sizes as the catalogue writes them: 1x96x6x48x1280."""
    return "x".join(map(str, sizes))

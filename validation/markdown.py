"""Markdown: tables, and numbers as the pages print them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table, with its last line ended."""
    rows = [columns, ["---"] * len(columns), *lines]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in rows)


def duration(us: float) -> str:
    """A time with its unit, in four digits or so."""
    if us >= 1e3:
        value, unit = us / 1e3, "ms"
    elif us < 1:
        value, unit = us * 1e3, "ns"
    else:
        value, unit = us, "us"
    digits = 1 if value >= 100 else 2
    return f"{value:.{digits}f} {unit}"


def percent(share: float) -> str:
    """A share: 6.0 %."""
    return f"{100 * share:.1f} %"

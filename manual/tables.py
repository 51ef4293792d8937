"""Tables of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: int = 0) -> str:
    """A table; its last `right` columns but one are numbers and stand at the right."""
    numbers = range(len(columns) - 1 - right, len(columns) - 1)
    rule = ["--:" if number in numbers else "---" for number in range(len(columns))]
    lines = [columns, rule, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)

"""How commands answer: text for people on a terminal, or one JSON document with `--json`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_WIDE = 120  # characters
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout.")]


def printable(text: str) -> str:
    """A name as a terminal may have it: what would move the cursor, or do worse, is escaped."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text
    )


def print_json(document: Any) -> None:
    """One JSON document, and nothing else, on stdout."""
    sys.stdout.write(json.dumps(document, indent=1) + "\n")


def console(wide: int = _WIDE) -> Console:
    """stdout; where it is no terminal, so wide."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else wide
    return Console(width=width, soft_wrap=True, highlight=False)


def table(title: str, *columns: str) -> Table:
    """A plain table: the first column is words, the others are numbers."""
    from rich.table import Table

    made = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for place, name in enumerate(columns):
        made.add_column(name, justify="right" if place else "left", no_wrap=True)
    return made


def amount(value: float, unit: str = "") -> str:
    """Three significant digits with a prefix: 1.85 T."""
    for power, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= power:
            return f"{_digits(value / power)} {prefix}{unit}"
    return f"{_digits(value)} {unit}".rstrip()


def _digits(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 99.95 else f"{value:.3g}"

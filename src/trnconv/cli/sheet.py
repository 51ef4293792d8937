"""Tables that fit a terminal: a narrow one gets fewer columns, and no number is ever cut."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trnconv.cli.output import console, print_json
from trnconv.errors import TrnconvError

if TYPE_CHECKING:
    from rich.console import Console

Wide = Annotated[
    bool, typer.Option("--wide", help="Show all columns, even if the terminal is too narrow.")
]
Csv = Annotated[
    bool, typer.Option("--csv", help="Print the table as CSV to stdout, with unrounded numbers.")
]
_BETWEEN = 2  # characters between columns


@dataclass(frozen=True)
class Field:
    """A column: its name, how a value is written, and what happens where room is short."""

    name: str
    written: Callable[[Any], str] = str
    rank: int = 0  # 0 is always there; of the others the highest goes first
    words: bool = False  # text: begins at the left
    least: int = 0  # characters that text may be shortened to, from its front; 0: never


@dataclass(frozen=True)
class Sheet:
    """Rows of values under columns."""

    columns: tuple[Field, ...]
    rows: tuple[tuple[Any, ...], ...]

    def fitted(self, width: int) -> Sheet:
        """Without the columns that so many characters have no room for."""
        kept = self
        while kept.width > width and any(column.rank for column in kept.columns):
            kept = kept.without(max(column.rank for column in kept.columns))
        return kept.shortened(width)

    @property
    def width(self) -> int:
        """Characters of a line."""
        return sum(self._widths) + _BETWEEN * (len(self.columns) - 1)

    @cached_property
    def _cells(self) -> tuple[tuple[str, ...], ...]:
        """All that is shown, the names of the columns first."""
        rows = (
            tuple(column.written(value) for column, value in zip(self.columns, row, strict=True))
            for row in self.rows
        )
        return (tuple(column.name for column in self.columns), *rows)

    @cached_property
    def _widths(self) -> tuple[int, ...]:
        from rich.cells import cell_len

        return tuple(max(map(cell_len, cells)) for cells in zip(*self._cells, strict=True))

    def without(self, rank: int) -> Sheet:
        """Without the columns of a rank."""
        kept = [place for place, column in enumerate(self.columns) if column.rank != rank]
        return Sheet(
            tuple(self.columns[place] for place in kept),
            tuple(tuple(row[place] for place in kept) for row in self.rows),
        )

    def shortened(self, width: int) -> Sheet:
        """With all columns, and text cut at its front as far as it may be."""
        beyond = self.width - width
        columns = list(self.columns)
        for place, column in enumerate(columns):
            if column.least and beyond > 0:
                room = max(column.least, self._widths[place] - beyond)
                beyond -= self._widths[place] - room
                columns[place] = replace(column, written=_cut_to(room, column.written))
        return replace(self, columns=tuple(columns))

    def show(self, screen: Console, *, wide: bool = False) -> None:
        """Print it; say which columns had no room."""
        # What is no terminal has no width: a file or a pipe gets everything.
        shown = self if wide or not screen.is_terminal else self.fitted(screen.width)
        head, *lines = shown.lines()
        as_it_is = partial(screen.print, markup=False, highlight=False, soft_wrap=True)
        as_it_is(head, style="bold")
        if lines:
            as_it_is("\n".join(lines))
        names = [column.name for column in shown.columns]
        left_out = [column.name for column in self.columns if column.name not in names]
        if left_out:
            screen.print(f"No room for: {', '.join(left_out)}. --wide shows all.", markup=False)

    def lines(self) -> list[str]:
        """The names of the columns, then a line a row: text starts left, numbers end right."""
        return [self._line(cells).rstrip() for cells in self._cells]

    def _line(self, cells: Sequence[str]) -> str:
        from rich.cells import cell_len

        padded = []
        for column, width, text in zip(self.columns, self._widths, cells, strict=True):
            blank = " " * (width - cell_len(text))
            padded.append(text + blank if column.words else blank + text)
        return (" " * _BETWEEN).join(padded)

    def print_csv(self) -> None:
        """A line of names, a line a row; numbers as they are."""
        lines = io.StringIO()
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(column.name for column in self.columns)
        writer.writerows(self.rows)
        sys.stdout.write(lines.getvalue())


def _cut_to(room: int, written: Callable[[Any], str]) -> Callable[[Any], str]:
    def cut(value: Any) -> str:
        text = written(value)
        return text if len(text) <= room else f"..{text[2 - room :]}"

    return cut


def require_one_algorithm(*, json: bool, csv: bool) -> None:
    """Refuse two answers on one stdout."""
    if json and csv:
        raise TrnconvError("--json and --csv: give one of them, not both.")


def print_list(
    answer: dict[str, Any], listed: Sheet, words: str, *, json: bool, csv: bool, wide: bool
) -> None:
    """An answer in the form that was asked for; as a table, with words below it."""
    require_one_algorithm(json=json, csv=csv)
    if json:
        print_json(answer)
    elif csv:
        listed.print_csv()
    else:
        screen = console()
        listed.show(screen, wide=wide)
        screen.print()
        screen.print(words)


def sheet(columns: Sequence[Field], rows: Sequence[Sequence[Any]]) -> Sheet:
    """A sheet of any sequences."""
    return Sheet(tuple(columns), tuple(tuple(row) for row in rows))

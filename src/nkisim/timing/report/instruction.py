"""A picture of one instruction: its tiles inside of their tensors, and the order of access."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from html import escape
from typing import Any, Final

from nkisim.timing.report.access_runs import (
    MOST_RUNS,
    ElementRun,
    Grid,
    grid_of,
    length_of,
    runs_of,
)
from nkisim.timing.report.palette import FAINT_INK, GRID, INK, LANE, PAPER
from nkisim.timing.report.svg_elements import FONT, bands, box, line, shortened, text
from nkisim.timing.report.words import lane_name
from nkisim.trace import Access, Instruction

WIDTH_PX: Final = 960
_MARGIN_PX: Final = 24
_LEFT_PX: Final = 92  # of the tensors; numbers of rows stand before it
_WIDEST_PX: Final = 780
_HIGHEST_PX: Final = 200
_CELL_PX: Final = 26  # of an element, where they are few enough to number
_NUMBERED_ROWS: Final = 12
_LEAST_PX: Final = 10  # height of a tensor of one row
_SHADES: Final = ("#08306b", "#08519c", "#2171b5", "#4292c6", "#6baed6", "#9ecae1", "#c6dbef")
_WRITTEN: Final = ("#7f2704", "#a63603", "#d94801", "#f16913", "#fd8d3c", "#fdae6b", "#fdd0a2")
_PALE: Final = 4  # shades from here on want dark ink


def svg_instruction(instruction: Instruction) -> str:
    """An instruction's operands: where each lies in its tensor, first accesses darkest."""
    parts, y = list(_heading(instruction)), 92.0
    operands = [(access, True) for access in instruction.writes]
    operands += [(access, False) for access in instruction.reads]
    for access, written in operands:
        panel, y = _Panel(access, y, written=written).draw()
        parts += panel
    for note in _notes(instruction):
        y += 16
        parts.append(text((_MARGIN_PX, y), note, 11, FAINT_INK))
    height = y + _MARGIN_PX
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH_PX} {height:.0f}"'
        f' width="{WIDTH_PX}" height="{height:.0f}" font-family="{FONT}" role="img">'
    )
    title = f"<title>{escape(f'{instruction.op}, instruction {instruction.index}')}</title>"
    return "\n".join([head, title, box((0, 0), (WIDTH_PX, height), PAPER), *parts, "</svg>"])


def _heading(instruction: Instruction) -> Iterator[str]:
    name = f" {instruction.name}" if instruction.name else ""
    head = f"{instruction.op}{name}, instruction {instruction.index}, on {lane_name(instruction)}"
    room = WIDTH_PX - 2 * _MARGIN_PX
    yield text((_MARGIN_PX, 34), shortened(head, 20, room), 20, INK, 'font-weight="600"')
    place = instruction.place
    if place is not None:
        words = f"{place.short}, in {place.function}:  {place.source}"
        yield text((_MARGIN_PX, 56), shortened(words, 13, room), 13, INK)
    options = ", ".join(_option(key, value) for key, value in instruction.options)
    yield text((_MARGIN_PX, 76), shortened(options, 12, room), 12, FAINT_INK)


def _option(key: str, value: Any) -> str:
    return f"{key}={value.name if isinstance(value, Enum) else repr(value)}"


def _notes(instruction: Instruction) -> Iterator[str]:
    yield (
        "A row is a partition (in HBM: a line of the last dimension), a column an element."
        " Blue is read, orange is written; the darkest come first, partitions side by side."
    )
    accesses = (*instruction.writes, *instruction.reads)
    if any(access.anywhere for access in accesses):
        yield "Only the device knows the place of a gathered or data-dependent operand."
    if any(access.step for access in accesses):
        yield "Inside of a hardware loop this is the first iteration."


class _Panel:
    """One operand: its tensor as a box, what is accessed of it in colour."""

    def __init__(self, access: Access, top: float, *, written: bool) -> None:
        self.access = access
        self.top = top
        self.written = written
        self.grid: Grid = grid_of(access)
        self.runs: list[ElementRun] = runs_of(access)
        self.length = max(1, length_of(access))
        rows, columns = self.grid
        self.numbered = rows <= _NUMBERED_ROWS and columns * _CELL_PX <= _WIDEST_PX
        if self.numbered:
            self.width, self.height = float(columns * _CELL_PX), float(rows * _CELL_PX)
        else:
            self.width = float(_WIDEST_PX)
            self.height = max(_LEAST_PX, min(_HIGHEST_PX, 1.5 * rows))

    def draw(self) -> tuple[list[str], float]:
        """The elements of the panel, and where it ends."""
        parts = list(self._words())
        self.top += 44
        parts.append(box((_LEFT_PX, self.top), (self.width, self.height), LANE))
        parts += self._colours()
        parts += self._numbers() if self.numbered else self._borders()
        bottom = self.top + self.height
        parts += self._edges(bottom)
        return parts, bottom + 40

    def _words(self) -> Iterator[str]:
        access, layout = self.access, self.access.layout
        allocation = access.allocation
        verb = "writes" if self.written else "reads"
        shape = ", ".join(str(size) for size in layout.shape)
        whole = ", ".join(str(size) for size in allocation.shape) or "?"
        region = layout.region.value
        name = allocation.label
        if name != allocation.name:
            name += f" ({allocation.name})"
        head = f"{verb} {name}[{shape}] {layout.dtype}, of [{whole}] in {region}"
        room = WIDTH_PX - 2 * _MARGIN_PX
        bold = 'font-weight="600"'
        yield text((_MARGIN_PX, self.top + 14), shortened(head, 13, room), 13, INK, bold)
        yield text((_MARGIN_PX, self.top + 32), shortened(self._pattern(), 12, room), 12, INK)

    def _pattern(self) -> str:
        layout = self.access.layout
        steps = list(zip(layout.strides, layout.shape, strict=True))
        pattern = ", ".join(f"[{stride}, {count}]" for stride, count in steps)
        words = f"pattern [{pattern}] at element {self.access.offset}"
        each = " in each partition" if layout.on_chip else ""
        words += f"; {self.length:,} elements{each}, {self.access.bytes_total:,} bytes in all"
        if self.access.step:
            words += f"; +{self.access.step} elements in each iteration"
        return words

    def _shade(self, order: int) -> int:
        return min(len(_SHADES) - 1, order * len(_SHADES) // self.length)

    def _colours(self) -> Iterator[str]:
        """Bands of one shade each; runs of one shade that lie below each other become one."""
        shades = _WRITTEN if self.written else _SHADES
        by_shade: dict[int, list[ElementRun]] = {}
        for run in self.runs:
            by_shade.setdefault(self._shade(run.order), []).append(run)
        for shade in sorted(by_shade, reverse=True):
            corners = [self._corner(block) for block in _stacked(by_shade[shade])]
            yield bands(corners, shades[shade], crisp=False)

    def _corner(self, block: tuple[int, int, int, int]) -> tuple[float, float, float, float]:
        first, last, left, right = block
        across, down = self.width / self.grid.columns, self.height / self.grid.rows
        x, y = _LEFT_PX + left * across, self.top + first * down
        return (
            round(x, 2),
            round(y, 2),
            round(max(x + 0.5, _LEFT_PX + right * across), 2),
            round(max(y + 0.5, self.top + last * down), 2),
        )

    def _numbers(self) -> Iterator[str]:
        """A grid, and in each element when it is accessed."""
        rows, columns = self.grid
        bottom, right = self.top + self.height, _LEFT_PX + self.width
        for row in range(rows + 1):
            y = self.top + row * _CELL_PX
            yield line((_LEFT_PX, y), (right, y), GRID)
        for column in range(columns + 1):
            x = _LEFT_PX + column * _CELL_PX
            yield line((x, self.top), (x, bottom), GRID)
        seen: set[tuple[int, int]] = set()
        for run in self.runs:
            for further in range(run.elems):
                cell = (run.row, run.column + further)
                if cell in seen:
                    continue
                seen.add(cell)
                order = run.order + further
                across = _LEFT_PX + (cell[1] + 0.5) * _CELL_PX
                down = self.top + (cell[0] + 0.5) * _CELL_PX + 4
                ink = INK if self._shade(run.order) >= _PALE else PAPER
                yield text((across, down), str(order), 11, ink, 'text-anchor="middle"')

    def _borders(self) -> Iterator[str]:
        right, bottom = _LEFT_PX + self.width, self.top + self.height
        for begin, end in (
            ((_LEFT_PX, self.top), (right, self.top)),
            ((right, self.top), (right, bottom)),
            ((_LEFT_PX, bottom), (right, bottom)),
            ((_LEFT_PX, self.top), (_LEFT_PX, bottom)),
        ):
            yield line(begin, end, GRID)

    def _edges(self, bottom: float) -> Iterator[str]:
        """Numbers at the sides: rows and columns that are accessed, of how many."""
        rows = [run.row for run in self.runs]
        low = min(run.column for run in self.runs)
        high = max(run.column + run.elems - 1 for run in self.runs)
        start = self.access.allocation.start_partition
        kind = "partition" if self.access.layout.on_chip else "line"
        end = 'text-anchor="end"'
        first, last = min(rows) + start, max(rows) + start
        words = f"{first}" if first == last else f"{first}..{last}"
        yield text((_LEFT_PX - 8, self.top + 10), kind, 10, FAINT_INK, end)
        yield text((_LEFT_PX - 8, self.top + 22), words, 10, INK, end)
        count = f"elements {low}..{high} of {self.grid.columns:,}; {kind}s {words}"
        count += f" of {self.grid.rows:,}"
        if len(self.runs) >= MOST_RUNS:
            count += f"; the first {MOST_RUNS:,} runs are drawn"
        yield text((_LEFT_PX, bottom + 14), count, 11, FAINT_INK)


def _stacked(runs: list[ElementRun]) -> Iterator[tuple[int, int, int, int]]:
    """Runs of equal columns in rows that follow each other, as (first row, end, left, right)."""
    rows: dict[tuple[int, int], list[int]] = {}
    for run in runs:
        rows.setdefault((run.column, run.column + run.elems), []).append(run.row)
    for (left, right), members in rows.items():
        ordered = sorted(set(members))
        first = before = ordered[0]
        for row in ordered[1:]:
            if row != before + 1:
                yield first, before + 1, left, right
                first = row
            before = row
        yield first, before + 1, left, right

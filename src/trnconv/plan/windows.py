"""Windows: which DMAs fill the lines of a tile for one kind of block."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trnconv.plan.conv_plan import BY_COLUMN, BY_FRAME, BY_ROW
from trnconv.plan.in_lines import InLines, LineTile
from trnconv.plan.kinds import Kind
from trnconv.plan.problem import Problem
from trnconv.plan.recipe import Clear, Load, Pattern, Window


@dataclass(frozen=True)
class Grid:
    """The positions of a job, and how far apart they are in the input."""

    rows: int
    row_step: int
    columns: int
    column_step: int

    def at_level(self, level: int) -> Grid:
        """The part that windows of a level depend on: equal windows are shared."""
        if level == BY_FRAME:
            return Grid(0, 0, 0, 0)
        return self if level == BY_COLUMN else replace(self, columns=0, column_step=0)


@dataclass(frozen=True)
class _Rect:
    """What one line holds: positions `at` .. `end` of the window, read from `first` by `step`."""

    at: int
    end: int
    first: int
    step: int


def window_of(problem: Problem, kind: Kind, tile: LineTile, grid: Grid) -> Window:
    """The loads that fill a tile, and the borders that must be zero first."""
    rows = kind.in_rows if tile.level < BY_ROW else grid.rows
    columns = kind.in_columns if tile.level < BY_COLUMN else grid.columns
    placed = [(one, _held(kind, one, grid)) for one in tile.lines]
    clears = _clears([rect for _, rect in placed], rows, columns)
    loads = [
        _load(problem, kind, one, rect)
        for one, rect in placed
        if rect[0].at < rect[0].end and rect[1].at < rect[1].end
    ]
    return Window(
        ring=tile.level - 1,
        lines=tile.count,
        rows=rows,
        columns=columns,
        clears=clears,
        loads=tuple(_merged(loads)),
    )


def _held(kind: Kind, one: InLines, grid: Grid) -> tuple[_Rect, _Rect]:
    """The rows and columns of the input that a line holds."""
    rows, columns = _Rect(0, kind.in_rows, 0, 1), _Rect(0, kind.in_columns, 0, 1)
    if len(one.key) >= BY_ROW:
        first = one.key[1] - kind.missing_rows
        rows = _clipped(first, grid.row_step, grid.rows, kind.in_rows)
    if len(one.key) == BY_COLUMN:
        first = one.key[2] - kind.missing_columns
        columns = _clipped(first, grid.column_step, grid.columns, kind.in_columns)
    return rows, columns


def _clipped(first: int, step: int, count: int, held: int) -> _Rect:
    begin = max(0, -(first // step))
    end = max(begin, min(count, (held - 1 - first) // step + 1))
    return _Rect(begin, end, first + begin * step, step)


def _clears(held: list[tuple[_Rect, _Rect]], rows: int, columns: int) -> tuple[Clear, ...]:
    """What some line does not hold; engines start on quadrants, so all lines are cleared."""
    top, bottom = max(r.at for r, _ in held), min(r.end for r, _ in held)
    left, right = max(c.at for _, c in held), min(c.end for _, c in held)
    if bottom <= top or right <= left:
        return (Clear(0, rows, 0, columns),)
    borders = (
        Clear(0, top, 0, columns),
        Clear(bottom, rows, 0, columns),
        Clear(top, bottom, 0, left),
        Clear(top, bottom, right, columns),
    )
    return tuple(one for one in borders if one.row < one.row_end and one.column < one.column_end)


def _load(problem: Problem, kind: Kind, one: InLines, rect: tuple[_Rect, _Rect]) -> Load:
    rows, columns = rect
    _, channel, frame, row, column = problem.x_strides
    offset = (
        one.channel * channel
        + (one.key[0] - kind.frames[0]) * frame
        + rows.first * row
        + columns.first * column
    )
    pattern: Pattern = (
        (channel, one.channels),
        (row * rows.step, rows.end - rows.at),
        (column * columns.step, columns.end - columns.at),
    )
    return Load(
        one.line, one.channels, rows.at, rows.end, columns.at, columns.end, offset, dense(pattern)
    )


def _merged(loads: list[Load]) -> list[Load]:
    """Neighbouring lines that differ by one shift are one DMA."""
    merged: list[Load] = []
    runs: list[int] = []  # lines of the first of the loads merged
    for load in loads:
        joined = _joined(merged[-1], load, runs[-1]) if merged else None
        if joined is None:
            merged.append(load)
            runs.append(load.lines)
        else:
            merged[-1] = joined
    return merged


def _joined(one: Load, two: Load, run: int) -> Load | None:
    """Both as one load, if `two` continues the steps of `one`."""
    same_place = (one.row, one.row_end, one.column, one.column_end) == (
        two.row,
        two.row_end,
        two.column,
        two.column_end,
    )
    if not same_place or two.lines != run or two.line != one.line + one.lines:
        return None
    times = one.lines // run
    single = one.pattern if times == 1 else one.pattern[1:]
    step = (two.offset - one.offset) // times
    if single != two.pattern or step * times != two.offset - one.offset:
        return None
    if times > 1 and step != one.pattern[0][0]:
        return None
    pattern = ((step, times + 1), *single)
    return replace(one, lines=one.lines + two.lines, pattern=pattern)


def dense(pattern: Pattern) -> Pattern:
    """The pattern without dimensions of one element, and neighbours in step as one."""
    kept: list[tuple[int, int]] = []
    for step, count in reversed(pattern):
        if count == 1:
            continue
        if kept and step == kept[0][0] * kept[0][1]:
            kept[0] = (kept[0][0], kept[0][1] * count)
        else:
            kept.insert(0, (step, count))
    return tuple(kept) or ((1, 1),)

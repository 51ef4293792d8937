"""Windows: which DMAs fill the lines of a tile for one kind of block."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trnconv.algorithms.direct.array.k_layout import InLines, LineTile
from trnconv.algorithms.direct.block_types import BlockType
from trnconv.algorithms.direct.blocks import valid
from trnconv.algorithms.direct.plan import BY_COLUMN, BY_FRAME, BY_ROW
from trnconv.algorithms.direct.recipe import BorderFill, Clear, InputWindow, Load, Pattern
from trnconv.algorithms.direct.reduced_problem import ReducedProblem
from trnconv.algorithms.position_runs import PositionRun, repeated, runs_of


@dataclass(frozen=True)
class Grid:
    """The positions of an accumulation, and how far apart they are in the input."""

    rows: int
    row_step: int
    columns: int
    column_step: int

    def at_level(self, level: int) -> Grid:
        """The part that windows of a level depend on: equal windows are shared."""
        if level == BY_FRAME:
            return Grid(0, 0, 0, 0)
        return self if level == BY_COLUMN else replace(self, columns=0, column_step=0)


Runs = list[PositionRun]


def window_of(
    reduced: ReducedProblem, kind: BlockType, tile: LineTile, grid: Grid, *, merge: bool = True
) -> InputWindow:
    """The loads that fill a tile, the borders that must be zero first, and those copied on chip.

    `merge`: loads of neighbouring lines that differ by one shift are one DMA.
    """
    rows = kind.in_rows if tile.level < BY_ROW else grid.rows
    columns = kind.in_columns if tile.level < BY_COLUMN else grid.columns
    fills = _fills(kind) if tile.level < BY_COLUMN else ()
    placed = [
        (line, _row_runs(kind, line, grid), _column_runs(kind, line, grid)) for line in tile.lines
    ]
    loads = [
        _load(reduced, kind, line, (row, column))
        for line, row_runs, column_runs in placed
        for row in row_runs
        for column in column_runs
    ]
    held = [(r, c if tile.level == BY_COLUMN else _whole(columns)) for _, r, c in placed]
    return InputWindow(
        ring=tile.level - 1,
        lines=tile.count,
        rows=rows,
        columns=columns,
        clears=_clears(held, rows, columns),
        loads=tuple(_merged(loads) if merge else loads),
        fills=fills,
    )


def _row_runs(kind: BlockType, lines: InLines, grid: Grid) -> Runs:
    """The rows of the input that a line holds: none, if its frame does not exist."""
    if lines.key[0] not in kind.frames:
        return []
    if len(lines.key) < BY_ROW:
        return runs_of(enumerate(kind.row_sources)) or _whole(kind.in_rows)
    if kind.row_sources:
        at = range(lines.key[1], lines.key[1] + grid.rows * grid.row_step, grid.row_step)
        return runs_of(enumerate(kind.row_sources[row] for row in at))
    return _clipped(lines.key[1] - kind.missing_rows, grid.row_step, grid.rows, kind.in_rows)


def _column_runs(kind: BlockType, lines: InLines, grid: Grid) -> Runs:
    if len(lines.key) == BY_COLUMN:
        first = lines.key[2] - kind.missing_columns
        return _clipped(first, grid.column_step, grid.columns, kind.in_columns)
    filled = {fill.column for fill in _fills(kind)}
    loaded = [column for column in enumerate(kind.column_sources) if column[0] not in filled]
    return runs_of(loaded) or _whole(kind.in_columns)


def _whole(count: int) -> Runs:
    return [PositionRun(0, count, 0, 1)] if count else []


def _clipped(first: int, step: int, count: int, held: int) -> Runs:
    begin, end = valid((first, step), count, held)
    return [PositionRun(begin, end, first + begin * step, step)] if begin < end else []


def _fills(kind: BlockType) -> tuple[BorderFill, ...]:
    """Border columns whose source is in the window: single elements are copied, not loaded."""
    return tuple(BorderFill(*pair) for pair in repeated(kind.column_sources))


def _clears(held: list[tuple[Runs, Runs]], rows: int, columns: int) -> tuple[Clear, ...]:
    """What some line does not hold; engines start on quadrants, so all lines are cleared."""
    if any(not row_runs or not column_runs for row_runs, column_runs in held):
        return (Clear(0, rows, 0, columns),)
    top, bottom = max(r[0].at for r, _ in held), min(r[-1].end for r, _ in held)
    left = max(c[0].at for _, c in held) if columns else 0
    right = min(c[-1].end for _, c in held)
    if bottom <= top or right <= left:
        return (Clear(0, rows, 0, columns),)
    borders = (
        Clear(0, top, 0, columns),
        Clear(bottom, rows, 0, columns),
        Clear(top, bottom, 0, left),
        Clear(top, bottom, right, columns),
    )
    return tuple(
        border
        for border in borders
        if border.row < border.row_end and border.column < border.column_end
    )


def _load(
    reduced: ReducedProblem, kind: BlockType, lines: InLines, runs: tuple[PositionRun, PositionRun]
) -> Load:
    rows, columns = runs
    piece, number = kind.frame_places[kind.frames.index(lines.key[0])]
    _, channel, frame, row, column = reduced.piece_strides(piece)
    offset = lines.channel * channel + number * frame + rows.first * row + columns.first * column
    pattern: Pattern = (
        (channel, lines.channels),
        (row * rows.step, rows.end - rows.at),
        (column * columns.step, columns.end - columns.at),
    )
    return Load(
        line=lines.line,
        lines=lines.channels,
        row=rows.at,
        row_end=rows.end,
        column=columns.at,
        column_end=columns.end,
        piece=piece,
        offset=offset,
        pattern=dense(pattern),
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


def _joined(first: Load, second: Load, run: int) -> Load | None:
    """Both as one load, if `two` continues the steps of `one`."""
    same_place = (first.piece, first.row, first.row_end, first.column, first.column_end) == (
        second.piece,
        second.row,
        second.row_end,
        second.column,
        second.column_end,
    )
    if not same_place or second.lines != run or second.line != first.line + first.lines:
        return None
    times = first.lines // run
    single = first.pattern if times == 1 else first.pattern[1:]
    step = (second.offset - first.offset) // times
    if single != second.pattern or step * times != second.offset - first.offset:
        return None
    if step < 0 or (times > 1 and step != first.pattern[0][0]):
        return None  # no device was seen to walk partitions backwards
    pattern = ((step, times + 1), *single)
    return replace(first, lines=first.lines + second.lines, pattern=pattern)


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

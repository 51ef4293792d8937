"""The blocks of a weight gradient: which positions go to which partition, and where they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from trnconv.algorithms.position_runs import PositionRun, repeated, runs_of
from trnconv.algorithms.weight_gradient.iterations import Area, AreaIteration, image_elems, origin
from trnconv.algorithms.weight_gradient.plan import HEIGHT, WIDTH, WeightGradientPlan
from trnconv.algorithms.weight_gradient.recipe import (
    NO_FILL,
    NO_SHEETS,
    NO_WINDOW,
    ColumnCopy,
    GradientBlock,
    PaddedWindow,
    TapFrame,
    TileFill,
    TileView,
    TransposedLoad,
    WindowLoad,
)
from trnconv.algorithms.weight_gradient.sheet_blocks import sheet_block, sheet_tile_sizes, x_sheet


@dataclass(frozen=True)
class _HbmRun:
    """Positions that follow each other in HBM; the first one goes to `position` of a block."""

    position: int
    count: int
    offset: int


def blocks_of(plan: WeightGradientPlan, iteration: AreaIteration) -> tuple[GradientBlock, ...]:
    """The blocks of an iteration; offsets count from its origin."""
    numbers: dict[tuple[int, Area], int] = {}
    return tuple(
        _block(plan, iteration, (area, frame), numbers)
        for area in iteration.areas
        for frame in iteration.frames
    )


def _block(
    plan: WeightGradientPlan,
    iteration: AreaIteration,
    place: tuple[Area, int],
    numbers: dict[tuple[int, Area], int],
) -> GradientBlock:
    area, frame = place
    x_image, dy_image = image_elems(plan)
    x_origin, dy_origin = origin(plan, iteration)
    frames = []
    for at in plan.frames_read(frame):
        if at < 0:
            frames.append(TapFrame(-1, (), NO_WINDOW))
            continue
        number = numbers.setdefault((at, area), len(numbers))
        base = (
            iteration.image * x_image + _before_frame(plan.shape.size, at) // plan.unit - x_origin
        )
        if plan.has_sheets:
            sheet = x_sheet(plan, iteration.images, area, base)
            frames.append(TapFrame(number, (), NO_WINDOW, sheet))
        elif plan.by_dma:
            frames.append(TapFrame(number, _x_fills(plan, iteration.images, area, base), NO_WINDOW))
        else:
            frames.append(TapFrame(number, (), _x_window(plan, iteration.images, area, base)))
    base = iteration.image * dy_image + _before_frame(plan.shape.out_sizes(), frame) - dy_origin
    one_image = _tiles(plan, area.rows, area.columns)
    fill, window = NO_FILL, NO_WINDOW
    views: tuple[TileView, ...] = ()
    x_views: tuple[tuple[TileView, ...], ...] = ()
    sheets = NO_SHEETS
    if plan.has_sheets:
        sheets = sheet_block(plan, iteration.images, area, base)
    elif plan.by_dma:
        fill = _dy_fill(plan, iteration.images, area, base)
    else:
        window = _dy_window(plan, iteration.images, area, base)
        views, x_views = _views(plan, iteration.images, area.rows, area.columns)
    sizes = one_image * iteration.images
    return GradientBlock(sizes, len(one_image), fill, window, views, x_views, tuple(frames), sheets)


def _before_frame(size: tuple[int, int, int], frame: int) -> int:
    return frame * size[HEIGHT] * size[WIDTH]


@lru_cache(maxsize=256)
def _tiles(plan: WeightGradientPlan, rows: int, columns: int) -> tuple[int, ...]:
    """Positions of each tile of an area."""
    if plan.has_sheets:
        return sheet_tile_sizes(plan, rows)
    if plan.by_dma:
        positions, each = (rows - 1) * plan.pitch + columns, plan.tile_lines
    else:
        positions, each = rows * columns, plan.rows_of_tile * columns
    return tuple(min(each, positions - at) for at in range(0, positions, each))


def _dy_fill(plan: WeightGradientPlan, images: int, area: Area, base: int) -> TileFill:
    first = base + area.row * plan.shape.out_size(WIDTH) + area.column
    if plan.pitch == area.columns:
        runs = [_HbmRun(0, area.rows * area.columns, first)]
    else:
        runs = [
            _HbmRun(row * plan.pitch, area.columns, first + row * plan.shape.out_size(WIDTH))
            for row in range(area.rows)
        ]
    sizes = _tiles(plan, area.rows, area.columns)
    apart = len(sizes) * plan.tile_lines
    return _fill(plan, _of_images(runs, images, image_elems(plan)[1], apart), sizes * images)


def _x_fills(plan: WeightGradientPlan, images: int, area: Area, base: int) -> tuple[TileFill, ...]:
    """By column tap, then row tap."""
    shape = plan.shape
    sizes = _tiles(plan, area.rows, area.columns)
    apart = len(sizes) * plan.tile_lines
    fills = []
    for column_tap in range(shape.kernel[WIDTH]):
        column = shape.in_position(WIDTH, area.column, column_tap)
        for row_tap in range(shape.kernel[HEIGHT]):
            row = shape.in_position(HEIGHT, area.row, row_tap)
            runs = [
                replace(run, offset=base + run.offset)
                for rows in _row_runs(plan, area, row)
                for run in _flat_run(plan, rows, column, sum(sizes))
            ]
            runs = _of_images(runs, images, image_elems(plan)[0], apart)
            fills.append(_fill(plan, runs, sizes * images))
    return tuple(fills)


def _row_runs(plan: WeightGradientPlan, area: Area, row: int) -> list[PositionRun]:
    """Rows of a block that a tap finds together, the first one at `row`; zeros are rows, too."""
    if not plan.shape.repeats(HEIGHT):
        return [PositionRun(0, area.rows, row, 1)]
    return runs_of((at, plan.shape.source(HEIGHT, row + at)) for at in range(area.rows))


def _flat_run(
    plan: WeightGradientPlan, rows: PositionRun, column: int, positions: int
) -> list[_HbmRun]:
    """Positions of rows that follow each other, from a column on; without what does not exist."""
    at = rows.at * plan.pitch
    first = rows.first * plan.shape.size[WIDTH] + column
    count = min(positions, rows.end * plan.pitch) - at
    begin, count = _clipped(first, count, _limits(plan, rows.first))
    return [_HbmRun(at + begin, count, first + begin)] if count > 0 else []


def _limits(plan: WeightGradientPlan, row: int) -> tuple[int, int]:
    """What may be read: the frame if tiles run on from row to row, else one row, if it exists."""
    height, width = plan.shape.size[HEIGHT], plan.shape.size[WIDTH]
    if plan.is_flat:
        return 0, height * width
    return (row * width, (row + 1) * width) if 0 <= row < height else (0, 0)


def _clipped(first: int, count: int, limits: tuple[int, int]) -> tuple[int, int]:
    """First and number of the positions from `first` on that lie within the limits."""
    begin = max(0, limits[0] - first)
    return begin, min(count, limits[1] - first) - begin


def _of_images(runs: list[_HbmRun], images: int, elems: int, positions: int) -> list[_HbmRun]:
    """The same runs for each image: `elems` further in HBM, `positions` further in the block."""
    return [
        replace(run, position=run.position + image * positions, offset=run.offset + image * elems)
        for image in range(images)
        for run in runs
    ]


def _fill(plan: WeightGradientPlan, runs: list[_HbmRun], sizes: tuple[int, ...]) -> TileFill:
    """Runs cut at the ends of tiles; what is alike on tiles that follow each other is one DMA."""
    covered = [0] * len(sizes)
    loads: list[TransposedLoad] = []
    for piece in _pieces(plan, runs):
        covered[piece.tile] += piece.lines
        if loads and _continues(loads[-1], piece):
            last = loads[-1]
            step = (piece.offset - last.offset) // last.tiles
            loads[-1] = replace(last, tiles=last.tiles + 1, step=step)
        else:
            loads.append(piece)
    pairs = zip(range(len(sizes)), covered, sizes, strict=True)
    return TileFill(tuple(tile for tile, has, size in pairs if has < size), tuple(loads))


def _continues(last: TransposedLoad, piece: TransposedLoad) -> bool:
    alike = (last.line, last.lines, last.tile + last.tiles) == (piece.line, piece.lines, piece.tile)
    return alike and (last.tiles == 1 or last.offset + last.tiles * last.step == piece.offset)


def _pieces(plan: WeightGradientPlan, runs: Iterable[_HbmRun]) -> Iterator[TransposedLoad]:
    whole = plan.tile_lines
    for run in runs:
        at, end = run.position, run.position + run.count
        while at < end:
            tile, line = divmod(at, whole)
            lines = min(whole - line, end - at)
            yield TransposedLoad(line, lines, tile, 1, run.offset + at - run.position, whole)
            at += lines


def _x_window(plan: WeightGradientPlan, images: int, area: Area, base: int) -> PaddedWindow:
    shape = plan.shape
    rows = _sources(plan, HEIGHT, area.row, area.rows)
    columns = _sources(plan, WIDTH, area.column, area.columns)
    copies = repeated(columns) if shape.repeats(WIDTH) else []
    copied = {column for column, _ in copies}
    loaded = [at for at in enumerate(columns) if at[0] not in copied]
    return PaddedWindow(
        images=images,
        rows=len(rows),
        columns=len(columns),
        clear=-1 in rows or -1 in columns,
        loads=tuple(
            _window_load(plan, base, row, column)
            for row in runs_of(at for at in enumerate(rows) if at[1] >= 0)
            for column in runs_of(at for at in loaded if at[1] >= 0)
        ),
        copies=tuple(ColumnCopy(*pair) for pair in copies),
    )


def _sources(plan: WeightGradientPlan, axis: int, out: int, outs: int) -> list[int]:
    """Where what so many outputs reach along an axis lies; -1: nowhere, zeros."""
    begin = plan.shape.in_position(axis, out, 0)
    reached = range(begin, begin + window_size(plan, axis, outs))
    return [plan.shape.source(axis, position) for position in reached]


def _window_load(
    plan: WeightGradientPlan, base: int, rows: PositionRun, columns: PositionRun
) -> WindowLoad:
    return WindowLoad(
        row=rows.at,
        rows=rows.end - rows.at,
        column=columns.at,
        columns=columns.end - columns.at,
        offset=base + rows.first * plan.shape.size[WIDTH] + columns.first,
    )


def window_size(plan: WeightGradientPlan, axis: int, outs: int) -> int:
    """Input positions that so many outputs reach along an axis, padding included."""
    shape = plan.shape
    reach = shape.dilation[axis] * (shape.kernel[axis] - 1) + 1
    return (outs - 1) * shape.stride[axis] + reach


def _dy_window(plan: WeightGradientPlan, images: int, area: Area, base: int) -> PaddedWindow:
    first = base + area.row * plan.shape.out_size(WIDTH) + area.column
    return PaddedWindow(
        images=images,
        rows=area.rows,
        columns=area.columns,
        clear=False,
        loads=(WindowLoad(0, area.rows, 0, area.columns, first),),
        copies=(),
    )


@lru_cache(maxsize=256)
def _views(
    plan: WeightGradientPlan, images: int, rows: int, columns: int
) -> tuple[tuple[TileView, ...], tuple[tuple[TileView, ...], ...]]:
    """Where each tile is in a window of dy, and for each tap in a window of x."""
    shape, each = plan.shape, plan.rows_of_tile
    cut = [
        (image, row, min(each, rows - row))
        for image in range(images)
        for row in range(0, rows, each)
    ]
    views = tuple(TileView(image * rows + row, count, 0, columns) for image, row, count in cut)
    high = window_size(plan, HEIGHT, rows)
    x_views = []
    for column_tap in range(shape.kernel[WIDTH]):
        for row_tap in range(shape.kernel[HEIGHT]):
            down = row_tap * shape.dilation[HEIGHT]
            right = column_tap * shape.dilation[WIDTH]
            x_views.append(
                tuple(
                    TileView(
                        image * high + row * shape.stride[HEIGHT] + down, count, right, columns
                    )
                    for image, row, count in cut
                )
            )
    return views, tuple(x_views)

"""The blocks of a weight gradient by sheets: which positions go to which partition, and how."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trnconv.forms.filter_gradient.plan import HEIGHT, WIDTH, FilterGradientPlan
from trnconv.forms.filter_gradient.recipe import SheetBlock, SheetFill, SheetLoad, SheetPart
from trnconv.forms.filter_gradient.sheets import row_steps, sheet_origin
from trnconv.forms.filter_gradient.turns import Area, image_elems, row_elems


@dataclass(frozen=True)
class _Source:
    """What fills a sheet: rows and columns of a frame, of which some exist."""

    first_row: int  # of tile 0
    row_step: int  # from tile to tile
    line_step: int  # from row to row of a tile
    rows: int  # that exist
    needed: int  # the end of those that are read
    first_column: int  # of the first piece
    columns: int  # that exist
    image: int  # elements from image to image
    base: int  # of the first image's frame
    tiles: int


@dataclass(frozen=True)
class PieceRun:
    """Pieces that follow each other with the same columns of theirs."""

    piece: int
    pieces: int
    column: int  # where the first piece begins
    first: int  # of the columns of a piece that exist
    count: int
    width: int  # columns of a piece

    @property
    def is_whole(self) -> bool:
        """Whether all columns exist."""
        return self.count == self.width


def sheet_block(plan: FilterGradientPlan, images: int, area: Area, base: int) -> SheetBlock:
    """How a block is cut, and its dy, moved for each copy."""
    across, shape = dy_tiles_of_piece(plan, area.rows), plan.shape
    copies = []
    for shift in plan.shifts:
        source = _Source(
            first_row=area.row,
            row_step=1,
            line_step=across,
            rows=shape.out_size(HEIGHT),
            needed=area.row + area.rows,
            first_column=area.column + shift,
            columns=shape.out_size(WIDTH),
            image=image_elems(plan)[1],
            base=base,
            tiles=across,
        )
        copies.append(_fill(plan, images, area, source, shape.out_size(WIDTH)))
    return SheetBlock(
        pieces=images * len(_piece_widths(plan, area.columns)),
        dy_tiles=across,
        x_tiles=row_steps(shape).tiles(across, shape.kernel[HEIGHT]),
        dy=tuple(copies),
    )


def x_sheet(plan: FilterGradientPlan, images: int, area: Area, base: int) -> SheetFill:
    """The sheet of a frame for a block."""
    shape, steps = plan.shape, row_steps(plan.shape)
    across = dy_tiles_of_piece(plan, area.rows)
    source = _Source(
        first_row=shape.in_position(HEIGHT, area.row, 0),
        row_step=steps.rows,
        line_step=across * shape.stride[HEIGHT],
        rows=shape.size[HEIGHT],
        needed=shape.in_position(HEIGHT, area.row + area.rows - 1, shape.kernel[HEIGHT] - 1) + 1,
        first_column=area.column + (sheet_origin(shape) or 0),
        columns=row_elems(plan),
        image=image_elems(plan)[0],
        base=base,
        tiles=steps.tiles(across, shape.kernel[HEIGHT]),
    )
    return _fill(plan, images, area, source, row_elems(plan))


def sheet_tile_sizes(plan: FilterGradientPlan, rows: int, columns: int) -> tuple[int, ...]:
    """Positions of each tile of an area: piece by piece, row by row."""
    across = dy_tiles_of_piece(plan, rows)
    lines = [-(-(rows - row) // across) for row in range(across)]
    return tuple(width * count for width in _piece_widths(plan, columns) for count in lines)


def dy_tiles_of_piece(plan: FilterGradientPlan, rows: int) -> int:
    """Tiles of so many output rows of a piece."""
    return min(plan.apart, rows)


def rows_of_sheet_tile(plan: FilterGradientPlan, rows: int) -> int:
    """The most rows of a tile."""
    return -(-rows // dy_tiles_of_piece(plan, rows))


def piece_runs(plan: FilterGradientPlan, columns: int, first: int, limit: int) -> list[PieceRun]:
    """Pieces of so many columns from `first` on, of which those from 0 to `limit` exist."""
    runs: list[PieceRun] = []
    for number, width in enumerate(_piece_widths(plan, columns)):
        column = number * plan.piece
        begin, end = max(0, -first - column), min(width, limit - first - column)
        run = PieceRun(number, 1, column, begin, max(0, end - begin), width)
        if runs and runs[-1].is_whole and run.is_whole and runs[-1].width == width:
            runs[-1] = replace(runs[-1], pieces=runs[-1].pieces + 1)
        else:
            runs.append(run)
    return runs


def _piece_widths(plan: FilterGradientPlan, columns: int) -> list[int]:
    return [min(plan.piece, columns - at) for at in range(0, columns, plan.piece)]


def _fill(
    plan: FilterGradientPlan, images: int, area: Area, source: _Source, pitch: int
) -> SheetFill:
    """Clears and loads of all images; rows are `pitch` elements apart."""
    runs = piece_runs(plan, area.columns, source.first_column, source.columns)
    lines = rows_of_sheet_tile(plan, area.rows)
    pieces = len(_piece_widths(plan, area.columns))
    clears: list[SheetPart] = []
    loads: list[SheetLoad] = []
    for image in range(images):
        first = image * pieces
        clears += [
            SheetPart(first + run.piece, run.pieces, 0, source.tiles)
            for run in runs
            if not run.is_whole
        ]
        clears += [
            SheetPart(first, pieces, tile, count) for tile, count in _cut_tiles(source, lines)
        ]
        base = source.base + image * source.image
        for run in runs:
            loads += _loads(source, run, lines, (base, first, pitch))
    return SheetFill(tuple(clears), tuple(loads))


def _loads(
    source: _Source, run: PieceRun, lines: int, place: tuple[int, int, int]
) -> Iterator[SheetLoad]:
    """One DMA for each row of a tile: all pieces of a run, all tiles of which the row exists."""
    base, first_piece, pitch = place
    for number in range(lines):
        tile, tiles = _existing(source, number)
        if tiles > 0 and run.count > 0:
            row = source.first_row + tile * source.row_step + number * source.line_step
            column = source.first_column + run.column + run.first
            yield SheetLoad(
                line=number * run.width + run.first,
                lines=run.count,
                part=SheetPart(first_piece + run.piece, run.pieces, tile, tiles),
                offset=base + row * pitch + column,
                piece_step=run.width,
                tile_step=source.row_step * pitch,
            )


def _existing(source: _Source, number: int) -> tuple[int, int]:
    """First and number of the tiles whose row of this number exists."""
    first = source.first_row + number * source.line_step
    begin = max(0, -(first // source.row_step))
    end = min(source.tiles, -(-(min(source.rows, source.needed) - first) // source.row_step))
    return begin, end - begin


def _cut_tiles(source: _Source, lines: int) -> list[tuple[int, int]]:
    """Runs of tiles that miss a row which is read: the first and how many."""
    begin, end = 0, source.tiles
    for number in range(lines):
        first, count = _existing(source, number)
        begin = max(begin, first)
        end = min(end, first + count) if source.needed > source.rows else end
    if begin >= end:
        return [(0, source.tiles)]
    runs = [(0, begin), (end, source.tiles - end)]
    return [(tile, count) for tile, count in runs if count > 0]

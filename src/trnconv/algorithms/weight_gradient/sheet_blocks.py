"""The blocks of a weight gradient by sheets: which positions go to which partition, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from trnconv.algorithms.position_runs import PositionRun, runs_of
from trnconv.algorithms.weight_gradient.iterations import Area, image_elems, row_elems
from trnconv.algorithms.weight_gradient.plan import HEIGHT, WIDTH, WeightGradientPlan
from trnconv.algorithms.weight_gradient.recipe import SheetBlock, SheetFill, SheetLoad, SheetPart
from trnconv.algorithms.weight_gradient.sheets import existing_run, row_steps, sheet_column_runs


@dataclass(frozen=True)
class _Source:
    """What fills a sheet: rows of a frame, those of padding too, and columns of each."""

    first_row: int  # of tile 0
    row_step: int  # from tile to tile
    line_step: int  # from row to row of a tile
    needed: int  # the end of those that are read
    row_of: Callable[[int], int]  # where the values of a row lie; negative: nowhere, zeros
    columns: tuple[PositionRun, ...]
    pitch: int  # elements from row to row
    image: int  # from image to image
    base: int  # of the first image's frame
    tiles: int

    def places(self, line: int) -> list[tuple[int, int]]:
        """Tiles whose row of this number is read, and where that lies."""
        first = self.first_row + line * self.line_step
        end = min(self.tiles, -(-(self.needed - first) // self.row_step))
        return [(tile, self.row_of(first + tile * self.row_step)) for tile in range(end)]


@dataclass(frozen=True)
class PieceRun:
    """Columns of a piece that lie together; whole pieces that follow each other are one run."""

    piece: int
    pieces: int
    first: int  # of the columns of a piece
    count: int
    source: int  # where it lies
    width: int  # columns of a piece

    @property
    def is_whole(self) -> bool:
        """Whether it has all columns of its pieces."""
        return self.count == self.width


def sheet_block(plan: WeightGradientPlan, images: int, area: Area, base: int) -> SheetBlock:
    """How a block is cut, and its dy, moved for each copy."""
    across, shape = dy_tiles_of_piece(plan, area.rows), plan.shape
    copies = []
    for shift in plan.shifts:
        source = _Source(
            first_row=area.row,
            row_step=1,
            line_step=across,
            needed=area.row + area.rows,
            row_of=lambda row: row,
            columns=existing_run(shift, plan.sheet_columns, shape.out_size(WIDTH)),
            pitch=shape.out_size(WIDTH),
            image=image_elems(plan)[1],
            base=base,
            tiles=across,
        )
        copies.append(_fill(plan, images, area, source))
    return SheetBlock(
        pieces=images * len(_piece_widths(plan)),
        dy_tiles=across,
        x_tiles=row_steps(shape).tiles(across, shape.kernel[HEIGHT]),
        dy=tuple(copies),
    )


def x_sheet(plan: WeightGradientPlan, images: int, area: Area, base: int) -> SheetFill:
    """The sheet of a frame for a block."""
    shape, steps = plan.shape, row_steps(plan.shape)
    across = dy_tiles_of_piece(plan, area.rows)
    source = _Source(
        first_row=shape.in_position(HEIGHT, area.row, 0),
        row_step=steps.rows,
        line_step=across * shape.stride[HEIGHT],
        needed=shape.in_position(HEIGHT, area.row + area.rows - 1, shape.kernel[HEIGHT] - 1) + 1,
        row_of=lambda row: shape.source(HEIGHT, row),
        columns=sheet_column_runs(shape),
        pitch=row_elems(plan),
        image=image_elems(plan)[0],
        base=base,
        tiles=steps.tiles(across, shape.kernel[HEIGHT]),
    )
    return _fill(plan, images, area, source)


def sheet_tile_sizes(plan: WeightGradientPlan, rows: int) -> tuple[int, ...]:
    """Positions of each tile of so many rows: piece by piece, row by row."""
    across = dy_tiles_of_piece(plan, rows)
    lines = [-(-(rows - row) // across) for row in range(across)]
    return tuple(width * count for width in _piece_widths(plan) for count in lines)


def dy_tiles_of_piece(plan: WeightGradientPlan, rows: int) -> int:
    """Tiles of so many output rows of a piece."""
    return min(plan.apart, rows)


def rows_of_sheet_tile(plan: WeightGradientPlan, rows: int) -> int:
    """The most rows of a tile."""
    return -(-rows // dy_tiles_of_piece(plan, rows))


def piece_runs(plan: WeightGradientPlan, columns: tuple[PositionRun, ...]) -> list[PieceRun]:
    """Columns of a sheet, cut at the ends of pieces."""
    runs: list[PieceRun] = []
    for number, width in enumerate(_piece_widths(plan)):
        begin = number * plan.piece
        for held in columns:
            first, end = max(held.at, begin), min(held.end, begin + width)
            if first < end:
                source = held.first + first - held.at
                run = PieceRun(number, 1, first - begin, end - first, source, width)
                if runs and _continues(runs[-1], run):
                    runs[-1] = replace(runs[-1], pieces=runs[-1].pieces + 1)
                else:
                    runs.append(run)
    return runs


def _continues(last: PieceRun, run: PieceRun) -> bool:
    alike = last.is_whole and run.is_whole and last.width == run.width
    return alike and last.source + last.pieces * last.width == run.source


def cut_pieces(plan: WeightGradientPlan, runs: list[PieceRun]) -> list[int]:
    """Pieces that have columns which are nowhere."""
    widths = _piece_widths(plan)
    covered = [0] * len(widths)
    for run in runs:
        for piece in range(run.piece, run.piece + run.pieces):
            covered[piece] += run.count
    return [piece for piece, width in enumerate(widths) if covered[piece] < width]


def _piece_widths(plan: WeightGradientPlan) -> list[int]:
    columns = plan.sheet_columns
    return [min(plan.piece, columns - at) for at in range(0, columns, plan.piece)]


def _fill(plan: WeightGradientPlan, images: int, area: Area, source: _Source) -> SheetFill:
    """Clears and loads of all images."""
    runs = piece_runs(plan, source.columns)
    lines = rows_of_sheet_tile(plan, area.rows)
    pieces = len(_piece_widths(plan))
    clears: list[SheetPart] = []
    loads: list[SheetLoad] = []
    for image in range(images):
        first = image * pieces
        clears += [SheetPart(first + piece, 1, 0, source.tiles) for piece in cut_pieces(plan, runs)]
        clears += [
            SheetPart(first, pieces, tile, count) for tile, count in _cut_tiles(source, lines)
        ]
        base = source.base + image * source.image
        for run in runs:
            loads += _loads(source, run, lines, (base, first))
    return SheetFill(tuple(clears), tuple(loads))


def _loads(
    source: _Source, run: PieceRun, lines: int, place: tuple[int, int]
) -> Iterator[SheetLoad]:
    """One DMA for each row of a tile: all pieces of a run, all tiles whose rows are in step."""
    base, first_piece = place
    for number in range(lines):
        for rows in runs_of(held for held in source.places(number) if held[1] >= 0):
            yield SheetLoad(
                line=number * run.width + run.first,
                lines=run.count,
                part=SheetPart(first_piece + run.piece, run.pieces, rows.at, rows.end - rows.at),
                offset=base + rows.first * source.pitch + run.source,
                piece_step=run.width,
                tile_step=rows.step * source.pitch,
            )


def _cut_tiles(source: _Source, lines: int) -> list[tuple[int, int]]:
    """Runs of tiles that miss a row which is read: the first and how many."""
    missing = sorted(
        {tile for number in range(lines) for tile, row in source.places(number) if row < 0}
    )
    runs = runs_of((tile, tile) for tile in missing)
    return [(run.at, run.end - run.at) for run in runs]

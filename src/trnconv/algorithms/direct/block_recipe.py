"""The recipe of one kind of block: loads, views, products and stores relative to its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TypeVar

from trnconv.algorithms.direct.accumulations import Shift, TileSum, WindowProduct
from trnconv.algorithms.direct.array.k_layout import LineTile
from trnconv.algorithms.direct.array.m_layout import OutBox
from trnconv.algorithms.direct.block_types import BlockType, coarse_strides
from trnconv.algorithms.direct.blocks import bank_tiles, valid
from trnconv.algorithms.direct.plan import BY_ROW, DirectPlan
from trnconv.algorithms.direct.recipe import (
    Chunk,
    InputWindow,
    KindRecipe,
    Load,
    Matmul,
    Pattern,
    Phase,
    Store,
    SumRecipe,
    Tile,
    Visit,
    WindowView,
)
from trnconv.algorithms.direct.reduced_problem import HEIGHT, WIDTH
from trnconv.algorithms.direct.stationaries import WeightImage, chunk_weights
from trnconv.algorithms.direct.traffic import stored_boxes
from trnconv.algorithms.direct.windows import Grid, dense, window_of
from trnconv.problem.epilogue import NO_RESIDUAL

_Read = TypeVar("_Read", Load, Store)


def kind_recipe(
    plan: DirectPlan,
    kind: BlockType,
    accumulations: Sequence[TileSum],
    image: WeightImage,
    bias_columns: Sequence[int],
    *,
    window_first: bool,
) -> KindRecipe:
    """Work out the accumulations of a kind; `window_first`: the first waits for windows."""
    build = _Build(plan, kind, image)
    worked = [
        build.accumulation(
            accumulation, bias, chunk_major=plan.window_major or (window_first and number == 0)
        )
        for number, (accumulation, bias) in enumerate(zip(accumulations, bias_columns, strict=True))
    ]
    if plan.epilogue.coarse is not None:
        read = [build.coarse_loads(accumulation) for accumulation in accumulations]
        worked = [
            replace(accumulation, coarse=own) for accumulation, own in _at_openings(worked, read)
        ]
    elif plan.epilogue.residual != NO_RESIDUAL:
        stored = [accumulation.stores for accumulation in worked]
        worked = [
            replace(accumulation, residuals=own)
            for accumulation, own in _at_openings(worked, stored)
        ]
    return KindRecipe(tuple(build.windows), tuple(build.views), tuple(worked))


def _at_openings(
    accumulations: Sequence[SumRecipe], stored: Sequence[tuple[_Read, ...]]
) -> list[tuple[SumRecipe, tuple[_Read, ...]]]:
    """Accumulations that open a buffer load what is added to it: where its last one stores it."""
    done: list[tuple[SumRecipe, tuple[_Read, ...]]] = []
    last: tuple[_Read, ...] = ()
    for accumulation, own in zip(reversed(accumulations), reversed(stored), strict=True):
        last = own or last
        done.append((accumulation, last if accumulation.opens else ()))
    return done[::-1]


class _Build:
    """Windows and views get a number when they are first asked for."""

    def __init__(self, plan: DirectPlan, kind: BlockType, image: WeightImage) -> None:
        self.plan, self.kind, self.image = plan, kind, image
        self.windows: list[InputWindow] = []
        self.views: list[WindowView] = []
        self._window_numbers: dict[tuple[LineTile, Grid], int] = {}
        self._view_numbers: dict[WindowView, int] = {}

    def accumulation(self, accumulation: TileSum, bias: int, *, chunk_major: bool) -> SumRecipe:
        grid = self._grid(accumulation)
        parts = len(accumulation.out.parts)
        tiles = bank_tiles(grid.rows, grid.columns, self.plan.machine.psum_bank_fp32_elems)
        groups = [
            accumulation.products[n : n + parts]
            for n in range(0, len(accumulation.products), parts)
        ]
        chunks = tuple(self._chunk(accumulation, group, grid) for group in groups) or (
            Chunk((), 0, 0),
        )
        return SumRecipe(
            columns=accumulation.out.width,
            parts=parts,
            tile_columns=accumulation.packing.tile_columns if parts > 1 else 0,
            bias=bias,
            rows=self._out_rows(accumulation, grid),
            width=self.kind.columns,
            opens=accumulation.out.opens,
            tiles=tuple(Tile(*tile) for tile in tiles),
            chunks=chunks,
            visits=_visits(len(tiles), len(chunks), self.plan.machine.psum_banks, chunk_major),
            phases=self._phases(accumulation),
            stores=tuple(
                self._store(box, accumulation, grid)
                for box in stored_boxes(self.plan, accumulation)
            ),
        )

    def coarse_loads(self, accumulation: TileSum) -> tuple[Load, ...]:
        """Rows of a cell are loads of their own: they may be of different channels."""
        coarse, kind = self.plan.epilogue.coarse, self.kind
        assert coarse is not None
        _, channel, _, row, column = coarse_strides(self.plan)
        rows, columns = kind.rows // coarse.rows, kind.columns // coarse.columns
        step = channel * coarse.channel_step()
        return tuple(
            Load(
                line=box.line,
                lines=box.lines,
                row=inside * rows,
                row_end=(inside + 1) * rows,
                column=0,
                column_end=columns,
                piece=self.plan.placed_tensors - 1,
                offset=box.channel * step + coarse.channel(0, (0, inside)) * channel,
                pattern=dense(((step, box.channels), (row, rows), (column, columns))),
            )
            for box in stored_boxes(self.plan, accumulation)
            for inside in range(coarse.rows)
        )

    def _grid(self, accumulation: TileSum) -> Grid:
        reduced, kind = self.plan.reduced, self.kind
        return Grid(
            rows=-(-kind.rows // accumulation.packing.rows),
            row_step=reduced.advance(HEIGHT, accumulation.packing.rows),
            columns=-(-kind.columns // accumulation.packing.columns),
            column_step=reduced.advance(WIDTH, accumulation.packing.columns),
        )

    def _chunk(self, accumulation: TileSum, products: Sequence[WindowProduct], grid: Grid) -> Chunk:
        """One window, or one for each column tile: then their matmuls take turns."""
        placed = [
            self.image.place(chunk_weights(self.plan.reduced, accumulation, product))
            for product in products
        ]
        by_product = [
            self._matmuls(accumulation, product, grid, first)
            for product, first in zip(products, placed, strict=True)
        ]
        rounds = zip_longest(*by_product)
        matmuls = tuple(matmul for together in rounds for matmul in together if matmul is not None)
        ends = [
            first + len(product.views) * product.part.width
            for product, first in zip(products, placed, strict=True)
        ]
        return Chunk(matmuls, min(placed), max(ends))

    def _matmuls(
        self, accumulation: TileSum, product: WindowProduct, grid: Grid, first: int
    ) -> list[Matmul]:
        window, part = self._window(product.tile, grid), product.part
        number = accumulation.out.parts.index(part)
        return [
            Matmul(
                window,
                self._view(shift, product.tile.level, grid),
                first + n * part.width,
                number,
                part.line,
                part.width,
            )
            for n, shift in enumerate(product.views)
        ]

    def _window(self, tile: LineTile, grid: Grid) -> int:
        key = (tile, grid.at_level(tile.level))
        if key not in self._window_numbers:
            self._window_numbers[key] = len(self.windows)
            merge = self.plan.machine.accepts.split_partitions
            self.windows.append(window_of(self.plan.reduced, self.kind, tile, grid, merge=merge))
        return self._window_numbers[key]

    def _view(self, shift: Shift, level: int, grid: Grid) -> int:
        row = (shift.row - self.kind.missing_rows, grid.row_step) if level < BY_ROW else (0, 1)
        held = self.kind.in_rows if level < BY_ROW else grid.rows
        first_i, end_i = valid(row, grid.rows, held)
        column = (0, 1)
        wide = grid.columns
        if level <= BY_ROW:
            column = (shift.column - self.kind.missing_columns, grid.column_step)
            wide = self.kind.in_columns
        first_j, end_j = valid(column, grid.columns, wide)
        view = WindowView(*row, *column, first_i, end_i, first_j, end_j)
        if view not in self._view_numbers:
            self._view_numbers[view] = len(self.views)
            self.views.append(view)
        return self._view_numbers[view]

    def _phases(self, accumulation: TileSum) -> tuple[Phase, ...]:
        step, lines = accumulation.packing.columns, accumulation.out.phase_lines
        row_step = accumulation.packing.rows if accumulation.packing.separate else 1
        return tuple(
            Phase(
                line=first,
                lines=lines,
                row=accumulation.out.row,
                row_step=row_step,
                column=column,
                step=step,
                count=-(-(self.kind.columns - column) // step),
            )
            for first, column in accumulation.out.phases
            if column < self.kind.columns
        )

    def _out_rows(self, accumulation: TileSum, grid: Grid) -> int:
        """Rows of the output buffer: those of all phases, if they share it."""
        return self.kind.rows if accumulation.packing.separate else grid.rows

    def _store(self, box: OutBox, accumulation: TileSum, grid: Grid) -> Store:
        _, channel, frame, row, column = self.plan.reduced.y_strides
        offset = box.channel * channel + (accumulation.frame + box.frame) * frame + box.row * row
        channels, positions = (channel, box.channels), ((frame, box.frames), (row, box.rows))
        pattern: Pattern = (
            *((*positions, channels) if box.channels_inside else (channels, *positions)),
            (
                row if accumulation.packing.separate else row * accumulation.packing.rows,
                self._out_rows(accumulation, grid),
            ),
            (column, self.kind.columns),
        )
        return Store(box.line, box.lines, offset, dense(pattern))


def _visits(tiles: int, chunks: int, banks: int, chunk_major: bool) -> tuple[Visit, ...]:  # noqa: FBT001
    """Tile by tile; or chunk by chunk over as many tiles as there are banks."""
    at_once = banks if chunk_major else 1
    return tuple(
        Visit(tile, chunk)
        for first in range(0, tiles, at_once)
        for chunk in range(chunks)
        for tile in range(first, min(first + at_once, tiles))
    )

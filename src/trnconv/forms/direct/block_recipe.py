"""The recipe of one kind of block: loads, views, products and stores relative to its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TypeVar

from trnconv.ask.ends import NO_RESIDUAL
from trnconv.forms.direct.array.k_lines import LineTile
from trnconv.forms.direct.array.m_lines import OutBox
from trnconv.forms.direct.block_types import BlockType, coarse_strides
from trnconv.forms.direct.blocks import bank_tiles, valid
from trnconv.forms.direct.jobs import Shift, TileSum, WindowProduct
from trnconv.forms.direct.plan import BY_ROW, DirectPlan
from trnconv.forms.direct.problem import HEIGHT, WIDTH
from trnconv.forms.direct.recipe import (
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
from trnconv.forms.direct.stationaries import WeightImage, chunk_weights
from trnconv.forms.direct.traffic import stored_boxes
from trnconv.forms.direct.windows import Grid, dense, window_of

_Read = TypeVar("_Read", Load, Store)


def kind_recipe(
    plan: DirectPlan,
    kind: BlockType,
    jobs: Sequence[TileSum],
    image: WeightImage,
    bias_columns: Sequence[int],
    *,
    window_first: bool,
) -> KindRecipe:
    """Work out the jobs of a kind; `window_first`: its first job waits for the first windows."""
    build = _Build(plan, kind, image)
    worked = [
        build.job(job, bias, chunk_major=plan.window_major or (window_first and number == 0))
        for number, (job, bias) in enumerate(zip(jobs, bias_columns, strict=True))
    ]
    if plan.end.coarse is not None:
        read = [build.coarse_loads(job) for job in jobs]
        worked = [replace(job, coarse=own) for job, own in _at_openings(worked, read)]
    elif plan.end.residual != NO_RESIDUAL:
        stored = [job.stores for job in worked]
        worked = [replace(job, residuals=own) for job, own in _at_openings(worked, stored)]
    return KindRecipe(tuple(build.windows), tuple(build.views), tuple(worked))


def _at_openings(
    jobs: Sequence[SumRecipe], stored: Sequence[tuple[_Read, ...]]
) -> list[tuple[SumRecipe, tuple[_Read, ...]]]:
    """Jobs that open a buffer load what is added to it: where the last of its jobs stores it."""
    done: list[tuple[SumRecipe, tuple[_Read, ...]]] = []
    last: tuple[_Read, ...] = ()
    for job, own in zip(reversed(jobs), reversed(stored), strict=True):
        last = own or last
        done.append((job, last if job.opens else ()))
    return done[::-1]


class _Build:
    """Windows and views get a number when they are first asked for."""

    def __init__(self, plan: DirectPlan, kind: BlockType, image: WeightImage) -> None:
        self.plan, self.kind, self.image = plan, kind, image
        self.windows: list[InputWindow] = []
        self.views: list[WindowView] = []
        self._window_numbers: dict[tuple[LineTile, Grid], int] = {}
        self._view_numbers: dict[WindowView, int] = {}

    def job(self, job: TileSum, bias: int, *, chunk_major: bool) -> SumRecipe:
        grid = self._grid(job)
        parts = len(job.out.parts)
        tiles = bank_tiles(grid.rows, grid.columns, self.plan.target.psum_bank_fp32_elems)
        turns = [job.products[n : n + parts] for n in range(0, len(job.products), parts)]
        chunks = tuple(self._chunk(job, turn, grid) for turn in turns) or (Chunk((), 0, 0),)
        return SumRecipe(
            columns=job.out.width,
            parts=parts,
            tile_columns=job.one.tile_columns if parts > 1 else 0,
            bias=bias,
            rows=self._out_rows(job, grid),
            width=self.kind.columns,
            opens=job.out.opens,
            tiles=tuple(Tile(*tile) for tile in tiles),
            chunks=chunks,
            visits=_visits(len(tiles), len(chunks), self.plan.target.psum_banks, chunk_major),
            phases=self._phases(job),
            stores=tuple(self._store(box, job, grid) for box in stored_boxes(self.plan, job)),
        )

    def coarse_loads(self, job: TileSum) -> tuple[Load, ...]:
        """Rows of a cell are loads of their own: they may be of different channels."""
        coarse, kind = self.plan.end.coarse, self.kind
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
            for box in stored_boxes(self.plan, job)
            for inside in range(coarse.rows)
        )

    def _grid(self, job: TileSum) -> Grid:
        problem, kind = self.plan.problem, self.kind
        return Grid(
            rows=-(-kind.rows // job.one.rows),
            row_step=problem.advance(HEIGHT, job.one.rows),
            columns=-(-kind.columns // job.one.columns),
            column_step=problem.advance(WIDTH, job.one.columns),
        )

    def _chunk(self, job: TileSum, products: Sequence[WindowProduct], grid: Grid) -> Chunk:
        """One window, or one for each column tile: then their matmuls take turns."""
        placed = [
            self.image.place(chunk_weights(self.plan.problem, job, product)) for product in products
        ]
        by_product = [
            self._matmuls(job, product, grid, first)
            for product, first in zip(products, placed, strict=True)
        ]
        turns = zip_longest(*by_product)
        matmuls = tuple(matmul for turn in turns for matmul in turn if matmul is not None)
        ends = [
            first + len(product.views) * product.part.width
            for product, first in zip(products, placed, strict=True)
        ]
        return Chunk(matmuls, min(placed), max(ends))

    def _matmuls(
        self, job: TileSum, product: WindowProduct, grid: Grid, first: int
    ) -> list[Matmul]:
        window, part = self._window(product.tile, grid), product.part
        number = job.out.parts.index(part)
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
            merge = self.plan.target.accepts.split_partitions
            self.windows.append(window_of(self.plan.problem, self.kind, tile, grid, merge=merge))
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

    def _phases(self, job: TileSum) -> tuple[Phase, ...]:
        step, lines = job.one.columns, job.out.phase_lines
        row_step = job.one.rows if job.one.separate else 1
        return tuple(
            Phase(
                line=first,
                lines=lines,
                row=job.out.row,
                row_step=row_step,
                column=column,
                step=step,
                count=-(-(self.kind.columns - column) // step),
            )
            for first, column in job.out.phases
            if column < self.kind.columns
        )

    def _out_rows(self, job: TileSum, grid: Grid) -> int:
        """Rows of the output buffer: those of all phases, if they share it."""
        return self.kind.rows if job.one.separate else grid.rows

    def _store(self, box: OutBox, job: TileSum, grid: Grid) -> Store:
        _, channel, frame, row, column = self.plan.problem.y_strides
        offset = box.channel * channel + (job.frame + box.frame) * frame + box.row * row
        channels, positions = (channel, box.channels), ((frame, box.frames), (row, box.rows))
        pattern: Pattern = (
            *((*positions, channels) if box.channels_inside else (channels, *positions)),
            (row if job.one.separate else row * job.one.rows, self._out_rows(job, grid)),
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

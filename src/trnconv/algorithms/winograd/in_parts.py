"""What blocks need of a tile of input channels: loads, zeros, copies, and what they write."""

from __future__ import annotations

from dataclasses import replace

from trnconv.algorithms.recipe_parts import Rectangle
from trnconv.algorithms.rectangles import around
from trnconv.algorithms.winograd.blocks import BlockSpan
from trnconv.algorithms.winograd.channels import InChannels, replicates
from trnconv.algorithms.winograd.plan import HEIGHT, WIDTH, WinogradPlan
from trnconv.algorithms.winograd.recipe import InLoad, InPart, VFill, XCopy


def in_part(plan: WinogradPlan, tile: InChannels, row: BlockSpan, column: BlockSpan) -> InPart:
    """Inputs of a tile of channels.

    Rows that are tiled must all be there, so padding is cleared in the input; so it is for channels
    that stand on partitions more than once, whose copies have their borders at different places.
    Otherwise only what exists is loaded, in runs as long as can be, and padding is cleared in the
    transformed inputs. Rows that padding repeats are loaded again; columns are copied once they are
    transformed.
    """
    every_row = replicates(plan.shape, HEIGHT)
    rows = (0, row.ins) if plan.by_rows or tile.shifted or every_row else (row.first, row.end)
    columns = (0, column.ins) if tile.shifted else (column.first, column.end)
    v_rows = row.outs // plan.m if plan.by_rows else row.ins
    written = Rectangle(
        0 if plan.by_rows else rows[0], v_rows if plan.by_rows else rows[1], *columns
    )
    every_v_row = plan.v_frames * v_rows
    every = replace(written, row_end=every_v_row) if plan.by_rows else written
    size = (rows[1] - rows[0], columns[1] - columns[0])
    own = [
        _load(plan, tile, copy, (row, column), (rows[0], columns[0]))
        for copy in range(1 if tile.copied else len(tile.shifts))
    ]
    loads = [in_load for load in own for in_load in (load, *_repeated(plan, load, size[0]))]
    down, right = tile.shifts[-1] if tile.copied else (0, 0)
    kept = Rectangle(
        0 if every_row else max(member.into.row for member in own),
        min(size[0] - down, size[0] if every_row else min(member.into.row_end for member in own)),
        max(member.into.column for member in own),
        min(size[1] - right, *(member.into.column_end for member in own)),
    )
    filled = replicates(plan.shape, WIDTH)
    return InPart(
        rows=size[0],
        columns=size[1],
        x_clears=around(kept, *size),
        loads=tuple(replace(load, whole=_is_whole(plan, load, size[1])) for load in loads),
        loaded=tile.channels if tile.copied else tile.lines,
        inside=replace(
            own[0].into,
            row=0 if every_row else own[0].into.row,
            row_end=size[0] if every_row else own[0].into.row_end,
        ),
        copies=_copies(tile),
        written=written,
        x_row=0,
        x_column=0,
        v_clears=() if filled else around(every, every_v_row, column.ins),
        v_fills=_fills(tile, own, columns[0], column.ins) if filled else (),
    )


def _repeated(plan: WinogradPlan, load: InLoad, rows: int) -> list[InLoad]:
    """The first and last row again, in all rows before and behind that padding fills with them."""
    into, width = load.into, plan.shape.size[WIDTH]
    if not replicates(plan.shape, HEIGHT):
        return []
    last = load.offset + (into.row_end - 1 - into.row) * width
    rows_above = [(row, load.offset) for row in range(into.row)]
    rows_below = [(row, last) for row in range(into.row_end, rows)]
    return [
        replace(load, into=replace(into, row=row, row_end=row + 1), offset=offset)
        for row, offset in (*rows_above, *rows_below)
    ]


def _copies(tile: InChannels) -> tuple[XCopy, ...]:
    """Copies that engines make of the first."""
    shifts = tile.shifts[1:] if tile.copied else ()
    return tuple(
        XCopy(copy * tile.channels, tile.channels, down, right)
        for copy, (down, right) in enumerate(shifts, 1)
    )


def _fills(tile: InChannels, loads: list[InLoad], first: int, columns: int) -> tuple[VFill, ...]:
    """Border columns of each copy of the channels, which begin with its `first` input column."""
    fills = []
    for copy, (_, right) in enumerate(tile.shifts):
        load, moved = (loads[0], right) if tile.copied else (loads[copy], 0)
        low = max(0, first + load.into.column - moved)
        high = first + load.into.column_end - moved
        line = copy * tile.channels
        fills += [VFill(line, load.lines, column, low) for column in range(low)]
        fills += [VFill(line, load.lines, column, high - 1) for column in range(high, columns)]
    return tuple(fills)


def _load(
    plan: WinogradPlan,
    tile: InChannels,
    copy: int,
    spans: tuple[BlockSpan, BlockSpan],
    begin: tuple[int, int],
) -> InLoad:
    """The lines of one copy of the channels, from the first input that exists on."""
    shift, size = tile.shifts[copy], plan.shape.size
    edges = []
    for axis, span, down, first in zip((HEIGHT, WIDTH), spans, shift, begin, strict=True):
        low = max(span.first - down, 0, first)
        high = min(span.ins, size[axis] - span.origin - down)
        if not tile.shifted:
            low, high = max(span.first, first), span.end
        edges.append((low - first, high - first, low + down - span.first))
    (row, row_end, down), (column, column_end, right) = edges
    return InLoad(
        line=copy * tile.channels,
        lines=tile.channels,
        channel=tile.first,
        into=Rectangle(row, row_end, column, column_end),
        offset=down * size[WIDTH] + right,
        whole=False,
    )


def _is_whole(plan: WinogradPlan, load: InLoad, columns: int) -> bool:
    width = load.into.column_end - load.into.column
    return width == columns == plan.shape.size[WIDTH]

"""A plan by differences worked out: the recipe its kernel obeys, and what the host packs for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trnconv.algorithms.algorithm import ArraySpec, Lowered
from trnconv.algorithms.recipe_parts import Place, Rectangle, loop_spans
from trnconv.algorithms.rectangles import around, rectangles
from trnconv.algorithms.winograd_upsample.blocks import (
    PairSpan,
    column_spans,
    frame_reads,
    iterations_of,
    row_spans,
    tap_sets,
)
from trnconv.algorithms.winograd_upsample.pipeline_schedule import pipeline_schedule
from trnconv.algorithms.winograd_upsample.plan import DEPTH, HEIGHT, V_DTYPE, WIDTH, UpsamplePlan
from trnconv.algorithms.winograd_upsample.recipe import (
    BorderColumn,
    FrameTap,
    Region,
    UpsampleBlockType,
    UpsampleRecipe,
    XPart,
    XTile,
    YFrame,
    YTile,
)
from trnconv.algorithms.winograd_upsample.sbuf import (
    CONSTANTS,
    channel_tiles,
    constant_columns,
    lay_out,
    pieces_of,
    set_columns,
)
from trnconv.geometry import REPLICATE
from trnconv.problem.epilogue import NO_RESIDUAL


@dataclass(frozen=True)
class UpsampleLowered(Lowered[UpsamplePlan]):
    """The recipe, and the table of places of its loop."""

    places: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class _Span:
    """A span of an image: blocks side by side."""

    image: int
    rows: PairSpan


def lower(plan: UpsamplePlan) -> UpsampleLowered:
    """Everything the kernel does."""
    shape, machine = plan.shape, plan.machine
    memory = lay_out(plan)
    kinds, regions, table = _program(plan)
    y_shape = (shape.batch, shape.c_out, *shape.out_sizes())
    recipe = UpsampleRecipe(
        y_shape=y_shape,
        dtype=plan.epilogue.dtype,
        has_residual=plan.epilogue.residual != NO_RESIDUAL,
        coarse=plan.epilogue.coarse,
        fence=plan.is_fenced,
        channel_step=shape.size[DEPTH] * shape.size[HEIGHT] * shape.size[WIDTH],
        frame_elems=shape.size[HEIGHT] * shape.size[WIDTH],
        x_width=shape.size[WIDTH],
        x_tiles=tuple(XTile(*tile) for tile in channel_tiles(shape.c_in, machine.partitions)),
        y_tiles=y_tiles(plan),
        frames=_frames(plan, y_shape),
        kinds=kinds,
        regions=regions,
        iteration_blocks=max(1, plan.iteration_spans) * len(column_spans(plan)),
        streamed=plan.streamed,
        set_columns=set_columns(plan),
        pieces=pieces_of(plan),
        gpsimd_rows=plan.gpsimd_rows,
        gpsimd_sums=plan.gpsimd_sums,
        lines=machine.partitions,
        x=memory.x,
        v=memory.v,
        weights=memory.weights,
        copies=memory.copies,
        out=memory.out,
        residual=memory.residual,
        constants=constant_columns(plan),
        constants_address=memory.constants_address,
        places_address=memory.places_address,
        banks=machine.psum_banks,
        bank_elems=machine.psum_bank_fp32_elems,
    )
    weights = len(tap_sets(shape)) * recipe.set_columns * shape.c_out
    rows = table or ((0,),)
    arrays = (
        ArraySpec((recipe.lines, weights), V_DTYPE),
        ArraySpec((recipe.lines, recipe.constants), "float32"),
        ArraySpec((len(rows), len(rows[0])), "int32"),
    )
    return UpsampleLowered(plan, recipe, arrays, plan.input_specs(), (y_shape,), rows)


def y_tiles(plan: UpsamplePlan) -> tuple[YTile, ...]:
    """Tiles of output channels; their weights follow each other, set of taps by set of taps."""
    column = len(tap_sets(plan.shape)) * set_columns(plan)
    return tuple(
        YTile(first, channels, first * column, CONSTANTS * number)
        for number, (first, channels) in enumerate(
            channel_tiles(plan.shape.c_out, plan.machine.partitions)
        )
    )


def _frames(plan: UpsamplePlan, y_shape: tuple[int, ...]) -> tuple[YFrame, ...]:
    sets = tap_sets(plan.shape)
    coarse = plan.epilogue.coarse
    found = []
    for number, reads in enumerate(frame_reads(plan.shape)):
        taps = tuple(FrameTap(frame, sets.index(taps)) for frame, taps in reads)
        added: tuple[int, ...] = ()
        if coarse is not None:
            _, _, frames, rows, columns = coarse.sizes(y_shape)
            frame, part = divmod(number + coarse.skipped, coarse.frames)
            added = tuple(
                (coarse.channel(0, (part, row)) * frames + frame) * rows * columns
                for row in range(coarse.rows)
            )
        found.append(YFrame(taps, added))
    return tuple(found)


def _program(
    plan: UpsamplePlan,
) -> tuple[tuple[UpsampleBlockType, ...], tuple[Region, ...], tuple[tuple[int, ...], ...]]:
    """Kinds of blocks, what is unrolled and what is a loop, and the loop's table of places."""
    columns, spans = column_spans(plan), row_spans(plan)
    looks = list(dict.fromkeys((row.look, column.look) for row in spans for column in columns))
    one_of = {(row.look, column.look): (row, column) for row in spans for column in columns}
    kinds = tuple(_kind(plan, *one_of[look]) for look in looks)
    every = [_Span(image, row) for image in range(plan.shape.batch) for row in spans]
    straight, looped = _parted(plan, every)

    def kinds_of(some: Sequence[_Span]) -> tuple[int, ...]:
        return tuple(
            looks.index((span.rows.look, column.look)) for span in some for column in columns
        )

    regions = []
    if straight:
        places = tuple(_place(plan, span, column) for span in straight for column in columns)
        pipeline = pipeline_schedule(plan, len(places))
        regions.append(Region(kinds_of(straight), places, 0, 0, *pipeline))
    iterations = iterations_of(plan)
    if iterations:
        body = kinds_of(looped[: plan.iteration_spans])
        pipeline = pipeline_schedule(plan, len(body))
        for first, end in loop_spans(iterations, plan.machine):
            regions.append(Region(body, (), first, end - first, *pipeline))
    return kinds, tuple(regions), _table(plan, looped)


def _parted(plan: UpsamplePlan, every: list[_Span]) -> tuple[list[_Span], list[_Span]]:
    """Spans that are unrolled, and those of the loop."""
    iterations = iterations_of(plan)
    looks = [span.rows.look for span in every]
    most = max(dict.fromkeys(looks), key=looks.count)
    alike = [span for span in every if span.rows.look == most]
    looped = alike[: iterations * plan.iteration_spans]
    chosen = set(looped)
    return [span for span in every if span not in chosen], looped


def _table(plan: UpsamplePlan, looped: list[_Span]) -> tuple[tuple[int, ...], ...]:
    """A row an iteration: offsets of its blocks into x, then into y."""
    rows = []
    for first in range(0, len(looped), max(1, plan.iteration_spans)):
        spans = looped[first : first + plan.iteration_spans]
        places = [_place(plan, span, column) for span in spans for column in column_spans(plan)]
        rows.append((*(place.x[0] for place in places), *(place.y for place in places)))
    return tuple(rows)


def _place(plan: UpsamplePlan, span: _Span, column: PairSpan) -> Place:
    """Of a block: its first input that is loaded, and its first output that is stored."""
    shape, row = plan.shape, span.rows
    image = shape.c_in * shape.size[DEPTH] * shape.size[HEIGHT]
    x_row = span.image * image + row.first - (1 - row.before)
    y_row = span.image * shape.c_out * shape.out_size(DEPTH) * shape.out_size(HEIGHT) + row.out
    return Place(
        (x_row * shape.size[WIDTH] + column.first - (1 - column.before),),
        y_row * shape.out_size(WIDTH) + column.out,
    )


def _kind(plan: UpsamplePlan, row: PairSpan, column: PairSpan) -> UpsampleBlockType:
    """What all blocks of a look have in common."""
    height, width = row.count + 2, column.count + 2
    inside = Rectangle(row.before, height - row.after, column.before, width - column.after)
    parts = [XPart(0, inside)]
    repeats_rows = plan.shape.modes[HEIGHT] == REPLICATE
    repeats_columns = plan.shape.modes[WIDTH] == REPLICATE
    if repeats_rows:
        last = (inside.row_end - 1 - inside.row) * plan.shape.size[WIDTH]
        borders = [(0, 0)] * row.before + [(height - 1, last)] * row.after
        parts += [
            XPart(offset, Rectangle(at, at + 1, inside.column, inside.column_end))
            for at, offset in borders
        ]
    filled = Rectangle(
        0 if repeats_rows else inside.row,
        height if repeats_rows else inside.row_end,
        0 if repeats_columns else inside.column,
        width if repeats_columns else inside.column_end,
    )
    copies = [BorderColumn(0, 1)] * column.before + [
        BorderColumn(width - 1, width - 2)
    ] * column.after
    return UpsampleBlockType(
        rows=row.count,
        columns=column.count,
        parts=tuple(parts),
        clears=around(filled, height, width),
        copies=tuple(copies) if repeats_columns else (),
        inner=(1 - row.before) * plan.shape.size[WIDTH] + (1 - column.before),
        rectangles=rectangles(row.count, column.count, plan.machine.psum_bank_fp32_elems),
        cut=row.cut,
        stored=row.stored,
    )

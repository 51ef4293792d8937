"""Kinds of blocks: those that meet the same edges are worked out once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from trnconv.algorithms.direct.accumulations import input_frames
from trnconv.algorithms.direct.blocks import (
    InputSpan,
    OutputSpan,
    frame_spans,
    input_count,
    input_span,
    reached,
    spans,
)
from trnconv.algorithms.direct.plan import DirectPlan
from trnconv.algorithms.direct.reduced_problem import DEPTH, HEIGHT, WIDTH, ReducedProblem
from trnconv.geometry import ZEROS


@dataclass(frozen=True)
class BlockType:
    """A block up to its place: sizes, and what it finds of the input."""

    frame_count: int  # output frames
    frames: tuple[int, ...]  # input frames that exist, counted from the first tap of the block
    rows: int
    in_rows: int
    missing_rows: int  # above the first input row
    columns: int
    in_columns: int
    missing_columns: int
    frame_places: tuple[tuple[int, int], ...] = ()  # the tensor each frame is in, and where there
    row_sources: tuple[int, ...] = ()  # likewise of rows and columns, where padding has values
    column_sources: tuple[int, ...] = ()


@dataclass(frozen=True)
class PlacedBlock:
    """A kind at a place: offsets of its first input and output elements."""

    kind: BlockType
    x: tuple[int, ...]  # in each tensor the input lies in; then in a coarse residual
    y: int


class SpanKind(NamedTuple):
    """A span of rows or columns up to its place."""

    outputs: int
    inputs: int
    missing: int
    sources: tuple[int, ...] = ()


@dataclass(frozen=True)
class FrameKind:
    """A span of frames up to its place: output frames, and the input frames that exist."""

    outputs: int
    present: tuple[int, ...]
    places: tuple[tuple[int, int], ...]  # as in `BlockType`


Cut = tuple[tuple[int, int], int, int, tuple[int, ...]]  # the arguments of `spans`


def _row_cut(plan: DirectPlan) -> Cut:
    """Blocks of rows. A hardware loop wants equal ones: then the last reaches back."""
    lead = plan.lead if plan.reduced.out[HEIGHT] > 1 else ()
    return plan.row_span, plan.rows, plan.rows if plan.looped else plan.row_multiple, lead


def _column_cut(plan: DirectPlan) -> Cut:
    lead = plan.lead if plan.reduced.out[HEIGHT] == 1 else ()
    multiple = plan.columns if plan.looped else plan.reduced.phases[WIDTH]
    return plan.column_span, plan.columns, multiple, lead


def row_kinds(plan: DirectPlan) -> dict[SpanKind, int]:
    """How many spans of rows there are of each kind."""
    return _span_kinds(plan.reduced, HEIGHT, _row_cut(plan))


def column_kinds(plan: DirectPlan) -> dict[SpanKind, int]:
    """How many spans of columns there are of each kind."""
    return _span_kinds(plan.reduced, WIDTH, _column_cut(plan))


@lru_cache(maxsize=4096)
def _span_kinds(reduced: ReducedProblem, axis: int, cut: Cut) -> dict[SpanKind, int]:
    kinds: dict[SpanKind, int] = {}
    for span in spans(*cut):
        begin, end = reached(reduced, axis, span)
        if begin >= 0 and end <= reduced.size[axis]:
            kind = SpanKind(span.outputs, end - begin, 0)
        else:
            read = input_span(reduced, axis, span)
            kind = SpanKind(span.outputs, read.inputs, read.missing, read.sources)
        kinds[kind] = kinds.get(kind, 0) + 1
    return kinds


@lru_cache(maxsize=1024)
def frame_kinds(reduced: ReducedProblem, frames: int) -> dict[FrameKind, int]:
    """How many spans of at most so many frames there are of each kind, over all images."""
    kinds: dict[FrameKind, int] = {}
    for span in frame_spans(reduced, frames):
        present = _present_frames(reduced, span)
        places, _ = _frame_places(reduced, _first_tap(reduced, span), present)
        kind = FrameKind(span.outputs, present, places)
        kinds[kind] = kinds.get(kind, 0) + reduced.images
    return kinds


def block_extents(plan: DirectPlan) -> list[tuple[int, int, int, int]]:
    """Rows and columns, of outputs and of inputs, of the first blocks in running order."""
    reduced, most = plan.reduced, len(plan.lead) + 1
    rows, columns = spans(*_row_cut(plan))[:most], spans(*_column_cut(plan))[:most]
    in_rows = [input_count(reduced, HEIGHT, row) for row in rows]
    in_columns = [input_count(reduced, WIDTH, column) for column in columns]
    return [
        (row.outputs, high, column.outputs, wide)
        for row, high in zip(rows, in_rows, strict=True)
        for column, wide in zip(columns, in_columns, strict=True)
    ]


def blocks_of(plan: DirectPlan) -> list[PlacedBlock]:
    """All blocks, in the order in which they run if nothing is looped."""
    rows, columns = spans(*_row_cut(plan)), spans(*_column_cut(plan))
    return [
        _block(plan, image, (frames, row_span, column_span))
        for image in range(plan.reduced.images)
        for frames in frame_spans(plan.reduced, plan.frames)
        for row_span in rows
        for column_span in columns
    ]


def _block(
    plan: DirectPlan, image: int, cut: tuple[OutputSpan, OutputSpan, OutputSpan]
) -> PlacedBlock:
    reduced = plan.reduced
    frames, rows, columns = cut
    present = _present_frames(reduced, frames)
    in_rows = input_span(reduced, HEIGHT, rows)
    in_columns = input_span(reduced, WIDTH, columns)
    if not (in_rows.inputs and in_columns.inputs):
        present = ()  # nothing but padding
    places, firsts = _frame_places(reduced, _first_tap(reduced, frames), present)
    kind = BlockType(
        frame_count=frames.outputs,
        frames=present,
        rows=rows.outputs,
        in_rows=in_rows.inputs,
        missing_rows=in_rows.missing,
        columns=columns.outputs,
        in_columns=in_columns.inputs,
        missing_columns=in_columns.missing,
        frame_places=places,
        row_sources=in_rows.sources,
        column_sources=in_columns.sources,
    )
    at = (frames.first, rows.first, columns.first)
    read = [
        _x_offset(reduced, image, (piece, first), (in_rows, in_columns))
        for piece, first in enumerate(firsts)
    ]
    added = [] if plan.epilogue.coarse is None else [coarse_offset(plan, image, at)]
    return PlacedBlock(kind, (*read, *added), _offset(reduced.y_strides, image, at))


def coarse_strides(plan: DirectPlan) -> tuple[int, int, int, int, int]:
    """Elements from one image, channel, frame, row and column of a coarse residual to the next."""
    coarse, reduced = plan.epilogue.coarse, plan.reduced
    assert coarse is not None
    _, channels, frames, rows, columns = coarse.sizes((reduced.images, reduced.c_out, *reduced.out))
    plane = rows * columns
    return channels * frames * plane, frames * plane, plane, columns, 1


def coarse_offset(plan: DirectPlan, image: int, at: tuple[int, int, int]) -> int:
    """Where the residual of a block begins whose first output is at a frame, row and column."""
    coarse = plan.epilogue.coarse
    assert coarse is not None
    frame, inside = divmod(at[0] + coarse.skipped, coarse.frames)
    strides = coarse_strides(plan)
    first = coarse.channel(0, (inside, 0)) * strides[1]
    return first + _offset(strides, image, (frame, at[1] // coarse.rows, at[2] // coarse.columns))


def _first_tap(reduced: ReducedProblem, frames: OutputSpan) -> int:
    return reduced.advance(DEPTH, frames.first) - reduced.pad[DEPTH]


def _frame_places(
    reduced: ReducedProblem, first_tap: int, present: tuple[int, ...]
) -> tuple[tuple[tuple[int, int], ...], list[int]]:
    """The tensor each frame is in, and where after its first one there; those first ones."""
    places = [reduced.piece_of(_frame_source(reduced, first_tap + frame)) for frame in present]
    firsts = [
        min((at for piece, at in places if piece == number), default=0)
        for number in range(reduced.piece_count())
    ]
    return tuple((piece, at - firsts[piece]) for piece, at in places), firsts


def _present_frames(reduced: ReducedProblem, frames: OutputSpan) -> tuple[int, ...]:
    """The input frames that exist, counted from the first tap."""
    first_tap = _first_tap(reduced, frames)
    read = input_frames(reduced, frames.outputs)
    if reduced.modes[DEPTH] != ZEROS:
        return read
    return tuple(frame for frame in read if 0 <= first_tap + frame < reduced.size[DEPTH])


def _frame_source(reduced: ReducedProblem, frame: int) -> int:
    return frame if reduced.modes[DEPTH] == ZEROS else reduced.source(DEPTH, frame)


def _x_offset(
    reduced: ReducedProblem,
    image: int,
    frame: tuple[int, int],
    inputs: tuple[InputSpan, InputSpan],
) -> int:
    """Where the first row and column of a frame, (tensor, number), begin."""
    piece, number = frame
    rows, columns = inputs
    if not (rows.inputs and columns.inputs):
        return 0
    return _offset(reduced.piece_strides(piece), image, (number, rows.first, columns.first))


def _offset(strides: tuple[int, int, int, int, int], image: int, at: tuple[int, int, int]) -> int:
    return image * strides[0] + at[0] * strides[2] + at[1] * strides[3] + at[2] * strides[4]

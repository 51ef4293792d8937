"""The instructions of a depthwise plan, one after the other; the kernel only issues them.

Order matters, because every engine takes its instructions in order. While a group is summed, the
Scalar engine finishes the group before and begins the next one, so that the Vector engine never
waits; and a window is loaded as soon as nothing reads the tile it goes to any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import prod

import numpy as np

from trnconv.algorithms.algorithm import ArraySpec, Lowered
from trnconv.algorithms.depthwise.plan import AHEAD, DepthwisePlan, PositionBox, valid_outputs
from trnconv.algorithms.depthwise.recipe import (
    ADD,
    BEGIN,
    COPY,
    FILL,
    LOAD,
    MULTIPLY,
    OUT,
    PSUM,
    STORE,
    SUM,
    VECTOR_BEGIN,
    VECTOR_FILL,
    WIDE,
    WINDOW,
    DepthwiseRecipe,
    Elements,
    EngineStep,
    X,
    Y,
)
from trnconv.geometry import Triple

SMALL = 64  # outputs; copying less than that costs no less


@dataclass(frozen=True)
class _LineBlock:
    """A block of a tile of lines; `number` counts all of them."""

    number: int
    first_line: int
    lines: int
    box: PositionBox
    window: PositionBox
    filters: int  # which set


@dataclass(frozen=True)
class _OutputPiece:
    """A piece of one of the outputs of a block."""

    block: _LineBlock
    multiple: int
    box: PositionBox
    last: bool  # of its block and multiple


@dataclass(frozen=True)
class _PieceSteps:
    """The steps of a piece, in three parts; `taps` are one or two instructions each."""

    piece: _OutputPiece
    begin: tuple[EngineStep, ...]
    taps: tuple[tuple[EngineStep, ...], ...]
    finish: tuple[EngineStep, ...]


def lower(plan: DepthwisePlan) -> Lowered[DepthwisePlan]:
    """The plan as instructions."""
    recipe = recipe_of(plan)
    filters = ArraySpec((recipe.lines, recipe.filter_columns), "float32")
    return Lowered(plan, recipe, (filters,), plan.input_specs(), (recipe.y_shape,))


def recipe_of(plan: DepthwisePlan) -> DepthwiseRecipe:
    """Every instruction, in order."""
    shape = plan.shape
    return DepthwiseRecipe(
        y_shape=(shape.batch, shape.c_out, *shape.out_sizes()),
        lines=min(plan.machine.partitions, plan.lines),
        windows=(plan.windows, plan.window_elems()),
        outs=(plan.outs, prod(plan.block_outs)),
        psum=(2 * plan.vector_pieces, plan.bank_elems()),
        wide=(plan.wide_tiles(), prod(plan.piece)),
        filter_columns=plan.filter_columns,
        steps=tuple(_Writer(plan).steps()),
    )


class _Writer:
    """Writes the steps of a plan in order."""

    def __init__(self, plan: DepthwisePlan) -> None:
        self.plan = plan
        self.window_elems = plan.window_elems()
        self.taps = [
            (number, tap, valid_outputs(plan.shape, _of_three(tap)))
            for number, tap in enumerate(np.ndindex(*plan.shape.kernel))
        ]
        self.products = 0  # how many were written

    def steps(self) -> Iterator[EngineStep]:
        """All of them."""
        plan = self.plan
        blocks = list(_blocks(plan))
        pieces = [piece for block in blocks for piece in _pieces(plan, block)]
        groups = [
            self._group(number, pieces[first : first + plan.group])
            for number, first in enumerate(range(0, len(pieces), plan.group))
        ]
        for block in blocks[: plan.windows]:
            yield self.load(block)
        yield from _begun(plan, groups[0])
        before: Sequence[_PieceSteps] = ()
        for number, group in enumerate(groups):
            following = groups[number + 1] if number + 1 < len(groups) else ()
            yield from self._one_group(before, group, following)
            yield from self._loads(blocks, group, following)
            before = group
        yield from self._finished(before)

    def _one_group(
        self,
        before: Sequence[_PieceSteps],
        group: Sequence[_PieceSteps],
        following: Sequence[_PieceSteps],
    ) -> Iterator[EngineStep]:
        on_vector, on_gpsimd = group[: self.plan.vector_pieces], group[self.plan.vector_pieces :]
        for work in on_gpsimd:
            yield from work.begin
        yield from _interleaved(work.taps[:AHEAD] for work in on_gpsimd)
        yield from self._finished(before)
        if not self.plan.vector_begins:
            yield from _begun(self.plan, following)
        taps = [work.taps for work in on_vector] + [work.taps[AHEAD:] for work in on_gpsimd]
        yield from _interleaved(taps)
        if self.plan.vector_begins:
            yield from _begun(self.plan, following)  # their engine would wait in front of the taps

    def _finished(self, group: Sequence[_PieceSteps]) -> Iterator[EngineStep]:
        """The ends of a group, and stores of the outputs that are complete."""
        for work in group:
            yield from work.finish
            if work.piece.last:
                yield self.store(work.piece)

    def _loads(
        self,
        blocks: Sequence[_LineBlock],
        group: Sequence[_PieceSteps],
        following: Sequence[_PieceSteps],
    ) -> Iterator[EngineStep]:
        """Windows into the tiles that this group was the last to read."""
        first = group[0].piece.block.number
        end = following[0].piece.block.number if following else len(blocks)
        for number in range(first, end):
            if number + self.plan.windows < len(blocks):
                yield self.load(blocks[number + self.plan.windows])

    def _group(self, number: int, pieces: Sequence[_OutputPiece]) -> list[_PieceSteps]:
        side = number % 2
        vector, gpsimd = self.plan.vector_pieces, self.plan.gpsimd_pieces
        return [
            self.work(piece, PSUM, side * vector + place)
            if place < vector
            else self.work(piece, WIDE, side * gpsimd + place - vector)
            for place, piece in enumerate(pieces)
        ]

    def work(self, piece: _OutputPiece, kind: str, slot: int) -> _PieceSteps:
        """The widest tap begins if it reaches every output; the next in width comes last.

        That one writes to the output itself, and what it leaves is copied.
        """
        met = [
            (number, tap, box)
            for number, tap, valid in self.taps
            if (box := valid.meet(piece.box)).elems
        ]
        met.sort(key=lambda meeting: meeting[2].elems)
        whole = bool(met) and met[-1][2].elems == piece.box.elems
        rest = met[:-1] if whole else met
        begin = self._begin(piece, met[-1] if whole else None, (kind if rest else OUT, slot))
        if not rest:
            return _PieceSteps(piece, (begin,), (), ())
        left = piece.box.without(rest[-1][2])
        direct = sum(max(SMALL, box.elems) for box in left) < piece.box.elems
        taps = tuple(
            self._tap(piece, tap, (kind, slot), to_out=direct and tap is rest[-1]) for tap in rest
        )
        left = left if direct else [piece.box]
        ends = tuple(self._copy(piece, box, (kind, slot)) for box in left)
        return _PieceSteps(piece, (begin,), taps, ends)

    def _begin(
        self, piece: _OutputPiece, tap: tuple[int, Triple, PositionBox] | None, to: tuple[str, int]
    ) -> EngineStep:
        dst = self._target(piece, piece.box, to)
        bias, lines = self._column(piece), piece.block.lines
        if tap is None:
            return EngineStep(
                VECTOR_FILL if self.plan.vector_begins else FILL, dst, dst, dst, lines, bias=bias
            )
        data = self._view(piece, tap)
        op = VECTOR_BEGIN if self.plan.vector_begins else BEGIN
        return EngineStep(op, dst, data, data, lines, weight=bias + 1 + tap[0], bias=bias)

    def _tap(
        self,
        piece: _OutputPiece,
        tap: tuple[int, Triple, PositionBox],
        sums: tuple[str, int],
        *,
        to_out: bool,
    ) -> tuple[EngineStep, ...]:
        total = self._target(piece, tap[2], sums)
        dst = self._target(piece, tap[2], (OUT, 0)) if to_out else total
        data, lines = self._view(piece, tap), piece.block.lines
        weight = self._column(piece) + 1 + tap[0]
        if sums[0] == PSUM:
            return (EngineStep(ADD, dst, data, total, lines, weight=weight),)
        slot = 2 * self.plan.gpsimd_pieces + self.products % self.plan.product_tiles()
        self.products += 1
        between = self._target(piece, tap[2], (WIDE, slot))
        return (
            EngineStep(MULTIPLY, between, data, data, lines, weight=weight),
            EngineStep(SUM, dst, between, total, lines),
        )

    def _copy(self, piece: _OutputPiece, box: PositionBox, sums: tuple[str, int]) -> EngineStep:
        total = self._target(piece, box, sums)
        return EngineStep(COPY, self._target(piece, box, (OUT, 0)), total, total, piece.block.lines)

    def _column(self, piece: _OutputPiece) -> int:
        columns = 1 + self.plan.shape.taps()
        return (piece.block.filters * self.plan.multiplier + piece.multiple) * columns

    def _target(self, piece: _OutputPiece, box: PositionBox, to: tuple[str, int]) -> Elements:
        """Outputs, in the tile for sums or in the one that is stored."""
        plan, (kind, slot) = self.plan, to
        around, pitch = piece.box, plan.bank_elems() if kind == PSUM else prod(plan.piece)
        if kind == OUT:
            around, pitch = piece.block.box, prod(plan.block_outs)
            slot = self._stored(piece) % plan.outs
        place = _inside(around, box.first, box.sizes, (1, 1, 1))
        return Elements(kind, slot, place[0], ((pitch, piece.block.lines), *place[1]))

    def _view(self, piece: _OutputPiece, tap: tuple[int, Triple, PositionBox]) -> Elements:
        """What a tap of some outputs reads, in the window of the block."""
        plan, (_, position, box) = self.plan, tap
        first = _of_three(
            plan.shape.in_position(axis, box.first[axis], position[axis]) for axis in range(3)
        )
        block = piece.block
        offset, pattern = _inside(block.window, first, box.sizes, plan.shape.stride)
        pitch, slot = self.window_elems, block.number % plan.windows
        return Elements(WINDOW, slot, offset, ((pitch, block.lines), *pattern))

    def _stored(self, piece: _OutputPiece) -> int:
        return piece.block.number * self.plan.multiplier + piece.multiple

    def load(self, block: _LineBlock) -> EngineStep:
        plan, whole = self.plan, PositionBox((0, 0, 0), self.plan.shape.size)
        offset, pattern = _inside(whole, block.window.first, block.window.sizes, (1, 1, 1))
        line = prod(plan.shape.size)
        data = Elements(X, 0, block.first_line * line + offset, ((line, block.lines), *pattern))
        elems = ((self.window_elems, block.lines), (1, block.window.elems))
        dst = Elements(WINDOW, block.number % plan.windows, 0, elems)
        return EngineStep(LOAD, dst, data, data, block.lines)

    def store(self, piece: _OutputPiece) -> EngineStep:
        plan, block = self.plan, piece.block
        whole = PositionBox((0, 0, 0), plan.shape.out_sizes())
        offset, pattern = _inside(whole, block.box.first, block.box.sizes, (1, 1, 1))
        line = plan.shape.positions()
        first = (block.first_line * plan.multiplier + piece.multiple) * line
        dst = Elements(Y, 0, first + offset, ((plan.multiplier * line, block.lines), *pattern))
        elems = ((prod(plan.block_outs), block.lines), (1, block.box.elems))
        data = Elements(OUT, self._stored(piece) % plan.outs, 0, elems)
        return EngineStep(STORE, dst, data, data, block.lines)


def _begun(plan: DepthwisePlan, group: Sequence[_PieceSteps]) -> Iterator[EngineStep]:
    """The beginnings on the Vector engine's side of a group."""
    for work in group[: plan.vector_pieces]:
        yield from work.begin


def _interleaved(lists: Iterable[Sequence[tuple[EngineStep, ...]]]) -> Iterator[EngineStep]:
    """The first tap of each piece, then the second: neighbours do not wait for one another."""
    for together in zip_longest(*lists, fillvalue=()):
        for steps in together:
            yield from steps


def _blocks(plan: DepthwisePlan) -> Iterator[_LineBlock]:
    """Tile of lines after tile of lines."""
    side, number = plan.machine.partitions, 0
    boxes = [(box, plan.window(box)) for box in plan.blocks()]
    for tile in range(plan.line_tiles):
        lines = min(side, plan.lines - tile * side)
        for box, window in boxes:
            first = plan.first_line + tile * side
            yield _LineBlock(number, first, lines, box, window, tile % plan.filter_sets)
            number += 1


def _pieces(plan: DepthwisePlan, block: _LineBlock) -> Iterator[_OutputPiece]:
    boxes = list(block.box.cut(plan.piece))
    for multiple in range(plan.multiplier):
        for box in boxes:
            yield _OutputPiece(block, multiple, box, box is boxes[-1])


def _inside(
    around: PositionBox, first: Triple, sizes: Triple, step: Triple
) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Offset and pattern of `sizes` elements, `step` apart, in a dense tile that holds `around`."""
    _, rows, columns = around.sizes
    pitch = (rows * columns, columns, 1)
    offset = sum((first[axis] - around.first[axis]) * pitch[axis] for axis in range(3))
    pairs = [(step[axis] * pitch[axis], sizes[axis]) for axis in range(3) if sizes[axis] > 1]
    return offset, tuple(pairs) or ((1, 1),)


def _of_three(values: Iterable[int]) -> Triple:
    first, second, third = values
    return (first, second, third)

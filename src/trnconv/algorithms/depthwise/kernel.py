"""Depthwise convolution without the Tensor engine: one instruction for each tap of a piece.

    y[c, p] = bias[c] + sum over taps t of  w[c, t] * x[c, window(p, t)]

A line is a channel of an image, on a partition of its own; its filter values and its bias are
numbers of that partition. Sums are float32, and are rounded once, when they become outputs. Nothing
is decided here: the recipe lists the instructions.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
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
    VECTOR_BEGIN,
    VECTOR_FILL,
    WIDE,
    WINDOW,
    DepthwiseRecipe,
    Elements,
    EngineStep,
    X,
)
from trnconv.algorithms.kernel_parts import Pair, wait_for_both
from trnconv.algorithms.recipe_parts import RecipePair


def depthwise(x: nl.NkiTensor, filters: nl.NkiTensor, recipe: DepthwiseRecipe) -> nl.NkiTensor:
    """x [N, C, D, H, W], filters and bias on lines -> y [N, C * multiplier, D', H', W']."""
    y = nl.ndarray(recipe.y_shape, dtype=x.dtype, buffer=nl.shared_hbm, name="y")
    issue_all(Tiles(x, y, filters, recipe), recipe)
    return y


def depthwise_on_two_cores(
    x: nl.NkiTensor, filters_0: nl.NkiTensor, filters_1: nl.NkiTensor, recipes: RecipePair
) -> nl.NkiTensor:
    """The same, with each of two cores computing its lines, or its outputs of every line."""
    number = nl.program_id(0)
    recipe = recipes.cores[number]
    y = nl.ndarray(recipe.y_shape, dtype=x.dtype, buffer=nl.shared_hbm, name="y")
    issue_all(Tiles(x, y, Pair(filters_0, filters_1).of(number), recipe), recipe)
    wait_for_both(y)
    return y


def issue_all(tiles: Tiles, recipe: DepthwiseRecipe) -> None:
    """Step after step."""
    for step in recipe.steps:
        issue(tiles, step)


class Tiles(nl.NKIObject):
    """Everything the steps name."""

    def __init__(
        self, x: nl.NkiTensor, y: nl.NkiTensor, filters: nl.NkiTensor, recipe: DepthwiseRecipe
    ) -> None:
        self.x = x
        self.y = y
        self.windows = rows(recipe.lines, recipe.windows, x.dtype, nl.sbuf)
        self.outs = rows(recipe.lines, recipe.outs, x.dtype, nl.sbuf)
        self.psum = rows(recipe.lines, recipe.psum, nl.float32, nl.psum)
        self.wide = rows(recipe.lines, recipe.wide, nl.float32, nl.sbuf)
        columns = (recipe.lines, recipe.filter_columns)
        self.filters = nl.ndarray(columns, dtype=nl.float32, buffer=nl.sbuf)
        self.zero = nl.ndarray((recipe.lines, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=self.zero, value=0.0, engine=nisa.engine.gpsimd)
        nisa.dma_copy(dst=self.filters, src=filters)

    def at(self, place: Elements) -> nl.NkiTensor:
        """The elements of a place."""
        return self.tile(place).ap(listed(place.pattern), offset=place.offset)

    def tile(self, place: Elements) -> nl.NkiTensor:
        """The tensor they are in."""
        if place.kind == WINDOW:
            return self.windows[place.slot]
        if place.kind == OUT:
            return self.outs[place.slot]
        if place.kind == PSUM:
            return self.psum[place.slot]
        if place.kind == WIDE:
            return self.wide[place.slot]
        return self.x if place.kind == X else self.y

    def number(self, step: EngineStep, column: int) -> nl.NkiTensor:
        """One number for each line of a step."""
        return self.filters[0 : step.lines, column : column + 1]


def issue(tiles: Tiles, step: EngineStep) -> None:
    """One instruction."""
    dst = tiles.at(step.dst)
    if step.op in (LOAD, STORE):
        nisa.dma_copy(dst=dst, src=tiles.at(step.data))
    elif step.op == ADD:
        nisa.scalar_tensor_tensor(
            dst=dst,
            data=tiles.at(step.data),
            op0=nl.multiply,
            operand0=tiles.number(step, step.weight),
            op1=nl.add,
            operand1=tiles.at(step.other),
        )
    elif step.op in (VECTOR_BEGIN, VECTOR_FILL):
        begin_on_vector(tiles, step, dst)
    elif step.op in (BEGIN, FILL, MULTIPLY, COPY):
        scale(tiles, step, dst)
    else:
        data, other = tiles.at(step.data), tiles.at(step.other)
        nisa.tensor_tensor(dst=dst, data1=data, data2=other, op=nl.add, engine=nisa.engine.gpsimd)


def zeros(tiles: Tiles, step: EngineStep) -> nl.NkiTensor:
    """As many as a step writes."""
    pattern = [[1, step.lines]]
    for pair in step.dst.pattern[1:]:
        pattern.append([0, pair[1]])
    return tiles.zero.ap(pattern, offset=0)


def begin_on_vector(tiles: Tiles, step: EngineStep, dst: nl.NkiTensor) -> None:
    """data * w + b, or b alone, by the Vector engine."""
    bias = tiles.number(step, step.bias)
    if step.op == VECTOR_FILL:
        nisa.tensor_scalar(dst=dst, data=zeros(tiles, step), op0=nl.add, operand0=bias)
    else:
        nisa.tensor_scalar(
            dst=dst,
            data=tiles.at(step.data),
            op0=nl.multiply,
            operand0=tiles.number(step, step.weight),
            op1=nl.add,
            operand1=bias,
        )


def scale(tiles: Tiles, step: EngineStep, dst: nl.NkiTensor) -> None:
    """What the Scalar engine does: data * w + b, or a part of it."""
    if step.op == FILL:
        bias = tiles.number(step, step.bias)
        nisa.activation(dst=dst, op=nl.copy, data=zeros(tiles, step), bias=bias)
    elif step.op == BEGIN:
        nisa.activation(
            dst=dst,
            op=nl.copy,
            data=tiles.at(step.data),
            scale=tiles.number(step, step.weight),
            bias=tiles.number(step, step.bias),
        )
    elif step.op == MULTIPLY:
        weight = tiles.number(step, step.weight)
        nisa.activation(dst=dst, op=nl.copy, data=tiles.at(step.data), scale=weight)
    else:
        nisa.activation(dst=dst, op=nl.copy, data=tiles.at(step.data))


def rows(
    lines: int, count: tuple[int, int], dtype: str, buffer: nl.MemoryRegion
) -> list[nl.NkiTensor]:
    """Equal tiles that take turns."""
    tiles = []
    for _ in range(count[0]):
        tiles.append(nl.ndarray((lines, count[1]), dtype=dtype, buffer=buffer))
    return tiles


def listed(pattern: tuple[tuple[int, int], ...]) -> list[list[int]]:
    """A pattern as NKI takes it."""
    pairs = []
    for pair in pattern:
        pairs.append([pair[0], pair[1]])
    return pairs

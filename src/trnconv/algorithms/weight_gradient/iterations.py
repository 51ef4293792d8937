"""Iterations of a weight gradient: blocks that are computed together, and where they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

from trnconv.algorithms.weight_gradient.plan import DEPTH, HEIGHT, WIDTH, WeightGradientPlan
from trnconv.geometry import ConvShape


@dataclass(frozen=True)
class Area:
    """Rows and columns of an output frame."""

    row: int
    rows: int
    column: int
    columns: int


@dataclass(frozen=True)
class AreaIteration:
    """Some areas of some output frames of some images; an area of a frame is a block."""

    image: int
    images: int
    frames: tuple[int, ...]
    areas: tuple[Area, ...]


def areas_of(plan: WeightGradientPlan) -> tuple[Area, ...]:
    """What a frame is cut into, one block each."""
    return tuple(
        Area(row, rows, column, columns)
        for row, rows in plan.row_spans()
        for column, columns in plan.column_spans()
    )


def iterations(plan: WeightGradientPlan) -> Iterator[AreaIteration]:
    """Every position of the output, once."""
    frames, areas = range(plan.shape.out_size(DEPTH)), areas_of(plan)
    for image, images in plan.image_spans():
        for first in range(0, len(areas), plan.iteration_areas):
            taken = areas[first : first + plan.iteration_areas]
            for frame in range(0, len(frames), plan.iteration_frames):
                yield AreaIteration(
                    image, images, tuple(frames[frame : frame + plan.iteration_frames]), taken
                )


def image_elems(plan: WeightGradientPlan) -> tuple[int, int]:
    """Elements of an image of x, as DMA transposes it, and of dy."""
    return plan.shape.c_in * channel_elems(plan), plan.shape.c_out * plan.shape.positions()


def channel_elems(plan: WeightGradientPlan) -> int:
    """Elements of a channel of x, as DMA transposes it."""
    shape = plan.shape
    return shape.size[DEPTH] * shape.size[HEIGHT] * row_elems(plan)


def row_elems(plan: WeightGradientPlan) -> int:
    """Elements of a row of x, as DMA transposes it."""
    return plan.shape.size[WIDTH] // plan.unit


def origin(plan: WeightGradientPlan, iteration: AreaIteration) -> tuple[int, int]:
    """Elements of x and dy before an iteration's first position, as if there were no padding."""
    stride, out = plan.shape.stride, plan.shape.out_sizes()
    frame, area = iteration.frames[0], iteration.areas[0]
    x_image, dy_image = image_elems(plan)
    rows = frame * stride[DEPTH] * plan.shape.size[HEIGHT] + area.row * stride[HEIGHT]
    x = rows * row_elems(plan) + area.column * stride[WIDTH] // plan.unit
    dy = (frame * out[HEIGHT] + area.row) * out[WIDTH]
    x += iteration.image * x_image
    return x, iteration.image * dy_image + dy + area.column


def appearance(plan: WeightGradientPlan, iteration: AreaIteration) -> tuple[object, ...]:
    """What decides how an iteration's blocks look: those that agree differ in their place only."""
    return (
        iteration.images,
        _frames_look(plan, iteration.frames),
        _areas_look(plan, iteration.areas),
    )


@lru_cache(maxsize=64)
def iterations_of_looks(plan: WeightGradientPlan) -> list[int]:
    """Of the different looks that the iterations of a plan have, how many iterations each has."""
    frames = range(plan.shape.out_size(DEPTH))
    images = Counter(count for _, count in plan.image_spans())
    frame_looks = Counter(
        _frames_look(plan, tuple(frames[first : first + plan.iteration_frames]))
        for first in range(0, len(frames), plan.iteration_frames)
    )
    parts = (images.values(), frame_looks.values(), _area_looks(plan).values())
    return [prod(counts) for counts in product(*parts)]


def _area_looks(plan: WeightGradientPlan) -> Counter[object]:
    """The different looks of the areas of iterations: `_areas_look` without the areas.

    Areas lie on a grid, so how they are moved against an iteration's first one depends
    only on where a row of it ends.
    """
    rows = _span_looks(plan.shape, HEIGHT, plan.rows, plan.is_flat)
    columns = _span_looks(plan.shape, WIDTH, plan.columns, plan.is_flat)
    in_row = len(columns)
    looks = [in_row * row + column for row in rows for column in columns]
    found: Counter[object] = Counter()
    for first in range(0, len(looks), plan.iteration_areas):
        iteration = tuple(looks[first : first + plan.iteration_areas])
        found[min(len(iteration), in_row - first % in_row), iteration] += 1
    return found


@lru_cache(maxsize=256)
def _span_looks(shape: ConvShape, axis: int, size: int, is_flat: bool) -> tuple[int, ...]:  # noqa: FBT001
    """For every span of an axis that is cut, a number that those which look alike have."""
    out, numbers = shape.out_size(axis), dict[tuple[int, ...], int]()
    looks = []
    for first in range(0, out, size):
        count = min(size, out - first)
        look = (count, *_reach_beyond(shape, axis, (first, count), is_flat))
        looks.append(numbers.setdefault(look, len(numbers)))
    return tuple(looks)


def _frames_look(plan: WeightGradientPlan, frames: tuple[int, ...]) -> tuple[object, ...]:
    first = frames[0] * plan.shape.stride[DEPTH]
    return tuple(
        tuple(at - first if at >= 0 else None for at in plan.frames_read(frame)) for frame in frames
    )


def _areas_look(plan: WeightGradientPlan, areas: tuple[Area, ...]) -> tuple[object, ...]:
    looks = []
    for area in areas:
        moved = (area.row - areas[0].row, area.column - areas[0].column)
        rows = _padding(plan, HEIGHT, area.row, area.rows)
        columns = _padding(plan, WIDTH, area.column, area.columns)
        looks.append((*moved, area.rows, area.columns, *rows, *columns))
    return tuple(looks)


def _padding(plan: WeightGradientPlan, axis: int, first: int, count: int) -> tuple[int, int]:
    """How far outputs reach beyond both ends of the input.

    Where tiles run on from row to row, the first tap of a row may lie in the row before, so one
    row more is looked at.
    """
    return _reach_beyond(plan.shape, axis, (first, count), plan.is_flat)


def _reach_beyond(
    shape: ConvShape,
    axis: int,
    span: tuple[int, int],
    is_flat: bool,  # noqa: FBT001
) -> tuple[int, int]:
    first, count = span
    more = 1 if is_flat and axis == HEIGHT else 0
    begin = shape.in_position(axis, first, 0) - more
    end = shape.in_position(axis, first + count - 1, shape.kernel[axis] - 1) + more
    return max(0, -begin), max(0, end + 1 - shape.size[axis])

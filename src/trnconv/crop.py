"""A smaller piece of a layer that stands for it: the same channels and taps, fewer positions."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from trnconv.algorithms.algorithm import Priced
from trnconv.geometry import AXES, ConvShape, with_axis
from trnconv.planner.table import algorithm_of, priced
from trnconv.problem.conv_problem import ConvProblem

_HEIGHT = 1
_LEAST_OUT = (2, 6, 32)  # frames, rows, columns of outputs that are kept
_ORDER = (1, 2, 0)  # rows repeat most, frames least
_MACS_OF_A_READ = 64  # a value copied from memory takes about as long


def effort(shape: ConvShape) -> int:
    """What computing it on a CPU takes, in multiply-adds: those, and the inputs each tap reads."""
    read = shape.batch * shape.c_in * prod(shape.size) * shape.taps()
    return shape.macs() + _MACS_OF_A_READ * read


def crop(shape: ConvShape, most: int) -> ConvShape:
    """At most so much effort, if fewer images, rows, columns, and frames can do it."""
    if effort(shape) > most:
        shape = replace(shape, batch=1)
    for axis in _ORDER:
        shape = _cut_axis(shape, axis, most)
    return shape


def _cut_axis(shape: ConvShape, axis: int, most: int) -> ConvShape:
    """Halve the input along an axis while that helps."""
    while effort(shape) > most and shape.out_size(axis) >= 2 * _LEAST_OUT[axis]:
        shape = replace(shape, size=with_axis(shape.size, axis, (shape.size[axis] + 1) // 2))
    return shape


def under_its_plan(
    problem: ConvProblem, taken: Priced, blocks: int
) -> tuple[ConvProblem, Priced] | None:
    """So many blocks of rows of a layer, with the decisions of the layer's own plan.

    A plan made for so few rows would be another one. None if the decisions do not fit the piece.
    """
    if not isinstance(problem.shape, ConvShape):
        return None
    piece = replace(problem, shape=_fewer_rows(problem.shape, blocks * taken.plan.block()[_HEIGHT]))
    algorithm = algorithm_of(taken.plan)
    plan = algorithm.moved(taken.plan, piece)
    return None if algorithm.violations(plan) else (piece, priced(plan))


def _fewer_rows(shape: ConvShape, rows: int) -> ConvShape:
    """So many output rows, or all if there are not as many."""
    beyond = max(0, shape.out_size(_HEIGHT) - rows)
    less = beyond * shape.stride[_HEIGHT] // shape.upsample[_HEIGHT]
    return replace(shape, size=with_axis(shape.size, _HEIGHT, shape.size[_HEIGHT] - less))


def describe(whole: ConvShape, part: ConvShape) -> str:
    """What was cut: 45 of 720 rows; empty if nothing was."""
    names = dict(zip(AXES, ("frames", "rows", "columns"), strict=True))
    changed = [
        f"{small} of {large} {names[axis]}"
        for axis, small, large in zip(AXES, part.size, whole.size, strict=True)
        if small != large
    ]
    if part.batch != whole.batch:
        changed.insert(0, f"{part.batch} of {whole.batch} images")
    return ", ".join(changed)

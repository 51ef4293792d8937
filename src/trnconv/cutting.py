"""A smaller piece of a layer that stands for it: the same channels and taps, fewer positions."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from trnconv.geometry import AXES, ConvShape, with_axis
from trnconv.plan.choose import Priced
from trnconv.plan.estimate import estimate
from trnconv.plan.fast_candidates import PricedFast
from trnconv.plan.fast_cost import estimate as estimate_fast
from trnconv.plan.fast_legality import broken_rules as broken_fast_rules
from trnconv.plan.legality import broken_rules
from trnconv.plan.problem import HEIGHT, fold
from trnconv.plan.question import Question

Taken = Priced | PricedFast
_LEAST_OUT = (2, 6, 32)  # frames, rows, columns of outputs that are kept
_ORDER = (1, 2, 0)  # rows repeat most, frames least
_MACS_OF_A_READ = 64  # a value copied from memory takes about as long


def effort(shape: ConvShape) -> int:
    """What computing it on a CPU takes, in multiply-adds: those, and the inputs each tap reads."""
    read = shape.batch * shape.c_in * prod(shape.size) * shape.taps()
    return shape.macs() + _MACS_OF_A_READ * read


def cut(shape: ConvShape, most: int) -> ConvShape:
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


def under_its_plan(question: Question, taken: Taken, blocks: int) -> tuple[Question, Taken] | None:
    """So many blocks of rows of a layer, with the decisions of the layer's own plan.

    A plan made for so few rows would be another one. None if the decisions do not fit the piece.
    """
    if not isinstance(question.shape, ConvShape):
        return None
    shape = _fewer_rows(question.shape, blocks * taken.plan.rows)
    if isinstance(taken, PricedFast):
        fast = replace(taken.plan, shape=shape)
        fits = not broken_fast_rules(fast)
        same: Taken | None = PricedFast(fast, estimate_fast(fast)) if fits else None
    else:
        problem = fold(shape, question.pieces, every_tap=question.reproducible)
        plan = replace(taken.plan, problem=problem)
        cost = estimate(plan)
        same = None if broken_rules(plan, cost) else Priced(plan, cost)
    return None if same is None else (replace(question, shape=shape), same)


def _fewer_rows(shape: ConvShape, rows: int) -> ConvShape:
    """So many output rows, or all if there are not as many."""
    beyond = max(0, shape.out_size(HEIGHT) - rows)
    less = beyond * shape.stride[HEIGHT] // shape.upsample[HEIGHT]
    return replace(shape, size=with_axis(shape.size, HEIGHT, shape.size[HEIGHT] - less))


def in_words(whole: ConvShape, part: ConvShape) -> str:
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

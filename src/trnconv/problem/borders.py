"""Input gradients where padding has values: those of padding are added to where they came from.

A convolution that is padded by replicate, reflect or circular is one of a larger input, without
that padding. A kernel computes the gradient of the larger input in one launch; then the borders are
added to the positions that they are copies of, and dropped. Launches of the borders alone would
write dx in place, but all of them take longer than the larger launch: they fill no engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

from trnconv.geometry import NO_MODES, ConvShape, with_axis

Run = tuple[int, int, int]  # first position of a padded axis, where its value is from, how many


def widened(shape: ConvShape) -> ConvShape:
    """The convolution of an input that has its values of padding already."""
    wide = shape
    for axis in range(3):
        if shape.repeats(axis):
            wide = replace(
                wide,
                size=with_axis(wide.size, axis, shape.padded_size(axis)),
                pad_before=with_axis(wide.pad_before, axis, 0),
                pad_after=with_axis(wide.pad_after, axis, 0),
            )
    return replace(wide, modes=NO_MODES)


def input_gradient(shape: ConvShape, compute: Callable[[ConvShape], Any]) -> Any:
    """dx, an array or a tensor; `compute` makes that of a convolution padded with zeros."""
    wide = widened(shape)
    dx = compute(wide)
    return dx if wide.size == shape.size else _folded(shape, dx)


def _folded(shape: ConvShape, padded: Any) -> Any:
    """The input's own positions, with borders added to their sources, once in every direction."""
    own = [shape.pad_before[axis] if shape.repeats(axis) else 0 for axis in range(3)]
    inside = [slice(at, at + size) for at, size in zip(own, shape.size, strict=True)]
    dx = padded[(..., *inside)] + 0  # of its own, in order
    for runs in product(*(_runs(shape, axis) for axis in range(3))):
        taken = [slice(at, at + count) for at, _, count in runs]
        if taken != inside:
            sources = [slice(source, source + count) for _, source, count in runs]
            dx[(..., *sources)] += padded[(..., *taken)]
    return dx


def _runs(shape: ConvShape, axis: int) -> list[Run]:
    """The axis itself, and values of padding that go on together."""
    size, before = shape.size[axis], shape.pad_before[axis]
    if not shape.repeats(axis):
        return [(0, 0, size)]
    runs: list[Run] = [(before, 0, size)]
    for position in (*range(-before, 0), *range(size, size + shape.pad_after[axis])):
        source = shape.source(axis, position)
        at, begin, count = runs[-1]
        if (at + count, begin + count) == (before + position, source) and len(runs) > 1:
            runs[-1] = (at, begin, count + 1)
        else:
            runs.append((before + position, source, 1))
    return runs

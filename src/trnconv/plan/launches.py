"""Launches: a convolution whose tensors need more than 32-bit offsets is computed in parts.

Parts are slices of the input along images, frames or rows, with the halo they need; each is a
convolution of its own, and their outputs lie next to each other. Along an upsampled axis, a part
goes on to the last repetition of its last position: some outputs are computed by two parts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from nkisim.machine import PARTITIONS
from trnconv.errors import PlanError, ShapeError
from trnconv.geometry import CIRCULAR, ConvShape, Triple, with_axis
from trnconv.plan.legality import MAX_OFFSET

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Launch:
    """A part: what it computes, and where its input and output begin."""

    shape: ConvShape
    image: int
    x_first: Triple
    y_first: Triple
    first_channel: int = 0  # of the output

    def input_of(self, x: Array) -> Array:
        """The slice of x [N, C, D, H, W] that it reads."""
        return x[self._slices(self.x_first, self.shape.size)]

    def channels_of(self, filters: Array) -> Array:
        """The slice of w [C_out, ...], or of a bias, that it uses."""
        return filters[self.first_channel : self.first_channel + self.shape.c_out]

    def output_of(self, y: Array) -> Array:
        """The slice of y that it computes."""
        part = y[self._slices(self.y_first, self.shape.out_sizes())]
        return part[:, self.first_channel : self.first_channel + self.shape.c_out]

    def _slices(self, first: Triple, size: Triple) -> tuple[slice, ...]:
        places = [slice(at, at + count) for at, count in zip(first, size, strict=True)]
        return (slice(self.image, self.image + self.shape.batch), slice(None), *places)


def launches(shape: ConvShape, most: int = MAX_OFFSET) -> list[Launch]:
    """The parts of a convolution, each with at most `most` elements in and out."""
    parts = [Launch(shape, 0, (0, 0, 0), (0, 0, 0))]
    while any(_elems(part.shape) > most for part in parts):
        parts = [piece for part in parts for piece in _halved(part, most)]
    return parts


def halve_channels(part: Launch) -> list[Launch]:
    """Two parts with half of the output channels each: shorter programs, the input read twice.

    Whole tiles of channels stay whole.
    """
    shape = part.shape
    if shape.groups > 1 or shape.c_out == 1:
        raise PlanError(f"{shape} cannot be split by output channels.")
    half = shape.c_out // 2
    if shape.c_out > PARTITIONS:
        half = max(1, half // PARTITIONS) * PARTITIONS
    rest = replace(shape, c_out=shape.c_out - half)
    return [
        replace(part, shape=replace(shape, c_out=half)),
        replace(part, shape=rest, first_channel=part.first_channel + half),
    ]


def _elems(shape: ConvShape) -> int:
    x = shape.batch * shape.c_in * prod(shape.size)
    return max(x, shape.batch * shape.c_out * shape.positions())


def _halved(part: Launch, most: int) -> list[Launch]:
    shape = part.shape
    if _elems(shape) <= most:
        return [part]
    if shape.batch > 1:
        half = shape.batch // 2
        rest = replace(
            part, shape=replace(shape, batch=shape.batch - half), image=part.image + half
        )
        return [replace(part, shape=replace(shape, batch=half)), rest]
    for axis in range(3):
        count = shape.out_size(axis)
        halves = (0, count // 2), (count // 2, count)
        # what is wrapped around comes from beyond a part
        splits = shape.modes[axis] != CIRCULAR
        if count > 1 and splits and all(_reads_input(shape, axis, *half) for half in halves):
            try:
                parts = [_slice(part, axis, *half) for half in halves]
            except ShapeError:
                continue  # a part would be smaller than what it reflects
            if all(one.shape.out_size(axis) < count for one in parts):
                return parts
    raise PlanError(
        f"{shape} has {_elems(shape)} elements and nothing to split: offsets have 32 bits."
        " Split the channels, or pad less."
    )


def _reads_input(shape: ConvShape, axis: int, first: int, end: int) -> bool:
    begin, stop = _reach(shape, axis, first, end)
    return begin < shape.size[axis] * shape.upsample[axis] and stop > 0


def _reach(shape: ConvShape, axis: int, first: int, end: int) -> tuple[int, int]:
    """The positions that outputs read, first and end: padding included, skipped ones counted."""
    front = shape.skip[axis] - shape.pad_before[axis]
    begin = first * shape.stride[axis] + front
    reach = shape.dilation[axis] * (shape.kernel[axis] - 1) + 1
    return begin, (end - 1) * shape.stride[axis] + front + reach


def _slice(part: Launch, axis: int, first: int, end: int) -> Launch:
    """Outputs `first` .. `end - 1` of an axis: the input they read, the padding that is left.

    There are more outputs if the last one reads not all repetitions of a position.
    """
    shape = part.shape
    times, size = shape.upsample[axis], shape.size[axis]
    begin, stop = _reach(shape, axis, first, end)
    x_first, x_end = max(begin // times, 0), min(-(-stop // times), size)
    front = begin - x_first * times
    cut = replace(
        shape,
        size=with_axis(shape.size, axis, x_end - x_first),
        pad_before=with_axis(shape.pad_before, axis, max(0, -front)),
        pad_after=with_axis(shape.pad_after, axis, max(0, stop - x_end * times)),
        skip=with_axis(shape.skip, axis, max(0, front)),
    )
    return Launch(
        cut,
        part.image,
        with_axis(part.x_first, axis, part.x_first[axis] + x_first),
        with_axis(part.y_first, axis, part.y_first[axis] + first),
    )

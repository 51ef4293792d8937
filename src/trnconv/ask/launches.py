"""Launches: a convolution that is too large for one is computed in parts.

Where offsets would not fit 32 bits, parts are slices of the input along images, frames or rows,
with the halo they need; each is a convolution of its own, and their outputs lie next to each other.
Along an upsampled axis, a part goes on to the last repetition of its last position: some outputs
are computed by two parts. Where no program is short enough, parts have fewer output channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeVar

from nkisim.machine import PARTITIONS
from trnconv.ask.limits import MAX_OFFSET
from trnconv.ask.question import Question, Shape
from trnconv.errors import PlanError, ShapeError, UnsupportedError
from trnconv.geometry import CIRCULAR, ConvShape, TransposedShape, Triple, with_axis

Planned = TypeVar("Planned")


@dataclass(frozen=True)
class Launch:
    """A part: what it computes, and where its input and output begin."""

    shape: Shape
    image: int
    x_first: Triple
    y_first: Triple
    first_channel: int = 0  # of the output

    def inputs_of(self, pieces: tuple[Any, ...]) -> tuple[Any, ...]:
        """The slice of x [N, C, D, H, W] that it reads; pieces along the frames stay whole."""
        if len(pieces) > 1:
            return pieces
        return (pieces[0][self._slices(self.x_first, self.shape.size)],)

    def channels_of(self, filters: Any) -> Any:
        """The slice of w [C_out, ...], or of a bias, that it uses."""
        return filters[self.first_channel : self.first_channel + self.shape.c_out]

    def output_of(self, y: Any) -> Any:
        """The slice of y that it computes."""
        part = y[self._slices(self.y_first, self.shape.out_sizes())]
        return part[:, self.first_channel : self.first_channel + self.shape.c_out]

    def _slices(self, first: Triple, size: Triple) -> tuple[slice, ...]:
        places = [slice(at, at + count) for at, count in zip(first, size, strict=True)]
        return (slice(self.image, self.image + self.shape.batch), slice(None), *places)


def planned_parts(
    question: Question, plan: Callable[[Question], Planned]
) -> Iterator[tuple[Launch, Planned]]:
    """The launches of a convolution and what `plan` makes of each; equal ones are planned once.

    Mostly it is one. There are more where offsets would not fit 32 bits, and where no program is
    short enough (`plan` raises PlanError): then output channels are halved until one is. An input
    in pieces cannot be sliced: it is refused if it would have to be.
    """
    known: dict[Shape, Planned] = {}
    waiting = launches(question.shape)
    if question.pieces and len(waiting) > 1:
        raise UnsupportedError(
            f"an input in pieces of {question.pieces} frames that needs several launches: offsets"
            " into its tensors do not fit 32 bits. Only one piece can be split. Concatenate first."
        )
    while waiting:
        part = waiting.pop(0)
        if part.shape not in known:
            try:
                known[part.shape] = plan(replace(question, shape=part.shape))
            except PlanError as error:
                waiting[:0] = halve_channels(part, error)
                continue
        yield part, known[part.shape]


def launches(shape: Shape, most: int = MAX_OFFSET) -> list[Launch]:
    """The parts of a convolution, each with at most `most` elements in and out."""
    parts = [Launch(shape, 0, (0, 0, 0), (0, 0, 0))]
    while any(_elems(part.shape) > most for part in parts):
        parts = [piece for part in parts for piece in _halved(part, most)]
    return parts


def halve_channels(part: Launch, why: PlanError | None = None) -> list[Launch]:
    """Two parts with half of the output channels each: shorter programs, the input read twice.

    Whole tiles of channels stay whole.
    """
    shape = part.shape
    if shape.groups > 1 or shape.c_out == 1:
        raise why or PlanError(f"{shape} cannot be split by output channels.")
    half = shape.c_out // 2
    if shape.c_out > PARTITIONS:
        half = max(1, half // PARTITIONS) * PARTITIONS
    rest = replace(shape, c_out=shape.c_out - half)
    return [
        replace(part, shape=replace(shape, c_out=half)),
        replace(part, shape=rest, first_channel=part.first_channel + half),
    ]


def _elems(shape: Shape) -> int:
    x = shape.batch * shape.c_in * prod(shape.size)
    return max(x, shape.batch * shape.c_out * prod(shape.out_sizes()))


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
        count = shape.out_sizes()[axis]
        halves = (0, count // 2), (count // 2, count)
        if count > 1 and all(_reads_input(shape, axis, *half) for half in halves):
            try:
                parts = [_slice(part, axis, *half) for half in halves]
            except ShapeError:
                continue  # a part would be smaller than what it reflects
            if all(one.shape.out_sizes()[axis] < count for one in parts):
                return parts
    raise PlanError(
        f"{shape} has {_elems(shape)} elements and nothing to split: offsets have 32 bits."
        " Split the channels, or pad less."
    )


def _reads_input(shape: Shape, axis: int, first: int, end: int) -> bool:
    """Whether outputs can be a part of their own: what is wrapped around comes from beyond it."""
    if isinstance(shape, TransposedShape):
        begin, stop = _reached_by(shape, axis, first, end)
        return begin < stop
    begin, stop = _reach(shape, axis, first, end)
    inside = begin < shape.size[axis] * shape.upsample[axis] and stop > 0
    return inside and shape.modes[axis] != CIRCULAR


def _reached_by(shape: TransposedShape, axis: int, first: int, end: int) -> tuple[int, int]:
    """The inputs that are added to outputs, first and end.

    The first is at most the one whose first tap meets the first output: a part crops, never pads.
    """
    stride, pad = shape.stride[axis], shape.pad_before[axis]
    reach = shape.dilation[axis] * (shape.kernel[axis] - 1)
    begin = min(-((reach - first - pad) // stride), (first + pad) // stride)
    return max(0, begin), min(shape.size[axis], (end - 1 + pad) // stride + 1)


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
    if isinstance(shape, TransposedShape):
        begin, stop = _reached_by(shape, axis, first, end)
        fewer = replace(
            shape,
            size=with_axis(shape.size, axis, stop - begin),
            out=with_axis(shape.out, axis, end - first),
            pad_before=with_axis(
                shape.pad_before, axis, shape.pad_before[axis] + first - begin * shape.stride[axis]
            ),
        )
        return _at(part, fewer, axis, (begin, first))
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
    return _at(part, cut, axis, (x_first, first))


def _at(part: Launch, shape: Shape, axis: int, first: tuple[int, int]) -> Launch:
    """A slice of a part that begins so much further along an axis of x and of y."""
    return replace(
        part,
        shape=shape,
        x_first=with_axis(part.x_first, axis, part.x_first[axis] + first[0]),
        y_first=with_axis(part.y_first, axis, part.y_first[axis] + first[1]),
    )

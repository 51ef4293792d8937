"""Launches: a convolution that is too large for one is computed in parts.

Where offsets would not fit 32 bits, parts are slices of the input along images, frames or rows,
with the halo they need; each is a convolution of its own, and their outputs lie next to each other.
Along an upsampled axis, a part goes on to the last repetition of its last position: some outputs
are computed by two parts. Where no program is short enough, parts have fewer groups, or fewer
output channels. Where the groups have a number that few of them could share the array by, a prime
say, what is left of whole arrays is a part of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeVar

from nkisim.machine import PARTITIONS
from trnconv.errors import PlanError, ShapeError, UnsupportedError
from trnconv.geometry import CIRCULAR, ConvShape, TransposedShape, Triple, with_axis
from trnconv.problem.conv_problem import ConvProblem, Shape
from trnconv.problem.describe import describe_call, describe_shape
from trnconv.problem.epilogue import ITEM_BYTES, NO_RESIDUAL
from trnconv.problem.limits import DEFAULT_BUDGET, LONGER_BUDGETS, MAX_OFFSET

Planned = TypeVar("Planned")
_MOST_BLOCKS = 32  # of channels that share nothing: planning, and a program, can do with so many
_GIB = 2**30


@dataclass(frozen=True)
class LaunchPart:
    """A part: what it computes, and where its input and output begin."""

    shape: Shape
    image: int
    x_first: Triple
    y_first: Triple
    first_channel: int = 0  # of the output
    first_input: int = 0  # channel of the input

    def inputs_of(self, pieces: tuple[Any, ...]) -> tuple[Any, ...]:
        """The slice of x [N, C, D, H, W] that it reads; pieces along the frames stay whole."""
        channels = slice(self.first_input, self.first_input + self.shape.c_in)
        if len(pieces) > 1:
            return tuple(piece[:, channels] for piece in pieces)
        return (pieces[0][self._slices(self.x_first, self.shape.size)][:, channels],)

    def channels_of(self, filters: Any) -> Any:
        """The slice of w [C_out, ...], or of a bias, that it uses."""
        return filters[self.first_channel : self.first_channel + self.shape.c_out]

    def input_channels_of(self, factors: Any) -> Any:
        """The slice of factors [C_in, ...] that it uses."""
        return factors[self.first_input : self.first_input + self.shape.c_in]

    def output_of(self, y: Any) -> Any:
        """The slice of y that it computes."""
        part = y[self._slices(self.y_first, self.shape.out_sizes())]
        return part[:, self.first_channel : self.first_channel + self.shape.c_out]

    def _slices(self, first: Triple, size: Triple) -> tuple[slice, ...]:
        places = [slice(at, at + count) for at, count in zip(first, size, strict=True)]
        return (slice(self.image, self.image + self.shape.batch), slice(None), *places)


def planned_parts(
    problem: ConvProblem, plan: Callable[[ConvProblem], Planned]
) -> Iterator[tuple[LaunchPart, Planned]]:
    """The launches of a convolution and what `plan` makes of each; equal ones are planned once.

    Mostly it is one. There are more where offsets would not fit 32 bits, and where no program is
    short enough (`plan` raises PlanError): then groups, and output channels in whole tiles, are
    halved until one is. What one array holds may have a longer program; only if there is none
    either, that is halved too. An input in pieces cannot be sliced: it is refused if it would
    have to be. A norm of the outputs is over all channels, and a coarse residual is not sliced:
    with either there is one launch, or a PlanError.
    """
    known: dict[Shape, Planned] = {}
    waiting = first_parts(problem)
    if problem.pieces and len(launches(problem.shape)) > 1:
        raise UnsupportedError(
            f"an input in pieces of {problem.pieces} frames that needs several launches: offsets"
            " into its tensors do not fit 32 bits. Only one piece can be split. Concatenate first."
        )
    if problem.epilogue.norm is not None or problem.epilogue.coarse is not None:
        if len(waiting) > 1:
            raise PlanError(
                f"{describe_call(problem)}: {len(waiting)} launches compute its outputs, which are"
                " normed or get a residual of lower resolution. Do that afterwards."
            )
        yield waiting[0], _planned(problem, plan)
        return
    first_words = ""  # not the error: it would hold this frame, and all that called it
    while waiting:
        part = waiting.pop(0)
        if part.shape not in known:
            try:
                known[part.shape] = _planned(replace(problem, shape=part.shape), plan)
            except PlanError as error:
                first_words = first_words or str(error)
                waiting[:0] = halve_channels(part, first_words)
                continue
        yield part, known[part.shape]


def first_parts(problem: ConvProblem) -> list[LaunchPart]:
    """The parts that are planned first; those without a plan are halved further."""
    parts = launches(problem.shape)
    if problem.reproducible:
        return parts
    return [half for part in parts for half in _whole_arrays(part)]


def _planned(problem: ConvProblem, plan: Callable[[ConvProblem], Planned]) -> Planned:
    """A plan within the budget; for what one array holds within a longer one, if it must be."""
    try:
        return plan(problem)
    except PlanError as error:
        if _fits_array(problem.shape):
            for budget in (DEFAULT_BUDGET, *LONGER_BUDGETS):
                if budget > problem.budget:
                    with suppress(PlanError):
                        return plan(replace(problem, budget=budget))
        raise error from None


def require_room(problem: ConvProblem) -> None:
    """Refuse tensors that HBM cannot hold, however they are computed."""
    shape, room = problem.shape, problem.machine.hbm_bytes
    item = ITEM_BYTES.get(problem.dtype, 0)
    x = shape.batch * shape.c_in * prod(shape.size) * item
    y = shape.batch * shape.c_out * prod(shape.out_sizes())
    y *= item * (2 if problem.epilogue.residual != NO_RESIDUAL else 1)
    w = shape.c_out * (shape.c_in // shape.groups) * prod(shape.kernel) * item
    if x + y + w > room:
        sizes = ", ".join(
            f"{name} {size / _GIB:.1f}"
            for name, size in (("input", x), ("weight", w), ("output", y))
        )
        raise PlanError(
            f"{describe_call(problem)}: {(x + y + w) / _GIB:.1f} GiB of tensors ({sizes}), and the"
            f" HBM of {problem.machine.name} has {room / _GIB:.0f} GiB. Convolve parts of the"
            " batch or of the image, or use a narrower type."
        )


def launches(shape: Shape, most: int = MAX_OFFSET) -> list[LaunchPart]:
    """The parts of a convolution, each with at most `most` elements in and out."""
    parts = [LaunchPart(shape, 0, (0, 0, 0), (0, 0, 0))]
    while any(_elems(part.shape) > most for part in parts):
        parts = [piece for part in parts for piece in _halved(part, most)]
    return parts


def halve_channels(part: LaunchPart, why: str = "") -> list[LaunchPart]:
    """Two parts with half of the groups, or of the output channels, each: shorter programs.

    Whole arrays of groups and whole tiles of channels stay whole. Halves of output channels both
    read the input.
    """
    shape = part.shape
    if shape.groups > 1:
        return _split_groups(part, _half(shape.groups, _groups_of_array(shape)))
    if shape.c_out == 1:
        raise PlanError(why or f"{describe_shape(shape)} cannot be split by output channels.")
    half = _half(shape.c_out, PARTITIONS)
    rest = replace(shape, c_out=shape.c_out - half)
    return [
        replace(part, shape=replace(shape, c_out=half)),
        replace(part, shape=rest, first_channel=part.first_channel + half),
    ]


def _half(count: int, whole: int) -> int:
    half = count // 2
    return max(1, half // whole) * whole if count > whole else half


def _groups_of_array(shape: Shape) -> int:
    """Groups that fit the array side by side."""
    return max(1, PARTITIONS // (max(shape.c_in, shape.c_out) // shape.groups))


def _fits_array(shape: Shape) -> bool:
    """Whether halving its channels would leave a part of the array idle."""
    most = PARTITIONS if shape.groups == 1 else _groups_of_array(shape)
    return (shape.c_out if shape.groups == 1 else shape.groups) <= most


def _whole_arrays(part: LaunchPart) -> list[LaunchPart]:
    """A part, or two if its groups fill the array much better so.

    Groups share the array by a number that divides theirs.
    """
    groups = part.shape.groups
    most = min(groups, _groups_of_array(part.shape))
    together = max(count for count in range(1, most + 1) if groups % count == 0)
    if 2 * together > most or groups // together <= _MOST_BLOCKS:
        return [part]
    return _split_groups(part, groups // most * most)


def _split_groups(part: LaunchPart, count: int) -> list[LaunchPart]:
    """The first so many groups, and the others."""
    shape = part.shape
    ins, outs = shape.c_in // shape.groups, shape.c_out // shape.groups
    first, rest = (
        replace(shape, groups=some, c_in=some * ins, c_out=some * outs)
        for some in (count, shape.groups - count)
    )
    return [
        replace(part, shape=first),
        replace(
            part,
            shape=rest,
            first_channel=part.first_channel + first.c_out,
            first_input=part.first_input + first.c_in,
        ),
    ]


def _elems(shape: Shape) -> int:
    x = shape.batch * shape.c_in * prod(shape.size)
    return max(x, shape.batch * shape.c_out * prod(shape.out_sizes()))


def _halved(part: LaunchPart, most: int) -> list[LaunchPart]:
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
            if all(launch.shape.out_sizes()[axis] < count for launch in parts):
                return parts
    raise PlanError(
        f"{describe_shape(shape)} has {_elems(shape)} elements and nothing to split: offsets have"
        " 32 bits."
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


def _slice(part: LaunchPart, axis: int, first: int, end: int) -> LaunchPart:
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


def _at(part: LaunchPart, shape: Shape, axis: int, first: tuple[int, int]) -> LaunchPart:
    """A slice of a part that begins so much further along an axis of x and of y."""
    return replace(
        part,
        shape=shape,
        x_first=with_axis(part.x_first, axis, part.x_first[axis] + first[0]),
        y_first=with_axis(part.y_first, axis, part.y_first[axis] + first[1]),
    )

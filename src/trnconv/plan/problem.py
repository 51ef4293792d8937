"""Problem: a convolution as the planner sees it, with useless taps gone and idle axes folded.

Folding is a matter of strides, never of copies: a 1x1x1 convolution is one long row, a batch of
2-D images is a video without temporal taps, a batch of 1-D signals is one image. Groups become
blocks of channels, and a transposed convolution becomes phases: outputs that read the input alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from math import prod

from nkisim.machine import PARTITIONS
from trnconv._nki import NKIObject
from trnconv.geometry import (
    CIRCULAR,
    REFLECT,
    ZEROS,
    ConvShape,
    Modes,
    TransposedShape,
    Triple,
    with_axis,
)

Five = tuple[int, int, int, int, int]
Phase = tuple[tuple[int, int], ...]  # (shift, tap): where an output reads, and with which tap
Reads = tuple[tuple[Phase, ...], tuple[Phase, ...], tuple[Phase, ...]]
DEPTH, HEIGHT, WIDTH = 0, 1, 2
_IMAGE = 0  # place in x_strides and y_strides; channel and the three axes follow


@dataclass(frozen=True)
class Problem(NKIObject):
    """Sizes after folding, who reads what, and how far one step of a dimension is in HBM.

    Along an axis, output `phases * q + r` reads input `step * q + shift - pad` with `tap`, for each
    (shift, tap) of phase r. A forward convolution has one phase, a transposed one as many as its
    stride. Channels come in blocks that have nothing to do with each other.
    """

    images: int
    channels: int  # of the input
    c_in: int  # of one block
    c_out: int
    block_out: int  # output channels of one block
    size: Triple  # of the input
    out: Triple
    step: Triple
    phases: Triple
    reads: Reads
    pad: Triple
    modes: Modes  # what lies outside the input
    x_strides: Five  # image, channel, frame, row, column, in elements
    y_strides: Five
    pieces: tuple[int, ...] = ()  # frames of each tensor the input lies in; empty: one tensor

    def __hash__(self) -> int:
        """That of the fields, computed once: problems are keys of many caches."""
        known = self.__dict__.get("_hash")
        if known is None:
            known = hash(tuple(getattr(self, field.name) for field in fields(self)))
            object.__setattr__(self, "_hash", known)
        return int(known)

    def shifts(self, axis: int, outputs: Iterable[int]) -> tuple[int, ...]:
        """Input positions, relative to the first, that some outputs read."""
        phases, step = self.phases[axis], self.step[axis]
        read = {
            out // phases * step + shift
            for out in outputs
            for shift, _ in self.reads[axis][out % phases]
        }
        return tuple(sorted(read))

    def tap(self, axis: int, output: int, shift: int) -> int | None:
        """The tap with which an output reads a position; None if it does not."""
        group, phase = divmod(output, self.phases[axis])
        distance = shift - group * self.step[axis]
        return dict(self.reads[axis][phase]).get(distance)

    def advance(self, axis: int, outputs: int) -> int:
        """Input positions that a whole number of phases moves on."""
        return outputs // self.phases[axis] * self.step[axis]

    def reach(self, axis: int) -> int:
        """Input positions from the first to the last that the phases of one step read."""
        return 1 + max((shift for phase in self.reads[axis] for shift, _ in phase), default=0)

    def kernel(self, axis: int) -> int:
        """Taps along an axis that meet the input at all."""
        return len({tap for phase in self.reads[axis] for _, tap in phase})

    def positions(self) -> int:
        """Output positions of all images."""
        return self.images * prod(self.out)

    def x_elems(self) -> int:
        """Elements of the input."""
        return self.images * self.channels * prod(self.size)

    def y_elems(self) -> int:
        """Elements of the output."""
        return self.positions() * self.c_out

    def source(self, axis: int, position: int) -> int:
        """The input position whose value stands at a position of the padding."""
        size, mode = self.size[axis], self.modes[axis]
        if mode == CIRCULAR:
            return position % size
        if mode == REFLECT and size > 1:
            period = 2 * (size - 1)
            return (size - 1) - abs((size - 1) - position % period)
        return min(max(position, 0), size - 1)

    def piece_count(self) -> int:
        """Tensors the input lies in."""
        return max(1, len(self.pieces))

    def piece_of(self, frame: int) -> tuple[int, int]:
        """The tensor a frame of the input lies in, and its number there."""
        for piece, frames in enumerate(self.pieces):
            if frame < frames:
                return piece, frame
            frame -= frames
        return 0, frame

    def piece_strides(self, piece: int) -> Five:
        """Strides of one of the tensors the input lies in."""
        if not self.pieces:
            return self.x_strides
        frame = self.size[HEIGHT] * self.size[WIDTH]
        channel = self.pieces[piece] * frame
        return (self.channels * channel, channel, frame, self.size[WIDTH], 1)

    def first_channel_read(self, out_channel: int) -> int:
        """The first input channel of the block that an output channel belongs to."""
        return out_channel // self.block_out * self.c_in


def fold(shape: ConvShape | TransposedShape, pieces: tuple[int, ...] = ()) -> Problem:
    """The same sums with fewer axes: batches and tapless axes become rows, frames or columns.

    `pieces` are the frames of the tensors that the input lies in, one after the other.
    """
    problem = _transposed(shape) if isinstance(shape, TransposedShape) else _forward(shape)
    problem = _fold_rows_into_columns(problem)
    if len(pieces) > 1:
        return replace(problem, pieces=pieces)
    problem = _fold_frames_into_columns(problem)
    return _fold_images(problem)


def _forward(shape: ConvShape) -> Problem:
    cut = [_forward_axis(shape, axis) for axis in range(3)]
    return replace(
        _bare(shape, shape.out_sizes()),
        step=shape.stride,
        reads=(cut[0][0], cut[1][0], cut[2][0]),
        pad=(cut[0][1], cut[1][1], cut[2][1]),
        modes=shape.modes,
    )


def _bare(shape: ConvShape | TransposedShape, out: Triple) -> Problem:
    """Sizes and strides; nothing is read yet."""
    merged = _merged_groups(shape.c_in // shape.groups, shape.c_out // shape.groups, shape.groups)
    return Problem(
        images=shape.batch,
        channels=shape.c_in,
        c_in=shape.c_in // shape.groups * merged,
        c_out=shape.c_out,
        block_out=shape.c_out // shape.groups * merged,
        size=shape.size,
        out=out,
        step=(1, 1, 1),
        phases=(1, 1, 1),
        reads=((), (), ()),
        pad=(0, 0, 0),
        modes=(ZEROS, ZEROS, ZEROS),
        x_strides=_row_major(shape.c_in, shape.size),
        y_strides=_row_major(shape.c_out, out),
    )


def _merged_groups(c_in: int, c_out: int, groups: int) -> int:
    """Groups that share the array, side by side on its diagonal: as many as fit, and divide."""
    most = max(1, PARTITIONS // max(c_in, c_out))
    return max(count for count in range(1, min(most, groups) + 1) if groups % count == 0)


def _forward_axis(shape: ConvShape, axis: int) -> tuple[tuple[Phase, ...], int]:
    """Who reads what along an axis, and the padding before it; taps that only meet zeros go."""
    dilation, pad = shape.dilation[axis], shape.pad_before[axis]
    taps = list(range(shape.kernel[axis]))
    if shape.modes[axis] == ZEROS:
        taps = [tap for tap in taps if _meets_input(shape, axis, tap)] or taps[:1]
    first = taps[0]
    phase = tuple((dilation * (tap - first), tap) for tap in range(first, taps[-1] + 1))
    return (phase,), pad - dilation * first


def _meets_input(shape: ConvShape, axis: int, tap: int) -> bool:
    shift = tap * shape.dilation[axis] - shape.pad_before[axis]
    stride, size = shape.stride[axis], shape.size[axis]
    first_out = max(0, -(shift // stride))  # the first output at or beyond input position 0
    return first_out < shape.out_size(axis) and first_out * stride + shift < size


def _transposed(shape: TransposedShape) -> Problem:
    """Phases of a transposed convolution; the output is rounded up to whole steps."""
    cut = [_transposed_axis(shape, axis) for axis in range(3)]
    return replace(
        _bare(shape, shape.whole_out()),
        phases=shape.stride,
        reads=(cut[0][0], cut[1][0], cut[2][0]),
        pad=(cut[0][1], cut[1][1], cut[2][1]),
    )


def _transposed_axis(shape: TransposedShape, axis: int) -> tuple[tuple[Phase, ...], int]:
    """out = stride * in + dilation * tap - pad, solved for in, for every out modulo the stride."""
    stride, dilation, pad = shape.stride[axis], shape.dilation[axis], shape.pad_before[axis]
    read = [
        [
            ((phase + pad - dilation * tap) // stride, tap)
            for tap in range(shape.kernel[axis])
            if (phase + pad - dilation * tap) % stride == 0
        ]
        for phase in range(stride)
    ]
    first = min((shift for phase in read for shift, _ in phase), default=0)
    phases = [tuple(sorted((shift - first, tap) for shift, tap in phase)) for phase in read]
    return tuple(phases), -first


def _row_major(channels: int, size: Triple) -> Five:
    frame = size[1] * size[2]
    return (channels * size[0] * frame, size[0] * frame, frame, size[2], 1)


def _is_idle(problem: Problem, axis: int) -> bool:
    """No taps, no stride, no padding: outputs are in step with inputs."""
    return (
        problem.reads[axis] == problem.reads[axis][:1]
        and len(problem.reads[axis][0]) == 1
        and problem.step[axis] == 1
        and problem.pad[axis] == problem.reads[axis][0][0][0]
        and problem.out[axis] == problem.size[axis]
    )


def _fold_rows_into_columns(problem: Problem) -> Problem:
    if not (_is_idle(problem, HEIGHT) and _is_idle(problem, WIDTH)):
        return problem
    columns = problem.size[HEIGHT] * problem.size[WIDTH]
    return replace(
        problem,
        size=(problem.size[DEPTH], 1, columns),
        out=(problem.out[DEPTH], 1, columns),
    )


def _fold_frames_into_columns(problem: Problem) -> Problem:
    rows_are_gone = problem.size[HEIGHT] == 1 and _is_idle(problem, HEIGHT)
    if not (rows_are_gone and _is_idle(problem, DEPTH) and _is_idle(problem, WIDTH)):
        return problem
    columns = problem.size[DEPTH] * problem.size[WIDTH]
    return replace(problem, size=(1, 1, columns), out=(1, 1, columns))


def _fold_images(problem: Problem) -> Problem:
    if problem.images == 1:
        return problem
    for axis in (HEIGHT, DEPTH):
        if problem.size[axis] == 1 and _is_idle(problem, axis):
            return replace(
                problem,
                images=1,
                size=with_axis(problem.size, axis, problem.images),
                out=with_axis(problem.out, axis, problem.images),
                x_strides=_with_image_stride(problem.x_strides, 2 + axis),
                y_strides=_with_image_stride(problem.y_strides, 2 + axis),
            )
    return problem


def _with_image_stride(strides: Five, place: int) -> Five:
    listed = list(strides)
    listed[place] = strides[_IMAGE]
    return (listed[0], listed[1], listed[2], listed[3], listed[4])

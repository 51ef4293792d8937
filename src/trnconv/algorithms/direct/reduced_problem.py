"""Problem: a convolution as the planner sees it, with useless taps gone and idle axes folded.

Folding is a matter of strides, never of copies: a 1x1x1 convolution is one long row, a batch of
2-D images is a video without temporal taps, a batch of 1-D signals is one image. Groups become
blocks of channels, and transposed or upsampled convolutions phases: outputs that read alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import prod

from nkisim.machine import PARTITIONS
from trnconv._nki import NKIObject
from trnconv.algorithms.direct.axis_reads import (
    AxisReads,
    Merged,
    Phase,
    forward_axis,
    forward_phases,
    transposed_axis,
)
from trnconv.geometry import (
    NO_MODES,
    ConvShape,
    Modes,
    TransposedShape,
    Triple,
    with_axis,
)
from trnconv.padding_modes import padding_source
from trnconv.problem.conv_problem import ConvProblem

Five = tuple[int, int, int, int, int]
Reads = tuple[tuple[Phase, ...], tuple[Phase, ...], tuple[Phase, ...]]
DEPTH, HEIGHT, WIDTH = 0, 1, 2
_IMAGE = 0  # place in x_strides and y_strides; channel and the three axes follow


@dataclass(frozen=True)
class ReducedProblem(NKIObject):
    """Sizes after folding, who reads what, and how far one step of a dimension is in HBM.

    Along an axis, output `phases * q + r` reads input `step * q + shift - pad` with `tap`, for each
    (shift, tap) of phase r. A forward convolution has one phase, a transposed one as many as its
    stride, an upsampled one as many as positions are repeated. Where taps are merged, `tap` is an
    effective tap: the sum of the taps that `merged` lists for it. Channels come in blocks that have
    nothing to do with each other.
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
    merged: tuple[Merged, Merged, Merged] = ((), (), ())  # by axis; empty: taps as they are

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
        return self._reaches[axis]

    @cached_property
    def _reaches(self) -> tuple[int, ...]:
        return tuple(
            1 + max((shift for phase in phases for shift, _ in phase), default=0)
            for phases in self.reads
        )

    def kernel(self, axis: int) -> int:
        """Taps along an axis that meet the input at all, merged ones of all phases counted once."""
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
        return padding_source(self.modes[axis], self.size[axis], position)

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


def fold(
    shape: ConvShape | TransposedShape, pieces: tuple[int, ...] = (), *, every_tap: bool = False
) -> ReducedProblem:
    """The same sums with fewer axes: batches and tapless axes become rows, frames or columns.

    `pieces` are the frames of the tensors that the input lies in, one after the other. With
    `every_tap`, who reads what does not depend on the size of the input.
    """
    if isinstance(shape, TransposedShape):
        reduced = _transposed(shape)
    else:
        reduced = _forward(shape, every_tap=every_tap)
    reduced = _fold_rows_into_columns(reduced)
    if len(pieces) > 1:
        return replace(reduced, pieces=pieces)
    reduced = _fold_frames_into_columns(reduced)
    return _fold_images(reduced)


def reduced_problem_of(problem: ConvProblem) -> ReducedProblem:
    """What a problem asks for, folded."""
    return fold(problem.shape, problem.pieces, every_tap=problem.reproducible)


def stored_out(shape: ConvShape | TransposedShape) -> Triple:
    """Output positions that a kernel writes.

    They are the output's own, or more: rows and columns are rounded up to whole phases, and so are
    frames of a transposed convolution. Whoever launches it crops the end.
    """
    if isinstance(shape, TransposedShape):
        return shape.whole_out()
    frames, rows, columns = shape.out_sizes()
    high, wide = forward_phases(shape, HEIGHT), forward_phases(shape, WIDTH)
    return (frames, -(-rows // high) * high, -(-columns // wide) * wide)


def _forward(shape: ConvShape, *, every_tap: bool) -> ReducedProblem:
    axes = [forward_axis(shape, axis, every_tap=every_tap) for axis in range(3)]
    return replace(
        _read(_bare(shape), axes),
        step=shape.stride,
        modes=(axes[0].mode, axes[1].mode, axes[2].mode),
        merged=(axes[0].merged, axes[1].merged, axes[2].merged),
    )


def _transposed(shape: TransposedShape) -> ReducedProblem:
    return _read(_bare(shape), [transposed_axis(shape, axis) for axis in range(3)])


def _read(bare: ReducedProblem, axes: list[AxisReads]) -> ReducedProblem:
    depth, height, width = axes
    return replace(
        bare,
        phases=(len(depth.phases), len(height.phases), len(width.phases)),
        reads=(depth.phases, height.phases, width.phases),
        pad=(depth.pad, height.pad, width.pad),
    )


def _bare(shape: ConvShape | TransposedShape) -> ReducedProblem:
    """Sizes and strides; nothing is read yet."""
    out = stored_out(shape)
    merged = _merged_groups(shape.c_in // shape.groups, shape.c_out // shape.groups, shape.groups)
    return ReducedProblem(
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
        modes=NO_MODES,
        x_strides=_row_major(shape.c_in, shape.size),
        y_strides=_row_major(shape.c_out, out),
    )


def _merged_groups(c_in: int, c_out: int, groups: int) -> int:
    """Groups that share the array, side by side on its diagonal: as many as fit, and divide."""
    most = max(1, PARTITIONS // max(c_in, c_out))
    return max(count for count in range(1, min(most, groups) + 1) if groups % count == 0)


def _row_major(channels: int, size: Triple) -> Five:
    frame = size[1] * size[2]
    return (channels * size[0] * frame, size[0] * frame, frame, size[2], 1)


def _is_idle(reduced: ReducedProblem, axis: int) -> bool:
    """No taps, no stride, no padding: outputs are in step with inputs."""
    return (
        reduced.reads[axis] == reduced.reads[axis][:1]
        and len(reduced.reads[axis][0]) == 1
        and reduced.step[axis] == 1
        and reduced.pad[axis] == reduced.reads[axis][0][0][0]
        and reduced.out[axis] == reduced.size[axis]
    )


def _fold_rows_into_columns(reduced: ReducedProblem) -> ReducedProblem:
    if not (_is_idle(reduced, HEIGHT) and _is_idle(reduced, WIDTH)):
        return reduced
    columns = reduced.size[HEIGHT] * reduced.size[WIDTH]
    return replace(
        reduced,
        size=(reduced.size[DEPTH], 1, columns),
        out=(reduced.out[DEPTH], 1, columns),
    )


def _fold_frames_into_columns(reduced: ReducedProblem) -> ReducedProblem:
    rows_are_gone = reduced.size[HEIGHT] == 1 and _is_idle(reduced, HEIGHT)
    if not (rows_are_gone and _is_idle(reduced, DEPTH) and _is_idle(reduced, WIDTH)):
        return reduced
    columns = reduced.size[DEPTH] * reduced.size[WIDTH]
    return replace(reduced, size=(1, 1, columns), out=(1, 1, columns))


def _fold_images(reduced: ReducedProblem) -> ReducedProblem:
    if reduced.images == 1:
        return reduced
    for axis in (HEIGHT, DEPTH):
        if reduced.size[axis] == 1 and _is_idle(reduced, axis):
            return replace(
                reduced,
                images=1,
                size=with_axis(reduced.size, axis, reduced.images),
                out=with_axis(reduced.out, axis, reduced.images),
                x_strides=_with_image_stride(reduced.x_strides, 2 + axis),
                y_strides=_with_image_stride(reduced.y_strides, 2 + axis),
            )
    return reduced


def _with_image_stride(strides: Five, place: int) -> Five:
    listed = list(strides)
    listed[place] = strides[_IMAGE]
    return (listed[0], listed[1], listed[2], listed[3], listed[4])

"""Problem: a convolution as the planner sees it, with useless taps gone and idle axes folded.

Folding is a matter of strides, never of copies: a 1x1x1 convolution is one long row, a batch of
2-D images is a video without temporal taps, a batch of 1-D signals is one image.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trnconv._nki import NKIObject
from trnconv.geometry import ConvShape, Triple

Five = tuple[int, int, int, int, int]
DEPTH, HEIGHT, WIDTH = 0, 1, 2
_IMAGE, _CHANNEL = 0, 1  # places in x_strides and y_strides; the three axes follow


@dataclass(frozen=True)
class Problem(NKIObject):
    """Sizes after folding, and how far one step of each dimension is in HBM, in elements."""

    images: int
    c_in: int
    c_out: int
    size: Triple  # of the input
    out: Triple
    kernel: Triple
    stride: Triple
    dilation: Triple
    pad: Triple  # before each axis; behind it, whatever the output needs
    x_strides: Five  # image, channel, frame, row, column
    y_strides: Five
    first_tap: Triple  # taps before it only ever meet padding

    def reach(self, axis: int) -> int:
        """Input positions from the first to the last tap of one output."""
        return self.dilation[axis] * (self.kernel[axis] - 1) + 1

    def taps(self) -> int:
        """Kernel positions that meet the input at all."""
        return self.kernel[0] * self.kernel[1] * self.kernel[2]

    def positions(self) -> int:
        """Output positions of all images."""
        return self.images * self.out[0] * self.out[1] * self.out[2]

    def x_elems(self) -> int:
        """Elements of the input."""
        return self.images * self.c_in * self.size[0] * self.size[1] * self.size[2]

    def y_elems(self) -> int:
        """Elements of the output."""
        return self.positions() * self.c_out


def fold(shape: ConvShape) -> Problem:
    """The same sums with fewer axes: batches and tapless axes become rows, frames or columns."""
    problem = _without_useless_taps(_as_problem(shape))
    problem = _fold_rows_into_columns(problem)
    problem = _fold_frames_into_columns(problem)
    return _fold_images(problem)


def _as_problem(shape: ConvShape) -> Problem:
    size, out = shape.size, shape.out_sizes()
    return Problem(
        images=shape.batch,
        c_in=shape.c_in,
        c_out=shape.c_out,
        size=size,
        out=out,
        kernel=shape.kernel,
        stride=shape.stride,
        dilation=shape.dilation,
        pad=shape.pad_before,
        x_strides=_row_major(shape.c_in, size),
        y_strides=_row_major(shape.c_out, out),
        first_tap=(0, 0, 0),
    )


def _row_major(channels: int, size: Triple) -> Five:
    frame = size[1] * size[2]
    return (channels * size[0] * frame, size[0] * frame, frame, size[2], 1)


def _without_useless_taps(problem: Problem) -> Problem:
    """Taps at the ends of the kernel that no output ever finds inside the input are dropped."""
    for axis in range(3):
        met = [tap for tap in range(problem.kernel[axis]) if _meets_input(problem, axis, tap)]
        first, last = (met[0], met[-1]) if met else (0, 0)
        problem = replace(
            problem,
            kernel=_with(problem.kernel, axis, last - first + 1),
            pad=_with(problem.pad, axis, problem.pad[axis] - first * problem.dilation[axis]),
            first_tap=_with(problem.first_tap, axis, first),
        )
    return problem


def _meets_input(problem: Problem, axis: int, tap: int) -> bool:
    shift = tap * problem.dilation[axis] - problem.pad[axis]
    stride, size = problem.stride[axis], problem.size[axis]
    first_out = max(0, -(shift // stride))  # the first output at or beyond input position 0
    return first_out < problem.out[axis] and first_out * stride + shift < size


def _is_idle(problem: Problem, axis: int) -> bool:
    """No taps, no stride, no padding: outputs are in step with inputs."""
    return (
        problem.kernel[axis] == 1
        and problem.stride[axis] == 1
        and problem.pad[axis] == 0
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
            place = 2 + axis
            return replace(
                problem,
                images=1,
                size=_with(problem.size, axis, problem.images),
                out=_with(problem.out, axis, problem.images),
                x_strides=_with_stride(problem.x_strides, place),
                y_strides=_with_stride(problem.y_strides, place),
            )
    return problem


def _with_stride(strides: Five, place: int) -> Five:
    listed = list(strides)
    listed[place] = strides[_IMAGE]
    return (listed[0], listed[1], listed[2], listed[3], listed[4])


def _with(triple: Triple, axis: int, value: int) -> Triple:
    listed = list(triple)
    listed[axis] = value
    return (listed[0], listed[1], listed[2])

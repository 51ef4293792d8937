"""Question: a convolution to be planned, with all that decides how."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from nkisim.machine import Machine
from trnconv.ask.ends import PLAIN_END, Epilogue
from trnconv.ask.limits import DEFAULT_BUDGET
from trnconv.ask.policy import DEFAULT_POLICY, DIRECT, Policy
from trnconv.ask.starts import PLAIN_START, Prologue
from trnconv.geometry import ONCE, ConvShape, TransposedShape, with_axis

Shape = ConvShape | TransposedShape
OUTPUT, FILTER_GRADIENT = "output", "filter gradient"


@dataclass(frozen=True)
class Share:
    """What one of two cores computes: parts of the output, first and end; None: all.

    `rows` and `columns` are those of the problem that a form makes of the shape.
    """

    rows: tuple[int, int]
    channels: tuple[int, int]
    columns: tuple[int, int] | None = None
    frames: tuple[int, int] | None = None
    lines: tuple[int, int] | None = None  # images x channels of a depthwise convolution
    inputs: tuple[int, int] | None = None  # of a filter gradient: input channels of a pack
    strips: tuple[int, int] | None = None  # of a filter gradient: halves of strips of its columns


@dataclass(frozen=True)
class Question:
    """A convolution, its start and end, how its input lies, where it runs and what is accepted."""

    shape: Shape
    machine: Machine
    dtype: str = "bfloat16"
    pieces: tuple[int, ...] = ()  # frames of each tensor that x lies in; empty: one tensor
    end: Epilogue = PLAIN_END
    reproducible: bool = False
    budget: int = DEFAULT_BUDGET  # static instructions of a launch
    policy: Policy = DEFAULT_POLICY
    exact: bool = False  # an Inf or NaN of x stays with the outputs whose taps meet it
    asks: str = OUTPUT  # or the gradient of the filters and of the bias, from x and dy
    share: Share | None = None  # of one of two cores; None: all of it
    forms: tuple[str, ...] = ()  # names of those that may compute it; empty: any
    start: Prologue = PLAIN_START


def without_norm(question: Question) -> Question:
    """The same convolution, its outputs as they are."""
    return replace(question, end=replace(question.end, norm=None))


def of_one_frame(question: Question) -> Question:
    """The convolution that makes a single frame of a single image, in one tensor."""
    shape = question.shape
    if isinstance(shape, TransposedShape):
        return question
    reach = shape.dilation[0] * (shape.kernel[0] - 1) + 1
    alone = replace(
        shape,
        batch=1,
        size=with_axis(shape.size, 0, -(-(reach + shape.skip[0]) // shape.upsample[0])),
        pad_before=with_axis(shape.pad_before, 0, 0),
        pad_after=with_axis(shape.pad_after, 0, 0),
    )
    return replace(question, shape=alone, pieces=())


def with_plain_shape(question: Question) -> Question:
    """The same as a plain convolution of turned filters, if a fast form may then compute it.

    Large transposed convolutions of stride 1, such as input gradients: `turned_filters` is what
    such a question asks of its operands.
    """
    shape, policy = question.shape, question.policy
    if policy.accuracy == DIRECT or not isinstance(shape, TransposedShape):
        return question
    plain = _as_convolution(shape) if shape.macs() >= policy.least_macs else None
    return question if plain is None else replace(question, shape=plain)


def _as_convolution(shape: TransposedShape) -> ConvShape | None:
    """The plain convolution that computes the same with every filter's taps in reverse order.

    None where there is none: with strides, or where more is cropped than the taps reach.
    """
    reach = [d * (k - 1) for d, k in zip(shape.dilation, shape.kernel, strict=True)]
    before = [r - pad for r, pad in zip(reach, shape.pad_before, strict=True)]
    after = [
        out - size + r - b
        for out, size, r, b in zip(shape.out, shape.size, reach, before, strict=True)
    ]
    if shape.stride != ONCE or min(*before, *after) < 0:
        return None
    return ConvShape(
        batch=shape.batch,
        c_in=shape.c_in,
        c_out=shape.c_out,
        size=shape.size,
        kernel=shape.kernel,
        dilation=shape.dilation,
        pad_before=(before[0], before[1], before[2]),
        pad_after=(after[0], after[1], after[2]),
        groups=shape.groups,
    )


def turned_filters(w: Any) -> Any:
    """Filters with their taps in reverse order, of NumPy or of torch."""
    for axis in range(2, len(w.shape)):
        w = w[(*[slice(None)] * axis, list(range(w.shape[axis]))[::-1])]
    return w

"""ConvProblem: a convolution to be planned, with all that decides how."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from nkisim.machine import Machine
from trnconv.geometry import ONCE, ConvShape, TransposedShape, with_axis
from trnconv.problem.epilogue import PLAIN_EPILOGUE, Epilogue
from trnconv.problem.limits import DEFAULT_BUDGET
from trnconv.problem.policy import DEFAULT_POLICY, DIRECT, Policy
from trnconv.problem.prologue import PLAIN_PROLOGUE, Prologue

Shape = ConvShape | TransposedShape
FORWARD, WEIGHT_GRADIENT = "output", "weight gradient"


@dataclass(frozen=True)
class CoreSplit:
    """What one of two cores computes: parts of the output, first and end; None: all.

    `rows` and `columns` are those of the problem that an algorithm makes of the shape.
    """

    rows: tuple[int, int]
    channels: tuple[int, int]
    columns: tuple[int, int] | None = None
    frames: tuple[int, int] | None = None
    lines: tuple[int, int] | None = None  # images x channels of a depthwise convolution
    inputs: tuple[int, int] | None = None  # of a weight gradient: input channels of a pack
    strips: tuple[int, int] | None = None  # of a weight gradient: halves of strips of its columns


@dataclass(frozen=True)
class ConvProblem:
    """A convolution, its start and end, how its input lies, where it runs and what is accepted."""

    shape: Shape
    machine: Machine
    dtype: str = "bfloat16"
    pieces: tuple[int, ...] = ()  # frames of each tensor that x lies in; empty: one tensor
    epilogue: Epilogue = PLAIN_EPILOGUE
    reproducible: bool = False
    budget: int = DEFAULT_BUDGET  # static instructions of a launch
    policy: Policy = DEFAULT_POLICY
    exact: bool = False  # an Inf or NaN of x stays with the outputs whose taps meet it
    direction: str = FORWARD  # or the gradient of the filters and of the bias, from x and dy
    core_split: CoreSplit | None = None  # of one of two cores; None: all of it
    algorithms: tuple[str, ...] = ()  # names of those that may compute it; empty: any
    prologue: Prologue = PLAIN_PROLOGUE


def without_norm(problem: ConvProblem) -> ConvProblem:
    """The same convolution, its outputs as they are."""
    return replace(problem, epilogue=replace(problem.epilogue, norm=None))


def of_one_frame(problem: ConvProblem) -> ConvProblem:
    """The convolution that makes a single frame of a single image, in one tensor."""
    shape = problem.shape
    if isinstance(shape, TransposedShape):
        return problem
    reach = shape.dilation[0] * (shape.kernel[0] - 1) + 1
    alone = replace(
        shape,
        batch=1,
        size=with_axis(shape.size, 0, -(-(reach + shape.skip[0]) // shape.upsample[0])),
        pad_before=with_axis(shape.pad_before, 0, 0),
        pad_after=with_axis(shape.pad_after, 0, 0),
    )
    return replace(problem, shape=alone, pieces=())


def with_plain_shape(problem: ConvProblem) -> ConvProblem:
    """The same as a plain convolution of turned filters, if a fast algorithm may then compute it.

    Large transposed convolutions of stride 1, such as input gradients: `flipped_filters` is what
    such a problem asks of its operands.
    """
    shape, policy = problem.shape, problem.policy
    if policy.accuracy == DIRECT or not isinstance(shape, TransposedShape):
        return problem
    plain = _as_convolution(shape) if shape.macs() >= policy.least_macs else None
    return problem if plain is None else replace(problem, shape=plain)


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


def flipped_filters(w: Any) -> Any:
    """Filters with their taps in reverse order, of NumPy or of torch."""
    for axis in range(2, len(w.shape)):
        w = w[(*[slice(None)] * axis, list(range(w.shape[axis]))[::-1])]
    return w

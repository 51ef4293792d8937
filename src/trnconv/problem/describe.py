"""A convolution in the words of the call that asked for it."""

from __future__ import annotations

from trnconv.geometry import NO_MODES, ONCE, ConvShape, Triple
from trnconv.problem.conv_problem import FORWARD, ConvProblem, Shape

_NONE: Triple = (0, 0, 0)


def describe_call(problem: ConvProblem) -> str:
    """The convolution, its type and its machine."""
    wanted = "" if problem.direction == FORWARD else f"the {problem.direction} of "
    words = describe_shape(problem.shape)
    return f"{wanted}{words}, {problem.dtype}, on {problem.machine.name}"


def describe_shape(shape: Shape) -> str:
    """The input, the weight and every argument that is not its default, as torch takes them."""
    rank = _rank(shape)
    if isinstance(shape, ConvShape):
        name, weight = "conv", (shape.c_out, shape.c_in // shape.groups)
    else:
        name, weight = "conv_transpose", (shape.c_in, shape.c_out // shape.groups)
    x = [shape.batch, shape.c_in, *shape.size[3 - rank :]]
    w = [*weight, *shape.kernel[3 - rank :]]
    written = [f"input {x}", f"weight {w}", *_arguments(shape, rank)]
    return f"{name}{rank}d({', '.join(written)})"


def _rank(shape: Shape) -> int:
    """The fewest axes that describe it: leading ones where nothing happens are left out."""
    own = (shape.size, shape.kernel, shape.stride, shape.dilation, shape.out_sizes())
    idle = [all(numbers[axis] == 1 for numbers in own) for axis in range(2)]
    return 1 if all(idle) else 2 if idle[0] else 3


def _arguments(shape: Shape, rank: int) -> list[str]:
    before = shape.pad_before
    after = shape.pad_after if isinstance(shape, ConvShape) else before
    written = []
    if shape.stride != ONCE:
        written.append(f"stride={_short(shape.stride, rank)}")
    if before != _NONE or after != _NONE:
        sides = zip(before[3 - rank :], after[3 - rank :], strict=True)
        pads = _short(before, rank) if before == after else list(sides)
        written.append(f"padding={pads}")
    if shape.dilation != ONCE:
        written.append(f"dilation={_short(shape.dilation, rank)}")
    if shape.groups > 1:
        written.append(f"groups={shape.groups}")
    if not isinstance(shape, ConvShape):
        return [*written, f"output {list(shape.out[3 - rank :])}"]
    if shape.modes != NO_MODES:
        modes = dict.fromkeys(shape.modes[3 - rank :])
        written.append(f"padding_mode={'/'.join(modes)}")
    if shape.upsample != ONCE:
        written.append(f"read upsampled {_short(shape.upsample, rank)} times")
    return written


def _short(triple: Triple, rank: int) -> int | tuple[int, ...]:
    own = triple[3 - rank :]
    return own[0] if len(set(own)) == 1 else own

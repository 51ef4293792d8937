"""ConvShape: a convolution problem in integers. 1-D and 2-D are 3-D with leading sizes of 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import SupportsIndex

from trnconv._nki import NKIObject
from trnconv.errors import ShapeError, UnsupportedError
from trnconv.padding_modes import MODES, padding_source, require_mode

Triple = tuple[int, int, int]
Axes = int | Sequence[int]
Padding = int | str | Sequence[int | tuple[int, int]]

AXES = ("depth", "height", "width")
ZEROS, REPLICATE, REFLECT, CIRCULAR = MODES
Modes = tuple[str, str, str]
NO_MODES: Modes = (ZEROS, ZEROS, ZEROS)
ONCE: Triple = (1, 1, 1)


def with_axis(triple: Triple, axis: int, value: int) -> Triple:
    """The same with another number for one axis."""
    listed = list(triple)
    listed[axis] = value
    return (listed[0], listed[1], listed[2])


@dataclass(frozen=True)
class ConvShape(NKIObject):
    """A dense convolution: y[n, o, p] = sum over t, i of w[o, i, t] * x[n, i, in_position(p, t)].

    t runs over the taps, i over the input channels, p over the output positions. Sizes are
    (depth, height, width). Padding may differ before and after an axis.

    With `upsample`, the convolution reads its input upsampled (nearest neighbour): each position
    so many times in a row, less the first `skip` of them, then the padding. A video model that
    doubles its frames but not the first reads frames 0 1 1 2 2: upsample 2, skip 1.
    A negative `pad_after` leaves out copies of the last position: what a band of rows reads that
    ends in the middle of a repeated one.
    """

    batch: int
    c_in: int
    c_out: int
    size: Triple  # of the input
    kernel: Triple
    stride: Triple = (1, 1, 1)
    dilation: Triple = (1, 1, 1)
    pad_before: Triple = (0, 0, 0)
    pad_after: Triple = (0, 0, 0)
    groups: int = 1
    modes: Modes = NO_MODES  # what the padding of each axis holds
    upsample: Triple = ONCE
    skip: Triple = (0, 0, 0)

    def __post_init__(self) -> None:
        _require_positive(self)
        _require_groups(self)
        _require_modes(self)
        _require_upsampling(self)
        for axis in range(3):
            if self.out_size(axis) < 1:
                extent = self.dilation[axis] * (self.kernel[axis] - 1) + 1
                raise ShapeError(
                    f"a kernel that reaches over {extent} elements of the {AXES[axis]} axis: the"
                    f" padded input has {self.padded_size(axis)}. Use a smaller kernel or more"
                    " padding."
                )

    def padded_size(self, axis: int) -> int:
        """Positions along an axis that the convolution reads, repeated ones and padding too."""
        repeated = self.size[axis] * self.upsample[axis] - self.skip[axis]
        return repeated + self.pad_before[axis] + self.pad_after[axis]

    def out_size(self, axis: int) -> int:
        """Output positions along an axis."""
        reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1
        return (self.padded_size(axis) - reach) // self.stride[axis] + 1

    def out_sizes(self) -> Triple:
        """Output positions, (depth, height, width)."""
        return (self.out_size(0), self.out_size(1), self.out_size(2))

    def in_position(self, axis: int, out: int, tap: int) -> int:
        """The input position one tap of one output reads; outside 0..size-1 it is padding."""
        read = out * self.stride[axis] + tap * self.dilation[axis] - self.pad_before[axis]
        return (read + self.skip[axis]) // self.upsample[axis]

    def source(self, axis: int, position: int) -> int:
        """Where the value of a position lies, which may be padding; -1 if it is a zero."""
        return padding_source(self.modes[axis], self.size[axis], position)

    def repeats(self, axis: int) -> bool:
        """Whether an axis is padded with values of its own."""
        return self.modes[axis] != ZEROS and self.pad_before[axis] + self.pad_after[axis] > 0

    def taps(self) -> int:
        """Kernel positions."""
        return self.kernel[0] * self.kernel[1] * self.kernel[2]

    def positions(self) -> int:
        """Output positions of one image."""
        return self.out_size(0) * self.out_size(1) * self.out_size(2)

    def macs(self) -> int:
        """Multiply-adds over the upsampled input, padding positions included, as usual."""
        per_output = self.c_in // self.groups * self.taps()
        return self.batch * self.c_out * per_output * self.positions()


@dataclass(frozen=True)
class TransposedShape(NKIObject):
    """A transposed convolution: x[i, q] is added to y[o, stride * q + dilation * t - pad].

    It has no padding of its own: `pad_before` and the size of the output say what is cropped.
    """

    batch: int
    c_in: int
    c_out: int
    size: Triple  # of the input
    out: Triple
    kernel: Triple
    stride: Triple = (1, 1, 1)
    dilation: Triple = (1, 1, 1)
    pad_before: Triple = (0, 0, 0)
    groups: int = 1

    def __post_init__(self) -> None:
        _require_positive(self)
        _require_groups(self)

    def out_sizes(self) -> Triple:
        """Output positions, (depth, height, width)."""
        return self.out

    def whole_out(self) -> Triple:
        """Output positions rounded up to whole steps: what a kernel computes."""
        sizes = [-(-n // s) * s for n, s in zip(self.out, self.stride, strict=True)]
        return (sizes[0], sizes[1], sizes[2])

    def macs(self) -> int:
        """Multiply-adds, those that are cropped included, as usual."""
        size, kernel = self.size, self.kernel
        taps, positions = kernel[0] * kernel[1] * kernel[2], size[0] * size[1] * size[2]
        return self.batch * self.c_in * (self.c_out // self.groups) * taps * positions


def transposed_shape(
    x_shape: Sequence[int],
    w_shape: Sequence[int],
    *,
    stride: Axes = 1,
    padding: Axes = 0,
    output_padding: Axes = 0,
    groups: int = 1,
    dilation: Axes = 1,
) -> TransposedShape:
    """The problem torch's conv_transpose arguments describe; w is [C_in, C_out / groups, ...]."""
    rank = _same_rank(x_shape, w_shape)
    if groups < 1 or w_shape[0] != x_shape[1] or x_shape[1] % groups:
        raise ShapeError(
            f"the input has {x_shape[1]} channels in {groups} groups, the weight has {w_shape[0]}:"
            " both must be the same, and a multiple of the groups."
        )
    kernel = lifted(tuple(w_shape[2:]), 1)
    strides = lifted(_per_axis("stride", stride, rank), 1)
    dilations = lifted(_per_axis("dilation", dilation, rank), 1)
    pads = lifted(_per_axis("padding", padding, rank), 0)
    more = lifted(_per_axis("output_padding", output_padding, rank), 0)
    size = lifted(tuple(x_shape[2:]), 1)
    bare = TransposedShape(
        batch=x_shape[0],
        c_in=x_shape[1],
        c_out=w_shape[1] * groups,
        size=size,
        out=(1, 1, 1),
        kernel=kernel,
        stride=strides,
        dilation=dilations,
        pad_before=pads,
        groups=groups,
    )
    for axis in range(3):
        most = max(strides[axis], dilations[axis]) - 1
        if not 0 <= more[axis] <= most:
            raise ShapeError(
                f"output_padding {more[axis]} along {AXES[axis]}: at most {most}, less than the"
                " stride or the dilation."
            )
    out = [
        (size[a] - 1) * strides[a] - 2 * pads[a] + dilations[a] * (kernel[a] - 1) + more[a] + 1
        for a in range(3)
    ]
    if min(out) < 1:
        raise ShapeError(f"a transposed convolution with outputs of {out}: crop (pad) less.")
    return replace(bare, out=(out[0], out[1], out[2]))


def input_gradient_shape(shape: ConvShape) -> TransposedShape:
    """The convolution that takes the gradient of an output to the gradient of the input."""
    require_not_upsampled(shape, "input gradient")
    return TransposedShape(
        batch=shape.batch,
        c_in=shape.c_out,
        c_out=shape.c_in,
        size=shape.out_sizes(),
        out=shape.size,
        kernel=shape.kernel,
        stride=shape.stride,
        dilation=shape.dilation,
        pad_before=shape.pad_before,
        groups=shape.groups,
    )


def _require_groups(shape: ConvShape | TransposedShape) -> None:
    if shape.groups < 1 or shape.c_in % shape.groups or shape.c_out % shape.groups:
        raise ShapeError(
            f"{shape.groups} groups of {shape.c_in} input and {shape.c_out} output channels: both"
            " must be multiples of the number of groups."
        )


def _require_modes(shape: ConvShape) -> None:
    for axis, mode in enumerate(shape.modes):
        most = max(shape.pad_before[axis], shape.pad_after[axis])
        require_mode(mode, shape.size[axis], most, AXES[axis])


def _require_upsampling(shape: ConvShape) -> None:
    for axis, (times, skip) in enumerate(zip(shape.upsample, shape.skip, strict=True)):
        before, after = shape.pad_before[axis], shape.pad_after[axis]
        name, mode = AXES[axis], shape.modes[axis]
        if not 0 <= skip < times:
            raise ShapeError(
                f"skip {skip} of positions repeated {times} times along {name}: 0 to {times - 1}"
                " can be left out."
            )
        if times > 1 and shape.stride[axis] != 1:
            raise ShapeError(
                f"stride {shape.stride[axis]} along {name}, which is upsampled {times} times:"
                " defined for stride 1. Upsample before the convolution."
            )
        if times > 1 and mode in (REFLECT, CIRCULAR) and before + after:
            raise ShapeError(
                f"{mode} padding along {name}, which is upsampled {times} times: zeros or"
                " replicate. Upsample and pad before the convolution."
            )
        if skip and before and mode == ZEROS:
            raise ShapeError(
                f"{before} zeros before {name}, which is upsampled less the first {skip}: zeros do"
                " not stand where repeated positions would. Pad with replicate, or use skip 0."
            )


def require_not_upsampled(shape: ConvShape, what: str) -> None:
    """Refuse, for a computation that reads its input as it lies."""
    if shape.upsample != ONCE:
        raise UnsupportedError(
            f"the {what} of a convolution that reads its input upsampled {shape.upsample} times:"
            " upsample before the convolution instead, as a step of its own."
        )


def _require_positive(shape: ConvShape | TransposedShape) -> None:
    named = [("batch", shape.batch), ("c_in", shape.c_in), ("c_out", shape.c_out)]
    for field in ("size", "kernel", "stride", "dilation", "upsample"):
        named += [
            (f"{field} along {axis}", n)
            for axis, n in zip(AXES, getattr(shape, field, ONCE), strict=True)
        ]
    for name, value in named:
        if value < 1:
            raise ShapeError(f"{name} is {value}: at least 1 is needed.")
    repeated = getattr(shape, "upsample", ONCE)
    for field, most in (("pad_before", ONCE), ("pad_after", repeated)):
        sides = getattr(shape, field, (0, 0, 0))
        for axis, value, times in zip(AXES, sides, most, strict=True):
            if value <= -times:
                raise ShapeError(
                    f"{field} along {axis} is {value}: padding is not negative. Only of the last"
                    " position, if it is repeated, fewer than all copies can be left out."
                )


def conv_shape(  # noqa: PLR0913 (torch's own arguments)
    x_shape: Sequence[int],
    w_shape: Sequence[int],
    *,
    stride: Axes = 1,
    padding: Padding = 0,
    dilation: Axes = 1,
    groups: int = 1,
    padding_mode: str | Sequence[str] = ZEROS,
    upsample: Axes = 1,
    skip: Axes = 0,
) -> ConvShape:
    """The problem torch's conv1d/2d/3d arguments describe; the rank is that of `w_shape` - 2.

    `padding` is an int, one int or (before, after) pair per axis, "valid" or "same". `x_shape` is
    what lies in memory: `upsample` and `skip` (see `ConvShape`) come before the padding.
    """
    rank = _same_rank(x_shape, w_shape)
    if w_shape[1] * groups != x_shape[1]:
        raise ShapeError(
            f"the input has {x_shape[1]} channels and the weight reads {w_shape[1]} in each of"
            f" {groups} groups: their product must be the same."
        )
    kernel = lifted(tuple(w_shape[2:]), 1)
    strides = lifted(_per_axis("stride", stride, rank), 1)
    dilations = lifted(_per_axis("dilation", dilation, rank), 1)
    before, after = _padding(padding, rank, kernel, strides, dilations)
    return ConvShape(
        batch=x_shape[0],
        c_in=x_shape[1],
        c_out=w_shape[0],
        size=lifted(tuple(x_shape[2:]), 1),
        kernel=kernel,
        stride=strides,
        dilation=dilations,
        pad_before=before,
        pad_after=after,
        groups=groups,
        modes=_modes(padding_mode, rank),
        upsample=lifted(_per_axis("upsample", upsample, rank), 1),
        skip=lifted(_per_axis("skip", skip, rank), 0),
    )


def _same_rank(x_shape: Sequence[int], w_shape: Sequence[int]) -> int:
    rank = len(w_shape) - 2
    if rank not in (1, 2, 3) or len(x_shape) != rank + 2:
        raise ShapeError(
            f"input {tuple(x_shape)} with weight {tuple(w_shape)}: both have 3, 4 or 5 dimensions"
            f" ([N, C, ...] and [C_out, C_in, ...]) and the same number."
        )
    return rank


def _modes(mode: str | Sequence[str], rank: int) -> Modes:
    listed = [mode] * rank if isinstance(mode, str) else list(mode)
    if len(listed) != rank:
        raise ShapeError(f"padding_mode={mode}: one, or one for each of {rank} axes.")
    filled = [ZEROS] * (3 - rank) + listed
    return (filled[0], filled[1], filled[2])


def lifted(sizes: tuple[int, ...], missing: int) -> Triple:
    """Numbers of the last axes as numbers of all three."""
    filled = (missing,) * (3 - len(sizes)) + sizes
    return (filled[0], filled[1], filled[2])


def _per_axis(name: str, value: Axes, rank: int) -> tuple[int, ...]:
    if isinstance(value, SupportsIndex):
        return (index(value),) * rank
    values = tuple(index(number) for number in value)
    if len(values) == 1:
        return values * rank
    if len(values) != rank:
        raise ShapeError(f"{name}={values}: one number, or one for each of {rank} axes.")
    return values


def _padding(
    padding: Padding, rank: int, kernel: Triple, stride: Triple, dilation: Triple
) -> tuple[Triple, Triple]:
    if isinstance(padding, str):
        return _named_padding(padding, kernel, stride, dilation)
    if isinstance(padding, SupportsIndex):
        pairs = [(index(padding), index(padding))] * rank
    else:
        listed = list(padding) * rank if len(padding) == 1 else list(padding)
        if len(listed) != rank:
            raise ShapeError(f"padding={padding}: one number or pair for each of {rank} axes.")
        pairs = [
            (index(p), index(p)) if isinstance(p, SupportsIndex) else (index(p[0]), index(p[1]))
            for p in listed
        ]
    return lifted(tuple(b for b, _ in pairs), 0), lifted(tuple(a for _, a in pairs), 0)


def _named_padding(
    name: str, kernel: Triple, stride: Triple, dilation: Triple
) -> tuple[Triple, Triple]:
    if name == "valid":
        return (0, 0, 0), (0, 0, 0)
    if name != "same":
        raise ShapeError(f'padding={name!r}: "same", "valid" or numbers.')
    if stride != (1, 1, 1):
        raise ShapeError(f'padding="same" with stride {stride}: defined for stride 1 only.')
    total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    before = [t // 2 for t in total]
    after = [t - b for t, b in zip(total, before, strict=True)]
    return (before[0], before[1], before[2]), (after[0], after[1], after[2])

"""Every distinct convolution of the catalogue, cut down to what still has edges and an interior.

Distinct means kernel, stride, dilation, padding, bias and both channel counts; zeros that a model's
wrapper puts around its input count as padding, frames it cached or replicated as input. Channels
stay, because packing depends on them; images, output frames, rows and columns are few, and what a
stride leaves over at the end is the same as in the full size.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from math import prod

from trnconv.catalogue import Call, calls
from trnconv.geometry import ConvShape, conv_shape

FEW = (2, 3, 5)  # output frames, rows and columns
FEWER = (2, 2, 3)
LEAST = (1, 1, 2)
MANY_WEIGHTS = 2_000_000  # from here on fewer outputs, so that simulating takes about a second
MOST_WEIGHTS = 8_000_000  # from here on it takes several, whatever the extent


@dataclass(frozen=True)
class CatalogueProblem:
    """A convolution that some model makes, small."""

    name: str
    shape: ConvShape
    rank: int
    bias: bool

    @property
    def weights(self) -> int:
        """Elements of the filters."""
        return self.shape.c_in * self.shape.c_out * self.shape.taps()

    @property
    def machine(self) -> tuple[str, int]:
        """A machine and a number of cores, always the same for the same problem."""
        spread = zlib.crc32(self.name.encode())
        return ("trn2", "trn3")[spread % 2], 1 + spread // 2 % 2


def catalogue_problems() -> tuple[CatalogueProblem, ...]:
    """One problem for each distinct dense call, in the order of the catalogue."""
    distinct = {}
    for call in calls():
        if call.dense and (name := _name(call)) not in distinct:
            distinct[name] = _problem(name, call)
    return tuple(distinct.values())


def _name(call: Call) -> str:
    sides = "_".join(f"{before}{after}" for before, after in zero_padding(call))
    return (
        f"{call.weight[1]}to{call.weight[0]}_k{_times(call.weight[2:])}_s{_times(call.stride)}"
        f"_d{_times(call.dilation)}_p{sides}{'_bias' if call.bias else ''}"
    )


def _problem(name: str, call: Call) -> CatalogueProblem:
    full = conv_shape(
        unpadded(call),
        call.weight,
        stride=call.stride,
        padding=zero_padding(call),
        dilation=call.dilation,
    )
    weights = prod(call.weight)
    outputs = FEW if weights < MANY_WEIGHTS else FEWER if weights < MOST_WEIGHTS else LEAST
    return CatalogueProblem(name, cropped(full, outputs), len(call.weight) - 2, call.bias)


def zero_padding(call: Call) -> tuple[tuple[int, int], ...]:
    """(before, after) of each axis: the convolution's own zeros and its wrapper's."""
    pads = [(own, own) for own in call.padding]
    front, back = _zeros(call.time_front), _zeros(call.time_back)
    if front or back:
        pads[0] = (pads[0][0] + front, pads[0][1] + back)
    if call.pad_mode == "zeros":
        top, bottom, left, right = call.pad_tblr
        pads[-2] = (pads[-2][0] + top, pads[-2][1] + bottom)
        pads[-1] = (pads[-1][0] + left, pads[-1][1] + right)
    return tuple(pads)


def unpadded(call: Call) -> tuple[int, ...]:
    """The input before its wrapper put zeros around it."""
    added = [
        before + after - 2 * own
        for (before, after), own in zip(zero_padding(call), call.padding, strict=True)
    ]
    sizes = [size - zeros for size, zeros in zip(call.input[2:], added, strict=True)]
    return (*call.input[:2], *sizes)


def cropped(shape: ConvShape, outputs: tuple[int, int, int]) -> ConvShape:
    """The same convolution with at most this many outputs along each axis, and three images."""
    size = tuple(_cropped_size(shape, axis, outputs[axis]) for axis in range(3))
    return replace(shape, batch=min(shape.batch, 3), size=size)


def _cropped_size(shape: ConvShape, axis: int, most: int) -> int:
    pads = shape.pad_before[axis] + shape.pad_after[axis]
    reach = shape.dilation[axis] * (shape.kernel[axis] - 1) + 1
    unread = (shape.size[axis] + pads - reach) % shape.stride[axis]
    outputs = min(most, shape.out_size(axis))
    return max(1, reach + (outputs - 1) * shape.stride[axis] + unread - pads)


def _zeros(added: str) -> int:
    """How many frames a wrapper added, if they are all zeros."""
    return int(added.removeprefix("zeros")) if added.startswith("zeros") and "+" not in added else 0


def _times(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))

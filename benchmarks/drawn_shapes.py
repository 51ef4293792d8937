"""Convolutions as users of torch have them, the same for the same number on every machine.

Sizes to 4096, kernels to 31, groups to 1,024 (primes too), strides to 16; forward, transposed and
both gradients; for trn1, trn2 and trn3. Every third is small enough to be run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeVar

import numpy as np

from trnconv.errors import ShapeError
from trnconv.geometry import ConvShape, conv_shape, input_gradient_shape, transposed_shape
from trnconv.problem.conv_problem import WEIGHT_GRADIENT, ConvProblem, Shape
from trnconv.runtime.convolve import LaunchOptions
from trnconv.runtime.weight_gradient import gradient_problem

FORWARD, TRANSPOSED, INPUT_GRADIENT = "forward", "transposed", "input gradient"
KINDS = (FORWARD, FORWARD, FORWARD, TRANSPOSED, INPUT_GRADIENT, WEIGHT_GRADIENT)
TARGETS = ("trn1", "trn2", "trn3")
DTYPES = ("bfloat16", "bfloat16", "float16", "float32")
_CHANNELS = (
    *(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 80, 96, 100, 127, 128, 129, 160, 192, 256, 320),
    *(384, 512, 640, 768, 1000, 1024, 1280, 1536, 2048, 4096),
)
_PRIMES = (2, 3, 5, 7, 13, 17, 31, 61, 127, 131, 251, 509, 997, 1021)
_GROUPS = (2, 4, 8, 16, 32, 64, 96, 128, 256, 384, 512, 768, 1000, 1024, *_PRIMES)
_OF_A_GROUP = (1, 2, 3, 4, 5, 8, 16, 24, 48, 64, 128)
_MOST_CHANNELS = 4096
_SIZES = (
    *(1, 2, 3, 5, 7, 8, 13, 14, 16, 28, 32, 56, 64, 100, 112, 128, 224, 256, 384, 480, 512, 720),
    *(1000, 1024, 1280, 1920, 2048, 2160, 3000, 4096),
)
_BATCHES = (1, 1, 1, 2, 4, 8, 16, 32)
_KERNELS = (1, 3, 3, 3, 5, 7, 14, 16, 31, 31)
_STRIDES = (1, 1, 1, 2, 2, 4, 8, 16)
_DILATIONS = (1, 1, 1, 1, 2, 3, 4)
_MOST_TAPS = 2048  # a 3-D kernel of 31 along every axis is nobody's
_Choice = TypeVar("_Choice")


@dataclass(frozen=True)
class _Most:
    """What a shape may take: elements of a tensor, of the weight, and multiply-adds."""

    elems: int
    weight: int
    macs: float


LARGE = _Most(2**30, 2**27, 2e13)  # of float32, x and y are 8 GiB: half of the HBM of trn1
SMALL = _Most(2**17, 2**18, 1e7)
EVERY = 3


def is_small(number: int) -> bool:
    """Whether the shape of this number can be run."""
    return number % EVERY == 0


@dataclass(frozen=True)
class Drawn:
    """What a user calls, with what, and where."""

    number: int
    kind: str
    shape: Shape
    rank: int
    dtype: str
    bias: bool
    machine: str

    def problem(self) -> ConvProblem:
        """What the planner is asked for it."""
        if self.kind == WEIGHT_GRADIENT:
            assert isinstance(self.shape, ConvShape)
            return gradient_problem(self.shape, self.machine, self.dtype)
        shape = self.shape
        if self.kind == INPUT_GRADIENT:
            assert isinstance(shape, ConvShape)
            shape = input_gradient_shape(shape)
        return LaunchOptions(self.machine).problem(shape, self.dtype)


def drawn_shape(number: int) -> Drawn:
    """The convolution of this number."""
    rng = np.random.default_rng([19, number])
    most = SMALL if is_small(number) else LARGE
    kind, rank = _one_of(rng, KINDS), _one_of(rng, (1, 2, 2, 2, 3))
    machine, dtype = _one_of(rng, TARGETS), _one_of(rng, DTYPES)
    shape = None
    while shape is None or not _within(shape, most):
        shape = _shape(rng, kind, rank, most)
    bias = kind in (FORWARD, TRANSPOSED) and bool(rng.random() < 0.5)
    return Drawn(number, kind, shape, rank, dtype, bias, machine)


def _within(shape: Shape, most: _Most) -> bool:
    x = shape.batch * shape.c_in * prod(shape.size)
    y = shape.batch * shape.c_out * prod(shape.out_sizes())
    weight = shape.c_out * shape.c_in // shape.groups * prod(shape.kernel)
    few = prod(shape.kernel) <= _MOST_TAPS
    return few and max(x, y) <= most.elems and weight <= most.weight and shape.macs() <= most.macs


def _shape(rng: np.random.Generator, kind: str, rank: int, most: _Most) -> Shape | None:
    c_in, c_out, groups = _channels(rng)
    batch = _one_of(rng, _BATCHES)
    longest = _one_of(rng, (8, 14, 32, 64, 128, 256, 512, 1024, 2048, 4096))
    sizes = [_one_of(rng, [size for size in _SIZES if size <= longest]) for _ in range(rank)]
    if batch * max(c_in, c_out) * prod(sizes) > most.elems:
        return None
    kernel, stride, dilation, padding = _taps(rng, rank)
    try:
        if kind == TRANSPOSED:
            steps = zip(stride, dilation, strict=True)
            more = [int(rng.integers(max(pair))) if rng.random() < 0.4 else 0 for pair in steps]
            w = (c_in, c_out // groups, *kernel)
            return transposed_shape(
                (batch, c_in, *sizes),
                w,
                stride=stride,
                padding=padding,
                output_padding=more,
                dilation=dilation,
                groups=groups,
            )
        return conv_shape(
            (batch, c_in, *sizes),
            (c_out, c_in // groups, *kernel),
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
        )
    except ShapeError:
        return None  # torch has no output for it either


def _taps(rng: np.random.Generator, rank: int) -> tuple[list[int], list[int], list[int], list[int]]:
    """Kernel, stride, dilation and padding of each axis."""
    longest = _one_of(rng, _KERNELS)
    first = int(rng.integers(1, longest + 1)) if rng.random() < 0.5 else longest
    is_cubic = rng.random() < 0.7
    kernel = [first if is_cubic else int(rng.integers(1, longest + 1)) for _ in range(rank)]
    stride = [_one_of(rng, _STRIDES)] * rank
    if rng.random() < 0.2:
        stride = [_one_of(rng, (1, 2, 3, 4, 8, 14, 16)) for _ in range(rank)]
    if rng.random() < 0.15:
        stride = [min(16, taps) for taps in kernel]  # patches
    dilation = [_one_of(rng, _DILATIONS)] * rank
    style = _one_of(rng, ("same", "none", "any"))
    halves = [step * (taps - 1) // 2 for taps, step in zip(kernel, dilation, strict=True)]
    padding = {
        "same": halves,
        "none": [0] * rank,
        "any": [int(rng.integers(half + 1)) for half in halves],
    }[style]
    return kernel, stride, dilation, padding


def _channels(rng: np.random.Generator) -> tuple[int, int, int]:
    """Input channels, output channels, groups."""
    style = _one_of(rng, ("dense", "dense", "dense", "grouped", "depthwise", "multiplied"))
    if style == "dense":
        return _one_of(rng, _CHANNELS), _one_of(rng, _CHANNELS), 1
    groups = _one_of(rng, _GROUPS)
    if style == "depthwise":
        return groups, groups, groups
    if style == "multiplied":
        return groups, groups * _one_of(rng, (2, 3, 4)), groups
    fitting = [count for count in _OF_A_GROUP if count * groups <= _MOST_CHANNELS]
    return groups * _one_of(rng, fitting), groups * _one_of(rng, fitting), groups


def _one_of(rng: np.random.Generator, choices: Sequence[_Choice]) -> _Choice:
    return choices[int(rng.integers(len(choices)))]

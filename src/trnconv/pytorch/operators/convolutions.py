"""Convolutions as ops of torch.library; `gradients` ties the three linear maps together.

    y  = convolution(x, w)          linear in x and in w
    dx = input_gradient(dy, w)      its transpose in x; also the transposed convolution
    dw = weight_gradient(x, dy)     its transpose in w

and `fused_convolution`, which has no gradient: frames that lie in several tensors, padded by any
mode and upsampled, convolved, with bias, residual and activation at the end. Tensors have five
dimensions; `numbers` are those of a ConvSpec. No images make no launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from trnconv.geometry import NO_MODES
from trnconv.problem.conv_problem import WEIGHT_GRADIENT
from trnconv.problem.policy import ALWAYS_DIRECT
from trnconv.pytorch.backends.conv_call import (
    INPUT_GRADIENT,
    ConvCall,
    ConvSpec,
    numbered,
    worded,
    words_of,
)
from trnconv.pytorch.backends.registry import compute
from trnconv.runtime.launch import LaunchOperands

Tensor = torch.Tensor
Call = tuple[ConvCall, LaunchOperands]


DIRECT_TEXT = ALWAYS_DIRECT.text()
ZEROS_TEXT = ",".join(NO_MODES)


def _linear(numbers: list[int], modes: str, accuracy: str = DIRECT_TEXT) -> ConvSpec:
    """Input gradients may be computed as fast as `accuracy` allows; all else is direct."""
    depth, height, width = modes.split(",")
    return numbered(numbers, (depth, height, width), accuracy=accuracy)


@torch.library.custom_op("trnconv::convolution", mutates_args=())
def convolution(
    x: Tensor,
    w: Tensor,
    numbers: list[int],
    backend: str,
    accuracy: str = DIRECT_TEXT,
    modes: str = ZEROS_TEXT,
) -> Tensor:
    """x [N, C_in, D, H, W] and w [C_out, C_in / groups, KD, KH, KW] -> y.

    `accuracy` is a policy, of input gradients among the derivatives; `modes` is what the padding of
    each axis holds. Both are so in all three ops.
    """
    if x.numel() == 0:
        return empty_output([x], w, numbered(numbers))
    return compute(*convolution_call(x, w, numbers, accuracy, modes), backend)


def convolution_call(
    x: Tensor,
    w: Tensor,
    numbers: list[int],
    accuracy: str = DIRECT_TEXT,
    modes: str = ZEROS_TEXT,
) -> Call:
    """What `convolution` asks for."""
    del accuracy
    return ConvCall(_linear(numbers, modes)), LaunchOperands((x,), w)


@torch.library.custom_op("trnconv::input_gradient", mutates_args=())
def input_gradient(
    dy: Tensor,
    w: Tensor,
    x_shape: list[int],
    numbers: list[int],
    backend: str,
    accuracy: str = DIRECT_TEXT,
    modes: str = ZEROS_TEXT,
) -> Tensor:
    """dy [N, C_out, ...] and w [C_out, C_in / groups, ...] -> dx of shape `x_shape`.

    Without a shape, the smallest that gives dy.
    """
    x_shape = x_shape or smallest_input(dy, w, numbered(numbers))
    if dy.numel() == 0:
        return dy.new_zeros(x_shape)
    return compute(*input_gradient_call(dy, w, x_shape, numbers, accuracy, modes), backend)


def input_gradient_call(
    dy: Tensor,
    w: Tensor,
    x_shape: list[int],
    numbers: list[int],
    accuracy: str = DIRECT_TEXT,
    modes: str = ZEROS_TEXT,
) -> Call:
    """What `input_gradient` asks for."""
    x_shape = x_shape or smallest_input(dy, w, numbered(numbers))
    call = ConvCall(_linear(numbers, modes, accuracy), INPUT_GRADIENT, tuple(x_shape))
    return call, LaunchOperands((dy,), w)


@torch.library.custom_op("trnconv::weight_gradient", mutates_args=())
def weight_gradient(
    x: Tensor,
    dy: Tensor,
    kernel: list[int],
    numbers: list[int],
    backend: str,
    accuracy: str = DIRECT_TEXT,
    modes: str = ZEROS_TEXT,
) -> Tensor:
    """x [N, C_in, ...] and dy [N, C_out, ...] -> dw [C_out, C_in / groups, *kernel]."""
    del accuracy
    spec = _linear(numbers, modes)
    if x.numel() == 0:
        return x.new_zeros([dy.shape[1], x.shape[1] // spec.groups, *kernel])
    return compute(ConvCall(spec, WEIGHT_GRADIENT, tuple(kernel)), LaunchOperands((x, dy)), backend)


@torch.library.custom_op("trnconv::fused_convolution", mutates_args=())
def fused_op(
    pieces: Sequence[Tensor],
    w: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    factors: Tensor | None,
    numbers: list[int],
    words: str,
    reproducible: bool,  # noqa: FBT001 (the op's schema)
    backend: str,
) -> Tensor:
    """activation(sum + bias + residual) in one kernel. It has no gradient: use the others.

    `factors` [C_in, 2 x pieces] scale and shift the inputs first, if the spec has a start.
    """
    spec = worded(numbers, words, reproducible=reproducible)
    if pieces[0].numel() == 0:
        return empty_output(pieces, w, spec)
    call = fused_call(pieces, w, bias, residual, factors, numbers, words, reproducible)
    return compute(*call, backend)


def fused_call(
    pieces: Sequence[Tensor],
    w: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    factors: Tensor | None,
    numbers: list[int],
    *words: Any,
) -> Call:
    """What `fused_op` asks for; `words`: those of its spec, and whether it is reproducible."""
    spec = worded(numbers, words[0], reproducible=words[1])
    return ConvCall(spec), LaunchOperands(tuple(pieces), w, bias, residual, factors)


def fused_convolution(
    pieces: Sequence[Tensor],
    w: Tensor,
    bias: Tensor | None,
    spec: ConvSpec,
    residual: Tensor | None = None,
    backend: str = "auto",
    factors: Tensor | None = None,
) -> Tensor:
    """Pieces [N, C_in, T_i, H, W] and w [C_out, C_in / groups, KD, KH, KW] -> [N, C_out, ...]."""
    options = (spec.numbers(), words_of(spec), spec.reproducible, backend)
    y: Tensor = fused_op(list(pieces), w, bias, residual, factors, *options)
    return y


@convolution.register_fake
def _(x: Tensor, w: Tensor, numbers: list[int], *rest: object) -> Tensor:
    del rest
    return empty_output([x], w, numbered(numbers))


@input_gradient.register_fake
def _(dy: Tensor, w: Tensor, x_shape: list[int], numbers: list[int], *rest: object) -> Tensor:
    del rest
    return dy.new_empty(x_shape or smallest_input(dy, w, numbered(numbers)))


@weight_gradient.register_fake
def _(x: Tensor, dy: Tensor, kernel: list[int], numbers: list[int], *rest: object) -> Tensor:
    del rest
    return x.new_empty([dy.shape[1], x.shape[1] // numbered(numbers).groups, *kernel])


@fused_op.register_fake
def _(
    pieces: Sequence[Tensor],
    w: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    factors: Tensor | None,
    numbers: list[int],
    *rest: object,
) -> Tensor:
    del bias, residual, factors, rest
    return empty_output(pieces, w, numbered(numbers))


def smallest_input(dy: Tensor, w: Tensor, spec: ConvSpec) -> list[int]:
    """The shape of the fewest positions of which the convolution gives so many."""
    sizes = [
        (dy.shape[2 + axis] - 1) * spec.stride[axis]
        + spec.dilation[axis] * (w.shape[2 + axis] - 1)
        + 1
        - spec.before[axis]
        - spec.after[axis]
        for axis in range(3)
    ]
    return [dy.shape[0], w.shape[1] * spec.groups, *sizes]


def empty_output(pieces: Sequence[Tensor], w: Tensor, spec: ConvSpec) -> Tensor:
    """Sizes by torch's formula, which takes symbols, and no images, as well."""
    first, frames = pieces[0], sum(piece.shape[2] for piece in pieces)
    read = (frames, first.shape[3], first.shape[4])
    sizes = [
        (
            read[axis] * spec.upsample[axis]
            - spec.skip[axis]
            + spec.before[axis]
            + spec.after[axis]
            - spec.dilation[axis] * (w.shape[2 + axis] - 1)
            - 1
        )
        // spec.stride[axis]
        + 1
        for axis in range(3)
    ]
    return first.new_empty([first.shape[0], w.shape[0], *sizes])

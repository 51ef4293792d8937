"""The torch backend: the same maps by torch's own operators, for comparison and fallback."""

from __future__ import annotations

from collections.abc import Callable

import torch

from trnconv.geometry import ZEROS
from trnconv.problem.coarse_residual import CoarseResidual, coarse_residual_of
from trnconv.problem.conv_problem import FORWARD, WEIGHT_GRADIENT
from trnconv.problem.epilogue import ELU, IDENTITY, slope_of
from trnconv.problem.prologue import FACTORS
from trnconv.pytorch.backends.conv_call import ConvCall, ConvSpec
from trnconv.runtime.launch import LaunchOperands

Tensor = torch.Tensor
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda z: torch.nn.functional.gelu(z, approximate="tanh"),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": torch.nn.functional.softplus,
    "mish": torch.nn.functional.mish,
    ELU: torch.nn.functional.elu,
}


def compute(call: ConvCall, operands: LaunchOperands) -> Tensor:
    """One convolution, step after step, or a gradient of one; an input's, of zero padding."""
    spec = call.spec
    if call.wanted == FORWARD:
        x = padded(
            upsampled(torch.cat(started(operands, spec.prologue_activation), dim=2), spec), spec
        )
        return finished(_convolved(x, operands, spec), spec.activation, _residual(call, operands))
    if call.wanted == WEIGHT_GRADIENT:
        x, dy = operands.inputs
        w = x.new_empty([dy.shape[1], x.shape[1] // spec.groups, *call.sizes])
        return _backward(x, w, dy, spec)[1]
    dy = operands.inputs[0]
    return _backward(dy.new_empty(call.sizes), operands.w, dy, spec)[0]


def started(operands: LaunchOperands, activation: str) -> tuple[Tensor, ...]:
    """Inputs, scaled, shifted and activated if there are factors for that."""
    if operands.factors is None:
        return operands.inputs
    scales = operands.factors.to(operands.inputs[0].dtype).unbind(dim=1)
    return tuple(
        finished(
            x * scales[FACTORS * number].reshape(1, -1, 1, 1, 1)
            + scales[FACTORS * number + 1].reshape(1, -1, 1, 1, 1),
            activation,
            None,
        )
        for number, x in enumerate(operands.inputs)
    )


def upsampled(x: Tensor, spec: ConvSpec) -> Tensor:
    """Every position repeated, without those that are left out."""
    for axis, (factor, skip) in enumerate(zip(spec.upsample, spec.skip, strict=True), start=2):
        if factor > 1:
            x = x.repeat_interleave(factor, dim=axis)
            x = x.narrow(axis, skip, x.shape[axis] - skip)
    return x


def padded(x: Tensor, spec: ConvSpec) -> Tensor:
    """Padding of each axis by its own mode."""
    for mode in dict.fromkeys(spec.modes):
        pairs = zip(spec.before, spec.after, spec.modes, strict=True)
        sides = [
            side if own == mode else 0
            for before, after, own in reversed(list(pairs))
            for side in (before, after)
        ]
        if any(sides):
            named = {ZEROS: "constant"}.get(mode, mode)
            x = torch.nn.functional.pad(x, sides, mode=named)
    return x


def finished(y: Tensor, activation: str, residual: Tensor | None) -> Tensor:
    """What follows a convolution and its bias."""
    if residual is not None:
        y = y + residual
    if slope := slope_of(activation):
        return torch.nn.functional.leaky_relu(y, slope)
    return y if activation == IDENTITY else _ACTIVATIONS[activation](y)


def _residual(call: ConvCall, operands: LaunchOperands) -> Tensor | None:
    """What is added, in the output's shape."""
    coarse, residual = coarse_residual_of(call.spec.coarse), operands.residual
    return residual if coarse is None or residual is None else in_cells(residual, coarse)


def in_cells(r: Tensor, coarse: CoarseResidual) -> Tensor:
    """A coarse residual in the shape of what it is added to: repeated, moved into positions."""
    images, _, *low = r.shape
    cells = r.repeat_interleave(coarse.repeats, dim=1).reshape(images, -1, *coarse.factors(), *low)
    sizes = [n * by for n, by in zip(low, coarse.factors(), strict=True)]
    whole = cells.permute(0, 1, 5, 2, 6, 3, 7, 4).reshape(images, -1, *sizes)
    return whole[:, :, coarse.skipped :]


def _convolved(x: Tensor, operands: LaunchOperands, spec: ConvSpec) -> Tensor:
    """By the operator of the lowest rank: leading axes of one position and one tap are left out."""
    w = operands.w
    idle = [x.shape[2 + axis] == w.shape[2 + axis] == 1 for axis in range(2)]
    rank = 1 if all(idle) else 2 if idle[0] else 3
    functional = torch.nn.functional
    convolution = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}[rank]
    first = 3 - rank
    y: Tensor = convolution(
        x.reshape(*x.shape[:2], *x.shape[2 + first :]),
        w.reshape(*w.shape[:2], *w.shape[2 + first :]),
        operands.bias,
        stride=spec.stride[first:],
        dilation=spec.dilation[first:],
        groups=spec.groups,
    )
    return y.reshape(*y.shape[:2], *[1] * first, *y.shape[2:])


def _backward(x: Tensor, w: Tensor, dy: Tensor, spec: ConvSpec) -> tuple[Tensor, Tensor]:
    """dx, if padding is zeros, and dw."""
    dx, dw, _ = torch.ops.aten.convolution_backward(
        dy,
        padded(x, spec),
        w,
        None,
        spec.stride,
        [0] * 3,
        spec.dilation,
        False,  # noqa: FBT003 (not transposed; the operator's own order)
        [0] * 3,
        spec.groups,
        [True, True, False],
    )
    crop = [slice(before, before + n) for before, n in zip(spec.before, x.shape[2:], strict=True)]
    return dx[(slice(None), slice(None), *crop)].contiguous(), dw

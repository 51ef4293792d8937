"""The three linear maps of a convolution as ops of torch.library; `gradients` ties them together.

    y  = convolution(x, w)          linear in x and in w
    dx = input_gradient(dy, w)      its transpose in x; also the transposed convolution
    dw = filter_gradient(x, dy)     its transpose in w

`padding` has the numbers before all axes, then those after. No images make no launch.
"""

from __future__ import annotations

import torch

from trnconv.plan.accuracy import ALWAYS_DIRECT, policy_of
from trnconv.pytorch.computing import computing
from trnconv.pytorch.extras import Extras
from trnconv.pytorch.geometry import Window

# Its derivatives are direct convolutions, and it is linear in x as they are: so is this one.
_WITH_GRADIENT = Extras(policy=ALWAYS_DIRECT)


@torch.library.custom_op("trnconv::convolution", mutates_args=())
def convolution(
    x: torch.Tensor,
    w: torch.Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    backend: str,
) -> torch.Tensor:
    """x [N, C_in, ...] and w [C_out, C_in / groups, ...] -> y."""
    if x.numel() == 0:
        return _empty_output(x, w, stride, padding, dilation)
    window = Window.of(stride, padding, dilation, groups)
    y: torch.Tensor = computing(x, backend).convolution(x, w, None, window, _WITH_GRADIENT)
    return y


@torch.library.custom_op("trnconv::input_gradient", mutates_args=())
def input_gradient(
    dy: torch.Tensor,
    w: torch.Tensor,
    x_shape: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    backend: str,
) -> torch.Tensor:
    """dy [N, C_out, ...] and w [C_out, C_in / groups, ...] -> dx of shape `x_shape`."""
    if dy.numel() == 0:
        return dy.new_zeros(x_shape)
    window = Window.of(stride, padding, dilation, groups)
    dx: torch.Tensor = computing(dy, backend).input_gradient(dy, w, list(x_shape), window)
    return dx


@torch.library.custom_op("trnconv::filter_gradient", mutates_args=())
def filter_gradient(
    x: torch.Tensor,
    dy: torch.Tensor,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    backend: str,
) -> torch.Tensor:
    """x [N, C_in, ...] and dy [N, C_out, ...] -> dw [C_out, C_in / groups, *kernel]."""
    if x.numel() == 0:
        return x.new_zeros([dy.shape[1], x.shape[1] // groups, *kernel])
    window = Window.of(stride, padding, dilation, groups)
    dw: torch.Tensor = computing(x, backend).filter_gradient(x, dy, list(kernel), window)
    return dw


@torch.library.custom_op("trnconv::fused_convolution", mutates_args=())
def fused_convolution(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    activation: str,
    accuracy: str,
    backend: str,
) -> torch.Tensor:
    """activation(x * w + bias + residual) in one kernel. It has no gradient: use the others."""
    if x.numel() == 0:
        return _empty_output(x, w, stride, padding, dilation)
    window = Window.of(stride, padding, dilation, groups)
    extras = Extras(activation=activation, residual=residual, policy=policy_of(accuracy))
    y: torch.Tensor = computing(x, backend).convolution(x, w, bias, window, extras)
    return y


@fused_convolution.register_fake
def _(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    activation: str,
    accuracy: str,
    backend: str,
) -> torch.Tensor:
    del bias, residual, groups, activation, accuracy, backend
    return _empty_output(x, w, stride, padding, dilation)


@convolution.register_fake
def _(
    x: torch.Tensor,
    w: torch.Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    backend: str,
) -> torch.Tensor:
    del groups, backend
    return _empty_output(x, w, stride, padding, dilation)


def _empty_output(
    x: torch.Tensor, w: torch.Tensor, stride: list[int], padding: list[int], dilation: list[int]
) -> torch.Tensor:
    rank = len(stride)
    sizes = [
        (x.shape[2 + a] + padding[a] + padding[rank + a] - dilation[a] * (w.shape[2 + a] - 1) - 1)
        // stride[a]
        + 1
        for a in range(rank)
    ]
    return x.new_empty([x.shape[0], w.shape[0], *sizes])


@input_gradient.register_fake
def _(dy: torch.Tensor, w: torch.Tensor, x_shape: list[int], *rest: object) -> torch.Tensor:
    del w, rest
    return dy.new_empty(x_shape)


@filter_gradient.register_fake
def _(
    x: torch.Tensor,
    dy: torch.Tensor,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    backend: str,
) -> torch.Tensor:
    del stride, padding, dilation, backend
    return x.new_empty([dy.shape[1], x.shape[1] // groups, *kernel])

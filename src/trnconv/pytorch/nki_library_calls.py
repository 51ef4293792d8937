"""nki-library's calls on torch tensors: the ops of this package, in the library's layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from trnconv.errors import UnsupportedError
from trnconv.geometry import Triple
from trnconv.problem.epilogue import AFTER, IDENTITY
from trnconv.problem.policy import policy_of
from trnconv.pytorch.backends.arrays import Array, to_array, to_tensor
from trnconv.pytorch.backends.aten import finished
from trnconv.pytorch.backends.choice import asked_for, on_neuron
from trnconv.pytorch.backends.conv_call import ConvSpec
from trnconv.pytorch.functional.arguments import wants_gradient
from trnconv.pytorch.operators import convolutions

Tensor = torch.Tensor
_AXES = (0, 2, 3, 4)  # all but channels


class VendorOptions(Protocol):
    """What is read of a `trnconv.nkilib` call."""

    @property
    def stride(self) -> Triple:
        """Of the taps."""

    @property
    def before(self) -> Triple:
        """Zeros before each axis."""

    @property
    def after(self) -> Triple:
        """Zeros behind each axis."""

    @property
    def dilation(self) -> Triple:
        """Of the taps."""

    @property
    def activation(self) -> str:
        """After the sum."""

    @property
    def residual(self) -> str:
        """Where it is added."""

    @property
    def cores(self) -> int | None:
        """Of a simulated launch."""

    @property
    def machine(self) -> str | None:
        """The machine simulated."""

    @property
    def accuracy(self) -> str:
        """What may be given for speed."""


def convolution(
    call: VendorOptions, x: Tensor, filters: Tensor, bias: Tensor | None, residual: Tensor | None
) -> Tensor:
    """y [B, C_out, D', H', W'], of the type of x.

    A residual after an activation is added by torch; all else is fused.
    """
    if wants_gradient(x, filters, bias, residual):
        raise UnsupportedError(
            "a tensor that asks for its gradient: nki-library's conv3d has none. Call conv3d_bwd,"
            " or trnconv.pytorch.functional.conv3d, which autograd knows, or use torch.no_grad()."
        )
    is_late = call.residual == AFTER and call.activation != IDENTITY
    spec = ConvSpec(
        call.stride,
        call.before,
        call.after,
        call.dilation,
        activation=call.activation,
        accuracy=policy_of(call.accuracy).text(),
    )
    fused = None if is_late else residual
    w = _torch_layout(filters)
    y = convolutions.fused_convolution([x], w, bias, spec, fused, _backend(call, x))
    return y + residual if is_late and residual is not None else y


def input_gradient(call: VendorOptions, dy: Tensor, filters: Tensor, x: Tensor) -> Tensor:
    """dx, of the type of dy."""
    w = _torch_layout(filters)
    dx: Tensor = convolutions.input_gradient(
        dy, w, list(x.shape), _numbers(call), _backend(call, x)
    )
    return dx


def weight_gradient(
    call: VendorOptions, x: Tensor, dy: Tensor, filters: Tensor
) -> tuple[Tensor, Tensor]:
    """dw [Kd, Kh, Kw, C_in, C_out] and db [C_out], of the type of x; db is a sum of torch's."""
    taps = list(filters.shape[:3])
    dw: Tensor = convolutions.weight_gradient(x, dy, taps, _numbers(call), _backend(call, x))
    db = dy.sum(dim=_AXES, dtype=torch.float32)
    return dw.permute(2, 3, 4, 1, 0).contiguous(), db.to(x.dtype)


def depthwise_conv1d(
    img: Tensor, filters: Tensor, options: tuple[Any, ...], machine: str | None
) -> Tensor:
    """img [N, C, 1, W] and filters [C * multiplier, 1, 1, S], by the library's other arguments."""
    padding, stride, dilation, lhs, groups, batches, *orders = options
    plain = (lhs, batches, tuple(padding[0]), stride[0], dilation[0])
    if plain != ((1, 1), 1, (0, 0), 1, 1) or any(order is not None for order in orders):
        raise UnsupportedError(
            f"lhs_dilation={lhs}, batch_group_count={batches}, permutations {orders} or steps along"
            " the height of tensors: none of them is computed. NumPy arrays take lhs_dilation."
        )
    if groups != img.shape[1]:
        raise UnsupportedError(
            f"feature_group_count={groups} with {img.shape[1]} channels: a depthwise convolution"
            " has as many groups as channels."
        )
    before, after = padding[1]
    spec = ConvSpec(
        (1, 1, stride[1]), (0, 0, before), (0, 0, after), (1, 1, dilation[1]), img.shape[1]
    )
    backend = asked_for(None) if on_neuron(img) else asked_for(None, machine)
    y = convolutions.fused_convolution(
        [img[:, :, None]], filters[:, :, None], None, spec, backend=backend
    )
    return y[:, :, 0]


def on_host(
    filters: Tensor, bias: Tensor | None
) -> tuple[tuple[Array, Array | None], Callable[[Array], Tensor]]:
    """The values, and how an array becomes a tensor where the filters are."""
    values = to_array(filters.cpu()), None if bias is None else to_array(bias.cpu())
    return values, lambda array: to_tensor(array).to(filters.device)


def statistics(y: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance (correction 0) of every channel, float32."""
    variance, mean = torch.var_mean(y.float(), dim=_AXES, correction=0)
    return mean, variance


def wide(tensor: Tensor) -> Tensor:
    """As float32."""
    return tensor.float()


def like(tensor: Tensor, other: Tensor) -> Tensor:
    """In the type of another."""
    return tensor.to(other.dtype)


def activated(y: Tensor, activation: str) -> Tensor:
    """By torch."""
    return finished(y, activation, None)


def _torch_layout(filters: Tensor) -> Tensor:
    return filters.permute(4, 3, 0, 1, 2)


def _numbers(call: VendorOptions) -> list[int]:
    return ConvSpec(call.stride, call.before, call.after, call.dilation).numbers()


def _backend(call: VendorOptions, x: Tensor) -> str:
    """As ops take it; on a device launches are as the process is."""
    return asked_for(None) if on_neuron(x) else asked_for(None, call.machine, call.cores)

"""torch.nn.functional's convolutions: its names, its order of arguments, its defaults.

What is ours is keyword-only: `padding_mode`, `activation`, `residual`, `accuracy` and `backend`.
The first three are fused into the kernel where no gradient is asked for; with gradients, they are
torch's own operators around the kernel, which is the same mathematics.

`accuracy` is what a kernel may give for speed: "direct", "bf16" (large convolutions may run as
F(2,3) in fp16, with the accuracy of bf16), "fast" (F(4,3) too), "half" (float32 data by products of
fp16), or a `Policy`. It is a permission: with gradients and on torch's backend nothing is given.
"""

from __future__ import annotations

import torch

from trnconv.plan.accuracy import BF16, Policy, policy_of
from trnconv.plan.ends import IDENTITY
from trnconv.pytorch import gradients
from trnconv.pytorch.arguments import (
    Axes,
    Operands,
    forward_window,
    output_sizes,
    require_residual,
    transposed_sizes,
    with_batch,
)
from trnconv.pytorch.backends import Backend, asked_for
from trnconv.pytorch.extras import Extras
from trnconv.pytorch.geometry import Window

Tensor = torch.Tensor


def conv1d(
    input: Tensor,  # noqa: A002 (torch's name)
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Axes = 1,
    padding: str | Axes = 0,
    dilation: Axes = 1,
    groups: int = 1,
    *,
    padding_mode: str = "zeros",
    activation: str = IDENTITY,
    residual: Tensor | None = None,
    accuracy: str | Policy = BF16,
    backend: str | Backend | None = None,
) -> Tensor:
    """torch.nn.functional.conv1d, on the kernels of trnconv."""
    extras = Extras(padding_mode, activation, residual, asked_for(backend), policy_of(accuracy))
    return _conv(1, (input, weight, bias), (stride, padding, dilation, groups), extras)


def conv2d(
    input: Tensor,  # noqa: A002 (torch's name)
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Axes = 1,
    padding: str | Axes = 0,
    dilation: Axes = 1,
    groups: int = 1,
    *,
    padding_mode: str = "zeros",
    activation: str = IDENTITY,
    residual: Tensor | None = None,
    accuracy: str | Policy = BF16,
    backend: str | Backend | None = None,
) -> Tensor:
    """torch.nn.functional.conv2d, on the kernels of trnconv."""
    extras = Extras(padding_mode, activation, residual, asked_for(backend), policy_of(accuracy))
    return _conv(2, (input, weight, bias), (stride, padding, dilation, groups), extras)


def conv3d(
    input: Tensor,  # noqa: A002 (torch's name)
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Axes = 1,
    padding: str | Axes = 0,
    dilation: Axes = 1,
    groups: int = 1,
    *,
    padding_mode: str = "zeros",
    activation: str = IDENTITY,
    residual: Tensor | None = None,
    accuracy: str | Policy = BF16,
    backend: str | Backend | None = None,
) -> Tensor:
    """torch.nn.functional.conv3d, on the kernels of trnconv."""
    extras = Extras(padding_mode, activation, residual, asked_for(backend), policy_of(accuracy))
    return _conv(3, (input, weight, bias), (stride, padding, dilation, groups), extras)


def conv_transpose1d(
    input: Tensor,  # noqa: A002 (torch's name)
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Axes = 1,
    padding: Axes = 0,
    output_padding: Axes = 0,
    groups: int = 1,
    dilation: Axes = 1,
    *,
    backend: str | Backend | None = None,
) -> Tensor:
    """torch.nn.functional.conv_transpose1d, on the kernels of trnconv."""
    options = (stride, padding, output_padding, dilation, groups)
    return _conv_transpose(1, (input, weight, bias), options, asked_for(backend))


def conv_transpose2d(
    input: Tensor,  # noqa: A002 (torch's name)
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Axes = 1,
    padding: Axes = 0,
    output_padding: Axes = 0,
    groups: int = 1,
    dilation: Axes = 1,
    *,
    backend: str | Backend | None = None,
) -> Tensor:
    """torch.nn.functional.conv_transpose2d, on the kernels of trnconv."""
    options = (stride, padding, output_padding, dilation, groups)
    return _conv_transpose(2, (input, weight, bias), options, asked_for(backend))


def conv_transpose3d(
    input: Tensor,  # noqa: A002 (torch's name)
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Axes = 1,
    padding: Axes = 0,
    output_padding: Axes = 0,
    groups: int = 1,
    dilation: Axes = 1,
    *,
    backend: str | Backend | None = None,
) -> Tensor:
    """torch.nn.functional.conv_transpose3d, on the kernels of trnconv."""
    options = (stride, padding, output_padding, dilation, groups)
    return _conv_transpose(3, (input, weight, bias), options, asked_for(backend))


def _conv(
    rank: int,
    operands: Operands,
    options: tuple[Axes, str | Axes, Axes, int],
    extras: Extras,
) -> Tensor:
    x, w, bias = _under_autocast(with_batch(operands[0], rank), *operands[1:])
    unbatched = operands[0].dim() == rank + 1
    extras = extras.with_batch() if unbatched else extras
    window = forward_window(rank, (x, w, bias), options)
    shape = [x.shape[0], w.shape[0], *output_sizes(x, w, window)]
    require_residual(extras.residual, x, shape)
    if extras.padding_mode == "zeros" and not _wants_gradient(x, w, bias, extras.residual):
        y: Tensor = gradients.fused_convolution(
            x,
            w,
            bias,
            extras.residual,
            *_listed(window),
            extras.activation,
            extras.policy.text(),
            extras.backend,
        )
    else:
        y = extras.around(lambda padded, moved: _plain(padded, w, bias, moved, extras), x, window)
    return y.squeeze(0) if unbatched else y


def _plain(x: Tensor, w: Tensor, bias: Tensor | None, window: Window, extras: Extras) -> Tensor:
    y: Tensor = gradients.convolution(x, w, *_listed(window), extras.backend)
    return y if bias is None else y + bias.view(-1, *[1] * len(window.stride))


def _listed(window: Window) -> tuple[list[int], list[int], list[int], int]:
    """A window as the ops take it."""
    pads = [*window.before, *window.after]
    return list(window.stride), pads, list(window.dilation), window.groups


def _conv_transpose(
    rank: int,
    operands: Operands,
    options: tuple[Axes, Axes, Axes, Axes, int],
    backend: str,
) -> Tensor:
    x, w, bias = _under_autocast(with_batch(operands[0], rank), *operands[1:])
    reached, zeros, window = transposed_sizes(rank, (x, w, bias), options)
    shape = [x.shape[0], w.shape[1] * window.groups, *reached]
    y: Tensor = gradients.input_gradient(x, w, shape, *_listed(window), backend)
    if any(zeros):
        behind = [side for count in reversed(zeros) for side in (0, count)]
        y = torch.nn.functional.pad(y, behind)
    if bias is not None:
        y = y + bias.view(-1, *[1] * rank)
    return y.squeeze(0) if operands[0].dim() == rank + 1 else y


def _under_autocast(x: Tensor, w: Tensor, bias: Tensor | None) -> Operands:
    """The operands in the type autocast asks for, if it is on: torch's rule for convolutions."""
    kind = x.device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return x, w, bias
    dtype = torch.get_autocast_dtype(kind)
    return _cast(x, dtype), _cast(w, dtype), None if bias is None else _cast(bias, dtype)


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    narrow = (torch.float32, torch.bfloat16, torch.float16)
    return tensor.to(dtype) if tensor.dtype in narrow else tensor


def _wants_gradient(*tensors: Tensor | None) -> bool:
    asked = any(each is not None and each.requires_grad for each in tensors)
    return torch.is_grad_enabled() and asked

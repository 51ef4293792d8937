"""torch.nn.functional's convolutions: its names, its order of arguments, its defaults.

What is ours is keyword-only: `padding_mode`, `activation`, `residual` and `backend`. They are fused
into the kernel where no gradient is asked for; with gradients, they are torch's own operators
around the kernel, which is the same mathematics.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trnconv.errors import UnsupportedError
from trnconv.geometry import TransposedShape, transposed_shape
from trnconv.plan.ends import IDENTITY
from trnconv.pytorch import ops
from trnconv.pytorch.backends import Backend
from trnconv.pytorch.extras import Extras
from trnconv.pytorch.geometry import Window

Axes = int | Sequence[int]
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
    backend: str | Backend | None = None,
) -> Tensor:
    """torch.nn.functional.conv1d, on the kernels of trnconv."""
    extras = Extras(padding_mode, activation, residual, backend)
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
    backend: str | Backend | None = None,
) -> Tensor:
    """torch.nn.functional.conv2d, on the kernels of trnconv."""
    extras = Extras(padding_mode, activation, residual, backend)
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
    backend: str | Backend | None = None,
) -> Tensor:
    """torch.nn.functional.conv3d, on the kernels of trnconv."""
    extras = Extras(padding_mode, activation, residual, backend)
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
    return _conv_transpose(1, (input, weight, bias), options, backend)


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
    return _conv_transpose(2, (input, weight, bias), options, backend)


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
    return _conv_transpose(3, (input, weight, bias), options, backend)


def _conv(
    rank: int,
    operands: tuple[Tensor, Tensor, Tensor | None],
    options: tuple[Axes, str | Axes, Axes, int],
    extras: Extras,
) -> Tensor:
    x, w, bias = operands
    batched = _with_batch(x, rank)
    window = _window(rank, w, options)
    _require_fitting(f"conv{rank}d", batched, w, bias, window.groups)
    if extras.padding_mode == "zeros" and not _wants_gradient(x, w, bias, extras.residual):
        y: Tensor = ops.fused_convolution(
            batched, w, bias, extras.residual, *_listed(window), extras.activation, extras.asked
        )
    else:
        y = extras.around(
            lambda padded, moved: _plain(padded, w, bias, moved, extras), batched, window
        )
    return y if x.dim() == rank + 2 else y.squeeze(0)


def _plain(x: Tensor, w: Tensor, bias: Tensor | None, window: Window, extras: Extras) -> Tensor:
    y: Tensor = ops.convolution(x, w, *_listed(window), extras.asked)
    return y if bias is None else y + bias.to(y.dtype).view(-1, *[1] * len(window.stride))


def _listed(window: Window) -> tuple[list[int], list[int], list[int], int]:
    """A window as the ops take it."""
    pads = [*window.before, *window.after]
    return list(window.stride), pads, list(window.dilation), window.groups


def _conv_transpose(
    rank: int,
    operands: tuple[Tensor, Tensor, Tensor | None],
    options: tuple[Axes, Axes, Axes, Axes, int],
    backend: str | Backend | None,
) -> Tensor:
    x, w, bias = operands
    stride, padding, output_padding, dilation, groups = options
    batched = _with_batch(x, rank)
    shape = transposed_shape(
        tuple(batched.shape),
        tuple(w.shape),
        stride=stride,
        padding=padding,
        output_padding=output_padding,
        groups=groups,
        dilation=dilation,
    )
    hidden = 3 - rank
    y: Tensor = ops.input_gradient(
        batched,
        w,
        [batched.shape[0], shape.c_out, *shape.out[hidden:]],
        list(shape.stride[hidden:]),
        [*shape.pad_before[hidden:], *_cropped_behind(shape)[hidden:]],
        list(shape.dilation[hidden:]),
        groups,
        Extras(backend=backend).asked,
    )
    if bias is not None:
        y = y + bias.to(y.dtype).view(-1, *[1] * rank)
    return y if x.dim() == rank + 2 else y.squeeze(0)


def _cropped_behind(shape: TransposedShape) -> list[int]:
    """The padding behind each axis with which the output convolves back to the input's size."""
    behind = []
    for axis in range(3):
        reach = shape.dilation[axis] * (shape.kernel[axis] - 1) + 1
        last = (shape.size[axis] - 1) * shape.stride[axis] + reach
        exact = last - shape.out[axis] - shape.pad_before[axis]
        least = max(0, exact)
        if least - exact >= shape.stride[axis]:
            raise UnsupportedError(
                f"output_padding of the stride ({shape.stride[axis]}) or more along axis {axis}:"
                " computed only below the stride. Pad the output instead."
            )
        behind.append(least)
    return behind


def _window(rank: int, w: Tensor, options: tuple[Axes, str | Axes, Axes, int]) -> Window:
    stride, padding, dilation, groups = options
    strides = _per_axis("stride", stride, rank)
    dilations = _per_axis("dilation", dilation, rank)
    if not isinstance(padding, str):
        pads = _per_axis("padding", padding, rank)
        return Window(strides, pads, pads, dilations, groups)
    if padding not in ("same", "valid"):
        raise RuntimeError(f'padding={padding!r}: "same", "valid" or numbers.')
    if padding == "same" and any(step != 1 for step in strides):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    reach = zip(w.shape[2:], dilations, strict=True)
    total = [d * (k - 1) if padding == "same" else 0 for k, d in reach]
    before = tuple(each // 2 for each in total)
    after = tuple(each - each // 2 for each in total)
    return Window(strides, before, after, dilations, groups)


def _per_axis(name: str, value: Axes, rank: int) -> tuple[int, ...]:
    listed = (value,) if isinstance(value, int) else tuple(value)
    if len(listed) == 1:
        return listed * rank
    if len(listed) != rank:
        raise RuntimeError(f"{name}={value}: one number, or one for each of {rank} axes.")
    return listed


def _with_batch(x: Tensor, rank: int) -> Tensor:
    if x.dim() not in (rank + 1, rank + 2):
        raise RuntimeError(
            f"a {rank}-D convolution of a tensor with {x.dim()} dimensions: it takes {rank + 2}, or"
            f" {rank + 1} without a batch."
        )
    return x if x.dim() == rank + 2 else x.unsqueeze(0)


def _require_fitting(name: str, x: Tensor, w: Tensor, bias: Tensor | None, groups: int) -> None:
    """torch's own refusals, with its exception type: RuntimeError."""
    if w.dim() != x.dim() or x.shape[1] != w.shape[1] * groups or w.shape[0] % groups:
        raise RuntimeError(
            f"{name}: input {list(x.shape)}, weight {list(w.shape)}, {groups} groups: the input has"
            " (channels of the weight) x groups channels, and the outputs divide by the groups."
        )
    if bias is not None and tuple(bias.shape) != (w.shape[0],):
        raise RuntimeError(f"{name}: bias {list(bias.shape)}: [{w.shape[0]}] is needed.")
    if x.dtype != w.dtype:
        raise RuntimeError(
            f"{name}: input type ({x.dtype}) and weight type ({w.dtype}) should be the same."
        )


def _wants_gradient(*tensors: Tensor | None) -> bool:
    asked = any(each is not None and each.requires_grad for each in tensors)
    return torch.is_grad_enabled() and asked

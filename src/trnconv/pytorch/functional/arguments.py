"""Torch's arguments, refused as torch refuses them: its exception types, our words."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import torch

from trnconv.errors import UnsupportedError
from trnconv.pytorch.backends.conv_call import ConvSpec

Axes = int | Sequence[int]
Tensor = torch.Tensor
Operands = tuple[Tensor, Tensor, Tensor | None]  # input, weight, bias


def forward_spec(
    rank: int, operands: Operands, options: tuple[Axes, str | Axes, Axes, int]
) -> tuple[ConvSpec, list[int]]:
    """How conv1d/2d/3d of a batched input moves, and its output sizes, if all arguments fit."""
    stride, padding, dilation, groups = options
    x, w, bias = operands
    name = f"conv{rank}d"
    steps = steps_of(rank, stride, dilation, groups)
    _require_operands(name, operands, rank)
    if x.shape[1] != w.shape[1] * groups or w.shape[0] % groups or w.shape[0] < groups:
        raise RuntimeError(
            f"{name}: input {list(x.shape)}, weight {list(w.shape)}, {groups} groups: the input has"
            " (channels of the weight) x groups channels, and the outputs divide by the groups."
        )
    _require_bias(name, bias, w.shape[0])
    pads = paddings(padding, w, *steps)
    sizes = [
        (x.shape[2 + a] + pads[0][a] + pads[1][a] - steps[1][a] * (w.shape[2 + a] - 1) - 1)
        // steps[0][a]
        + 1
        for a in range(rank)
    ]
    _require_positive_sizes(name, sizes)
    return ConvSpec.of_rank(steps[0], pads, steps[1], groups), sizes


def transposed_sizes(
    rank: int, operands: Operands, options: tuple[Axes, Axes, Axes, Axes, int]
) -> tuple[list[int], list[int], ConvSpec]:
    """Of a transposed convolution: reached sizes, zeros behind them, and the way back.

    Behind the last position that an input reaches, an output padding of the stride or more leaves
    zeros. The convolution takes the reached sizes to those of the input.
    """
    stride, padding, output_padding, dilation, groups = options
    x, w, bias = operands
    name = f"conv_transpose{rank}d"
    strides, dilations = steps_of(rank, stride, dilation, groups)
    pads = _per_axis("padding", padding, rank, 0)
    added = _per_axis("output_padding", output_padding, rank, 0)
    _require_operands(name, operands, rank)
    if x.shape[1] != w.shape[0] or w.shape[0] % groups:
        raise RuntimeError(
            f"{name}: input {list(x.shape)}, weight {list(w.shape)}, {groups} groups: both have the"
            " same number of input channels, a multiple of the groups."
        )
    _require_bias(name, bias, w.shape[1] * groups)
    if any(more >= max(pair) for more, *pair in zip(added, strides, dilations, strict=True)):
        raise RuntimeError(
            f"{name}: output_padding={output_padding}: less than the stride or the dilation."
        )
    zeros = [max(0, more - pad) for more, pad in zip(added, pads, strict=True)]
    behind = tuple(max(0, pad - more) for more, pad in zip(added, pads, strict=True))
    reach = [d * (size - 1) for d, size in zip(dilations, w.shape[2:], strict=True)]
    reached = [
        (x.shape[2 + a] - 1) * strides[a] + reach[a] + 1 - pads[a] - behind[a] for a in range(rank)
    ]
    return reached, zeros, ConvSpec.of_rank(strides, (pads, behind), dilations, groups)


def with_batch(x: Tensor, rank: int) -> Tensor:
    """The input with a batch axis."""
    if not isinstance(x, Tensor):
        raise TypeError(f"input is {type(x).__name__}: a tensor is needed.")
    if x.dim() not in (rank + 1, rank + 2):
        raise RuntimeError(
            f"a {rank}-D convolution of a tensor with {x.dim()} dimensions: it takes {rank + 2}, or"
            f" {rank + 1} without a batch."
        )
    return x if x.dim() == rank + 2 else x.unsqueeze(0)


def computed_type(x: Tensor) -> torch.dtype:
    """What a convolution of x computes in: if autocast is on, by torch's rule for convolutions."""
    kind, narrow = x.device.type, (torch.float32, torch.bfloat16, torch.float16)
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return x.dtype
    return torch.get_autocast_dtype(kind) if x.dtype in narrow else x.dtype


def is_empty(x: Tensor, w: Tensor) -> bool:
    """Whether there is nothing to multiply: torch says what that gives, and what it refuses.

    Compiled code decides about images when it runs: their number may be a symbol.
    """
    sizes = x.shape[1:] if torch.compiler.is_compiling() else x.shape
    return isinstance(w, Tensor) and 0 in (*sizes, *w.shape)


def require_no_order(*, reproducible: bool) -> None:
    """Refuse a fixed order of sums where gradients are asked for."""
    if reproducible:
        raise UnsupportedError(
            "reproducible=True with gradients: sums have a fixed order without them only. Call it"
            " inside torch.no_grad()."
        )


def require_residual(residual: Tensor | None, x: Tensor, expected: list[int]) -> None:
    """A residual is a tensor like the output."""
    if residual is None:
        return
    if list(residual.shape) != expected or residual.dtype != x.dtype:
        raise RuntimeError(
            f"residual {list(residual.shape)} of {residual.dtype}: the output is {expected} of"
            f" {x.dtype}, and it must be the same."
        )


def steps_of(
    rank: int, stride: Axes, dilation: Axes, groups: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Stride and dilation of each axis."""
    if groups < 1:
        raise RuntimeError(f"groups={groups}: at least 1 is needed.")
    return _per_axis("stride", stride, rank, 1), _per_axis("dilation", dilation, rank, 1)


def paddings(
    padding: str | Axes, w: Tensor, strides: tuple[int, ...], dilations: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Numbers before each axis, and after it."""
    rank = len(strides)
    if not isinstance(padding, str):
        pads = _per_axis("padding", padding, rank, 0)
        return pads, pads
    if padding not in ("same", "valid"):
        raise RuntimeError(f'padding={padding!r}: "same", "valid" or numbers.')
    if padding == "same" and any(step != 1 for step in strides):
        raise RuntimeError(f"padding='same' with stride {strides}: defined for stride 1 only.")
    reach = zip(w.shape[2:], dilations, strict=True)
    total = [d * (k - 1) if padding == "same" else 0 for k, d in reach]
    return tuple(pad // 2 for pad in total), tuple(pad - pad // 2 for pad in total)


def _per_axis(name: str, value: Axes, rank: int, least: int) -> tuple[int, ...]:
    listed = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not all(isinstance(number, int) for number in listed):
        listed = tuple(_whole(name, number) for number in listed)
    if len(listed) not in (1, rank):
        raise RuntimeError(f"{name}={value}: one number, or one for each of {rank} axes.")
    if min(listed) < least:
        raise RuntimeError(f"{name}={value}: at least {least} is needed.")
    return listed * rank if len(listed) == 1 else listed


def _whole(name: str, number: Any) -> int:
    """An integer of NumPy, or a tensor with one, as torch takes them too."""
    try:
        return index(number)
    except TypeError:
        raise TypeError(f"{name}={number}: integers are needed.") from None


def _require_operands(name: str, operands: Operands, rank: int) -> None:
    x, w, bias = operands
    for label, operand in (("weight", w), ("bias", bias)):
        if operand is None and label == "bias":
            continue
        if not isinstance(operand, Tensor):
            raise TypeError(f"{name}: {label} is {type(operand).__name__}: a tensor is needed.")
        if operand.dtype != x.dtype or operand.device != x.device:
            raise RuntimeError(
                f"{name}: input is {x.dtype} on {x.device}, {label} {operand.dtype} on"
                f" {operand.device}: both must be the same. Cast or move one."
            )
    if w.dim() != rank + 2:
        raise RuntimeError(f"{name}: weight {list(w.shape)}: {rank + 2} dimensions are needed.")


def _require_bias(name: str, bias: Tensor | None, channels: int) -> None:
    if bias is not None and list(bias.shape) != [channels]:
        raise RuntimeError(f"{name}: bias {list(bias.shape)}: [{channels}] is needed.")


def _require_positive_sizes(name: str, sizes: list[int]) -> None:
    if any(size < 1 for size in sizes):
        raise RuntimeError(
            f"{name}: an output of {sizes} positions: at least 1 along each axis. Use a smaller"
            " kernel, or another padding."
        )


def require_no_tangents(*tensors: Tensor | None) -> None:
    """Refuse forward-mode differentiation in words: our ops have reverse-mode formulas only."""
    if torch.compiler.is_compiling() or torch.autograd.forward_ad._current_level < 0:  # noqa: SLF001
        return
    unpack: Any = torch.autograd.forward_ad.unpack_dual
    for tensor in tensors:
        if tensor is not None and unpack(tensor).tangent is not None:
            raise UnsupportedError(
                "forward-mode differentiation (torch.func.jvp, jacfwd, forward_ad) of a convolution"
                " on trnconv's kernels: they have formulas for reverse mode only. Use vjp or"
                " jacrev, or run the unpatched model."
            )


def wants_gradient(*tensors: Tensor | None) -> bool:
    """Whether autograd would record what is computed of these."""
    asked = any(tensor is not None and tensor.requires_grad for tensor in tensors)
    return torch.is_grad_enabled() and asked

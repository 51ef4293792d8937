"""The torch backend: the same three maps by torch's own operators, for comparison and fallback."""

from __future__ import annotations

from typing import Any

import torch

from trnconv.geometry import ZEROS
from trnconv.pytorch.extras import Extras
from trnconv.pytorch.geometry import Splice, Window

_FORWARD: tuple[Any, Any, Any] = (
    torch.nn.functional.conv1d,
    torch.nn.functional.conv2d,
    torch.nn.functional.conv3d,
)


def convolution(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None,
    window: Window,
    extras: Extras,
) -> torch.Tensor:
    """x * w + bias, and the end that `extras` asks for."""
    padded = torch.nn.functional.pad(x, _pads(window))
    options = {"stride": window.stride, "dilation": window.dilation, "groups": window.groups}
    return extras.finish(_FORWARD[len(window.stride) - 1](padded, w, bias, **options))


def spliced(
    pieces: list[torch.Tensor],
    w: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    splice: Splice,
) -> torch.Tensor:
    """The same one step after the other: join, upsample, pad, convolve, finish."""
    x = torch.cat(pieces, dim=2)
    for axis, (factor, skip) in enumerate(zip(splice.upsample, splice.skip, strict=True)):
        if factor > 1:
            x = x.repeat_interleave(factor, dim=2 + axis)
            x = x.narrow(2 + axis, skip, x.shape[2 + axis] - skip)
    for mode in dict.fromkeys(splice.modes):
        sides = [
            side if own == mode else 0
            for before, after, own in zip(
                reversed(splice.before), reversed(splice.after), reversed(splice.modes), strict=True
            )
            for side in (before, after)
        ]
        if any(sides):
            named = {ZEROS: "constant"}.get(mode, mode)
            x = torch.nn.functional.pad(x, sides, mode=named)
    y = torch.nn.functional.conv3d(x, w, bias, splice.stride, 0, splice.dilation, splice.groups)
    return Extras(activation=splice.activation, residual=residual).finish(y)


def input_gradient(
    dy: torch.Tensor, w: torch.Tensor, x_shape: list[int], window: Window
) -> torch.Tensor:
    """The gradient of the padded input, cropped."""
    return _backward(torch.empty(x_shape, dtype=dy.dtype, device=dy.device), w, dy, window)[0]


def filter_gradient(
    x: torch.Tensor, dy: torch.Tensor, kernel: list[int], window: Window
) -> torch.Tensor:
    """The gradient of w."""
    w = torch.empty([dy.shape[1], x.shape[1] // window.groups, *kernel], dtype=x.dtype)
    return _backward(x, w.to(x.device), dy, window)[1]


def _backward(
    x: torch.Tensor, w: torch.Tensor, dy: torch.Tensor, window: Window
) -> tuple[torch.Tensor, torch.Tensor]:
    padded = torch.nn.functional.pad(x, _pads(window))
    rank = len(window.stride)
    dx, dw, _ = torch.ops.aten.convolution_backward(
        dy,
        padded,
        w,
        None,
        window.stride,
        [0] * rank,
        window.dilation,
        False,  # noqa: FBT003 (not transposed; the operator's own order)
        [0] * rank,
        window.groups,
        [True, True, False],
    )
    crop = tuple(
        slice(before, before + size)
        for before, size in zip(window.before, x.shape[2:], strict=True)
    )
    return dx[(slice(None), slice(None), *crop)].contiguous(), dw


def _pads(window: Window) -> list[int]:
    """torch.nn.functional.pad counts axes from the last."""
    return [side for pair in reversed(window.pads) for side in pair]

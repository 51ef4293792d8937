"""Functions of torch whose bits depend on how many frames they get, done frame by frame.

torch's CPU kernels compute the last elements of a float32 tensor by another exponential than the
rest, and add up the channels of a single position in another order than those of several. Frames of
one size, each in a tensor of its own, have the same bits whoever their neighbours are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_ACTIVATIONS = ("silu", "sigmoid", "tanh", "gelu")
_CHANNELS = 1


def on_each_frame(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> torch.Tensor | None:
    """The function on every frame of [N, C, T, H, W] or every image; None: bits are the same."""
    x = args[0] if args else None
    if not isinstance(x, torch.Tensor) or x.device.type != "cpu" or x.dim() not in (4, 5):
        return None
    if not _depends_on_neighbours(getattr(func, "__name__", ""), kwargs):
        return None
    axis = 2 if x.dim() == 5 else 0
    frames = [func(one.contiguous(), *args[1:], **kwargs) for one in x.chunk(x.shape[axis], axis)]
    return torch.cat(frames, dim=axis)


def _depends_on_neighbours(name: str, kwargs: dict[str, Any]) -> bool:
    if kwargs.get("inplace") or kwargs.get("out") is not None:
        return False
    return name in _ACTIVATIONS or (name == "normalize" and kwargs.get("dim") == _CHANNELS)

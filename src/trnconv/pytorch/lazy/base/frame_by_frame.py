"""Operators whose bits depend on how many frames they get, done frame by frame.

torch's CPU kernels compute the last elements of a float32 tensor by another exponential than the
rest, and add up the channels of a single position in another order than those of several. Frames of
one size, each in a tensor of its own, have the same bits whoever their neighbours are. Lines of
samples have no frames: they are done in blocks of one size, filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_ACTIVATIONS = ("aten::silu", "aten::sigmoid", "aten::tanh", "aten::gelu")
_OF_LINES = (*_ACTIVATIONS, "aten::elu", "aten::sin")  # ELU, and snake
_LINE_AXES = 3  # [N, C, samples]
_BLOCK_ELEMS = 4096  # whole vectors, and fewer than torch shares out between threads
_NORMS = ("aten::linalg_vector_norm",)  # F.normalize takes one of the channels
_CHANNELS = 1


def on_each_frame(name: str, func: Any, args: Any, kwargs: Any) -> torch.Tensor | None:
    """An operator on every frame of [N, C, T, H, W], image or block; None: bits are the same."""
    x = args[0] if args else None
    if not isinstance(x, torch.Tensor) or x.device.type != "cpu":
        return None
    if x.dim() == _LINE_AXES and name in _OF_LINES:
        return _in_blocks(x, lambda block: func(block, *args[1:], **kwargs))
    if x.dim() not in (4, 5):
        return None
    if name not in _ACTIVATIONS and not (name in _NORMS and _along_channels(args)):
        return None
    axis = 2 if x.dim() == 5 else 0
    frames = [
        func(frame.contiguous(), *args[1:], **kwargs) for frame in x.chunk(x.shape[axis], axis)
    ]
    return torch.cat(frames, dim=axis)


def _in_blocks(x: torch.Tensor, function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """A function of single elements, on whole blocks only."""
    missing = -x.numel() % _BLOCK_ELEMS
    blocks = torch.nn.functional.pad(x.flatten(), (0, missing)).reshape(-1, _BLOCK_ELEMS)
    done = [function(block) for block in blocks.unbind()]
    return torch.cat(done)[: x.numel()].reshape(x.shape)


def _along_channels(args: Any) -> bool:
    """self, ord, dim, keepdim: the axes stay, and only channels are added up."""
    return len(args) > 3 and list(args[2] or ()) == [_CHANNELS] and bool(args[3])

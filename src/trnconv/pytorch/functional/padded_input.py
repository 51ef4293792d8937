"""What a convolution of torch's pads, by its attributes at the time of a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from trnconv.geometry import CIRCULAR, REFLECT, REPLICATE, ZEROS

_BY_KERNELS = {"constant": ZEROS, REFLECT: REFLECT, REPLICATE: REPLICATE, CIRCULAR: CIRCULAR}


@dataclass(frozen=True)
class PaddedInput:
    """An input, and the padding of it that is left to the convolution."""

    x: torch.Tensor
    padding: Any  # as torch's functions take it
    mode: str  # as kernels name it


def padded_input(module: Any, x: torch.Tensor) -> PaddedInput:
    """As torch's `_conv_forward` pads: zeros by `padding`, by all other modes with `F.pad`.

    Then `_reversed_padding_repeated_twice` counts, which is computed when a module is built: models
    that are to tile without a seam change it, or the mode, for single axes. Kernels pad as much
    before an axis as behind it themselves; for all else, this is `F.pad`.
    """
    if module.padding_mode == ZEROS:
        return PaddedInput(x, module.padding, ZEROS)
    sides = tuple(module._reversed_padding_repeated_twice)  # noqa: SLF001 (what torch reads)
    before, after = sides[-2::-2], sides[::-2]
    mode = _BY_KERNELS.get(module.padding_mode)
    rank = len(module.kernel_size)
    whole = all(type(side) is int and side >= 0 for side in sides)
    if mode and whole and before == after and len(before) == rank and _is_full(x, rank):
        return PaddedInput(x, before, mode)
    return PaddedInput(torch.nn.functional.pad(x, sides, mode=module.padding_mode), 0, ZEROS)


def _is_full(x: object, rank: int) -> bool:
    """Whether it is a tensor of this rank, with elements but for want of images."""
    if not isinstance(x, torch.Tensor):
        return False
    return x.dim() in (rank + 1, rank + 2) and 0 not in x.shape[1:]

"""Convolutions that run at once, in the stats."""

from __future__ import annotations

import torch

from trnconv.geometry import ZEROS, conv_shape, transposed_shape
from trnconv.problem.policy import ALWAYS_DIRECT, Policy
from trnconv.pytorch.functional.arguments import computed_type
from trnconv.pytorch.lazy.base.stats import PatchStats, PolicedConv
from trnconv.pytorch.lazy.convolutions.filters import Filters

Tensor = torch.Tensor


def count_forward(
    stats: PatchStats, module: str, x: Tensor, filters: Filters, policy: Policy = ALWAYS_DIRECT
) -> None:
    """A convolution of x with its own padding. Of no elements, it is no work."""
    if not x.numel():
        return
    window = filters.window()
    hidden = 3 - filters.rank
    shape = conv_shape(
        _batched(x, filters.rank),
        tuple(filters.weight.shape),
        stride=window.stride[hidden:],
        padding=list(window.padding[hidden:]),
        dilation=window.dilation[hidden:],
        groups=filters.groups,
        padding_mode=filters.mode or ZEROS,
    )
    stats.works[PolicedConv(module, shape, _type_name(x), policy=policy)] += 1


def count_transposed(
    stats: PatchStats,
    module: str,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    output_padding: int | tuple[int, ...] = 0,
    groups: int = 1,
    dilation: int | tuple[int, ...] = 1,
) -> None:
    """A transposed convolution, by the arguments of torch's function."""
    del bias
    if not x.numel():
        return
    shape = transposed_shape(
        _batched(x, weight.dim() - 2),
        tuple(weight.shape),
        stride=stride,
        padding=padding,
        output_padding=output_padding,
        groups=groups,
        dilation=dilation,
    )
    stats.works[PolicedConv(module, shape, _type_name(x))] += 1


def _batched(x: Tensor, rank: int) -> tuple[int, ...]:
    return tuple(x.shape) if x.dim() == rank + 2 else (1, *x.shape)


def _type_name(x: Tensor) -> str:
    """The type that it is computed in, as kernels and plans call it."""
    return str(computed_type(x)).removeprefix("torch.")

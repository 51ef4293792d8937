"""Group norm over bands: statistics of every band, merged as if there were one.

Mean and sum of squared deviations are taken of each band in float64 (float32 on a device), and
merged in the order of ranks (Chan, Golub, LeVeque), so that every rank has the same numbers. What
differs from torch on one rank is the rounding of the statistics alone: torch sums in float32, with
a relative error of a few units of 2**-24; scale and shift are then rounded to float32 and applied
by one multiply-add, as torch does. In bf16, a result differs by at most one unit in the last place.
"""

from __future__ import annotations

import torch

from trnconv.parallel.comm import Comm
from trnconv.parallel.differentiable import stacked

Tensor = torch.Tensor


def group_norm(
    comm: Comm,
    x: Tensor,
    groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """torch.nn.functional.group_norm of a tensor of which every rank has a band."""
    mean, variance = _statistics(comm, x, groups)
    scale = torch.rsqrt(variance + eps)
    count, channels = x.shape[:2]
    per_channel = channels // groups
    scale = scale.repeat_interleave(per_channel, dim=1)
    shift = -mean.repeat_interleave(per_channel, dim=1) * scale
    if weight is not None:
        scale, shift = scale * weight, shift * weight
    if bias is not None:
        shift = shift + bias
    work = torch.promote_types(x.dtype, torch.float32)
    shape = (count, channels, *[1] * (x.dim() - 2))
    scaled = x.to(work) * scale.to(work).reshape(shape) + shift.to(work).reshape(shape)
    return scaled.to(x.dtype)


def _statistics(comm: Comm, x: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Mean and variance of every group, over all ranks: [N, groups] each."""
    wide = torch.float64 if x.device.type == "cpu" else torch.float32
    values = x.reshape(x.shape[0], groups, -1).to(wide)
    mean = values.mean(-1)
    spread = (values - mean[..., None]).square().sum(-1)
    count = torch.full_like(mean, values.shape[-1])
    counts, means, spreads = stacked(torch.stack([count, mean, spread]), comm).unbind(1)
    total = counts.sum(0)
    merged = (counts * means).sum(0) / total
    between = (counts * (means - merged).square()).sum(0)
    return merged, (spreads.sum(0) + between) / total

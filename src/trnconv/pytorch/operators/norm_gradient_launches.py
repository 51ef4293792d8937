"""Gradients of norms by kernels: one launch for norms over channels, three for those of groups.

Of groups: statistics of channels, sums over positions, and dx, for each image. What is known of a
channel between the launches is some numbers: they are made by torch where x is, since gamma and
beta change with every step of a training.

    n = r x + s     g = factor * gamma     u = g n + beta
    dx = r (g du - m1 - n m2)     m1, m2: means over a group of g du and of g du n
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import torch

from nkisim.machine import Machine
from trnconv.fused_ops.group_norm.problem import GroupNorm, statistics_launch
from trnconv.fused_ops.group_norm_gradient.problem import (
    GroupNormGradient,
    input_launch,
    sums_launch,
)
from trnconv.fused_ops.rms_norm.problem import RmsNorm
from trnconv.fused_ops.rms_norm_gradient.problem import RmsNormGradient, launch_of
from trnconv.fused_ops.sweep import channel_tiles
from trnconv.pytorch.backends.arrays import dtype_name
from trnconv.pytorch.backends.kernel_place import DevicePlace, SimulatedPlace
from trnconv.pytorch.operators.norm_call import GROUPS, LENGTH, NormCall, flat
from trnconv.pytorch.operators.norm_derivatives import in_all_frames

Tensor = torch.Tensor
Gradients = tuple[Tensor, Tensor, Tensor]  # dx; of gamma and of beta [C], float32
Weights = tuple[Tensor | None, Tensor | None]


def gradient_by_kernels(
    call: NormCall,
    tensors: tuple[Tensor, Tensor],
    weights: Weights,
    place: SimulatedPlace | DevicePlace,
) -> Gradients | None:
    """Of x and dy, gamma and beta; None if no kernel does it."""
    x, dy = tensors
    problem = call.problem(tuple(x.shape), dtype_name(x), has_beta=weights[1] is not None)
    where = (place.machine, place.cores)
    if isinstance(problem, RmsNorm):
        gradient = RmsNormGradient(problem)
        return (
            None if gradient.refuses(*where) else _channels(gradient, call, tensors, weights, place)
        )
    image = GroupNorm(1, problem.channels, problem.groups, problem.positions, problem.dtype)
    of_image = GroupNormGradient(
        problem.channels, problem.positions, problem.dtype, problem.activation
    )
    if call.kind != GROUPS or image.refuses(*where) or of_image.refuses(*where):
        return None
    groups = _Groups(image, of_image, call, _scale(x, weights[0], call.factor), place)
    images = [groups.gradients(x[n : n + 1], dy[n : n + 1], weights[1]) for n in range(len(x))]
    dx, of_gamma, of_beta = (list(parts) for parts in zip(*images, strict=True))
    return torch.cat(dx), torch.stack(of_gamma).sum(0), torch.stack(of_beta).sum(0)


def _scale(x: Tensor, gamma: Tensor | None, factor: float) -> Tensor:
    scale = x.new_full((x.shape[1],), factor, dtype=torch.float32)
    return scale if gamma is None else scale * gamma.reshape(-1)


def _channels(
    gradient: RmsNormGradient,
    call: NormCall,
    tensors: tuple[Tensor, Tensor],
    weights: Weights,
    place: SimulatedPlace | DevicePlace,
) -> Gradients:
    """One launch."""
    (x, dy), (gamma, beta) = tensors, weights
    root = call.factor if call.kind == LENGTH else call.factor * sqrt(x.shape[1])
    scale = _scale(x, gamma, root)
    shift = torch.zeros_like(scale) if beta is None else beta.reshape(-1).float()
    constants = _in_tiles(torch.stack([scale, shift], 1), place.machine)
    scales = constants[:, 0::2].repeat_interleave(place.machine.partitions, dim=1)
    packed = (constants, scales if gradient.norm.is_wide else scales.bfloat16())
    launch = launch_of(gradient, (), place.machine, place.cores)
    dx, parts = place.call_all(launch, (_rows(x), _rows(dy), *packed), 2)
    sums = parts.sum(0)
    whole = in_all_frames(call, dx.reshape(dy.shape), x)
    of_beta = torch.zeros_like(scale) if beta is None else sums[:, 1].contiguous()
    return whole, root * sums[:, 0], of_beta


def _rows(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(flat(tuple(tensor.shape)))


def _in_tiles(numbers: Tensor, machine: Machine) -> Tensor:
    """Numbers of every channel [C, n] on the partitions of its tile, [partitions, n * tiles]."""
    channels, each = numbers.shape
    tiles = channel_tiles(channels, machine)
    placed = numbers.new_zeros((machine.partitions, each * len(tiles)))
    for tile, (first, count) in enumerate(tiles):
        placed[:count, each * tile : each * (tile + 1)] = numbers[first : first + count]
    return placed


@dataclass(frozen=True)
class _Groups:
    """A group norm of one image after the other."""

    norm: GroupNorm
    gradient: GroupNormGradient
    call: NormCall
    scale: Tensor  # factor * gamma [C]
    place: SimulatedPlace | DevicePlace

    def gradients(self, x: Tensor, dy: Tensor, beta: Tensor | None) -> Gradients:
        """Three launches."""
        machine, cores = self.place.machine, self.place.cores
        given = (_rows(x), _rows(dy))
        r, s = self._statistics(given[0])
        a, b = self.scale * r, self.scale * s
        b = b if beta is None else b + beta.reshape(-1)
        first = _in_tiles(torch.stack([a, b, r, s], 1), machine)
        launch = sums_launch(self.gradient, (), machine, cores)
        (parts,) = self.place.call_all(launch, (*given, first), 1)
        of_products, of_du = parts.sum(0).unbind(1)
        m1, m2 = self._mean(self.scale * of_du), self._mean(self.scale * of_products)
        second = torch.stack([a, b, a, -r * r * m2, -r * (m1 + m2 * s)], 1)
        launch = input_launch(self.gradient, (), machine, cores)
        (dx,) = self.place.call_all(launch, (*given, _in_tiles(second, machine)), 1)
        of_beta = torch.zeros_like(of_du) if beta is None else of_du.contiguous()
        return dx.reshape(x.shape), self.call.factor * of_products, of_beta

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """r and s of every channel: n = r x + s."""
        launch = statistics_launch(self.norm, self.place.machine, self.place.cores)
        count, mean, spread = self.place.launch(launch, (x,))[0].unbind(-1)  # [parts, C] each
        of_channel = (count * mean).sum(0) / count.sum(0)
        varied = spread + count * (mean - of_channel).square()
        of_group = self._over_groups(of_channel)
        variance = varied.sum(0) / count.sum(0) + (of_channel - of_group).square()
        r = torch.rsqrt(self._over_groups(variance) + self.call.eps)
        return r, -r * of_group

    def _mean(self, sums: Tensor) -> Tensor:
        """The mean over a group, of sums over positions of its channels; on every channel."""
        return self._over_groups(sums) / self.norm.positions

    def _over_groups(self, numbers: Tensor) -> Tensor:
        grouped = numbers.reshape(self.norm.groups, -1)
        return grouped.mean(1, keepdim=True).expand_as(grouped).reshape(-1)

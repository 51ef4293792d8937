"""The problem of a group norm's gradient, its decisions, and its two launches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from nkisim.machine import Machine
from trnconv.algorithms.algorithm import Array
from trnconv.fused_ops.group_norm_gradient.kernel import (
    KINDS,
    SLOTS,
    group_norm_gradient,
    group_norm_gradient_on_two_cores,
    group_norm_sums,
    group_norm_sums_on_two_cores,
)
from trnconv.fused_ops.group_norm_gradient.price import GradientPasses
from trnconv.fused_ops.group_norm_gradient.recipe import GroupNormGradientRecipe
from trnconv.fused_ops.launch import FusedOpLaunch, launch_on
from trnconv.fused_ops.packing import on_partitions
from trnconv.fused_ops.price import LaunchPrice, clock_of, slowest
from trnconv.fused_ops.problem import FusedOp
from trnconv.fused_ops.refusal import (
    bias_reasons,
    machine_reasons,
    shape_reasons,
    slope_reasons,
)
from trnconv.fused_ops.step_sums import COLUMNS
from trnconv.fused_ops.sweep import channel_tiles, cut_of, sweeps, widest_step
from trnconv.problem.epilogue import ITEM_BYTES

_WIDTH_IN_BANKS = 4  # positions of a step, as wide as those of norms
_LEAST_WIDTH = 32
_NUMBERS = 5  # of a channel, at most
_SUMMED = 8  # instructions of a step and a tile, at most, of either kernel


@dataclass(frozen=True)
class GroupNormGradient(FusedOp):
    """Sums over positions, and dx, of one image [channels, positions]: groups are the caller's.

    Its numbers for each channel are those of `kernel.py`.
    """

    channels: int
    positions: int
    dtype: str = "bfloat16"
    activation: str = "silu"

    def _reasons(self, machine: Machine, cores: int) -> Iterator[str]:
        yield from shape_reasons((self.channels, self.positions), self.dtype)
        yield from machine_reasons(machine, cores)
        yield from slope_reasons(self.activation)
        yield from bias_reasons(machine, self.activation)
        if _width(self, machine) < _LEAST_WIDTH:
            yield (
                f"{self.channels} channels: tiles of x and dy do not fit SBUF, which has"
                f" {machine.sbuf_usable_bytes_per_partition} bytes a partition; split the groups"
            )

    def modelled(self, machine: Machine, cores: int) -> LaunchPrice:
        """Both launches, one after the other."""
        return self.sums_price(machine, cores) + self.input_price(machine, cores)

    def sums_price(self, machine: Machine, cores: int = 1) -> LaunchPrice:
        """The first launch."""
        return self._launch_price(machine, cores, GradientPasses.sums_price, 2)

    def input_price(self, machine: Machine, cores: int = 1) -> LaunchPrice:
        """The second launch."""
        return self._launch_price(machine, cores, GradientPasses.input_price, 3)

    def _launch_price(
        self,
        machine: Machine,
        cores: int,
        price_of: Callable[[GradientPasses], LaunchPrice],
        tensors: int,
    ) -> LaunchPrice:
        self.require(machine, cores)
        clock, recipes = clock_of(machine, cores), recipes_of(self, machine, cores)
        moved = tensors * ITEM_BYTES[self.dtype] * self.channels * self.positions
        return slowest((price_of(GradientPasses(recipe, clock)) for recipe in recipes), moved)


def _width(problem: GroupNormGradient, machine: Machine) -> int:
    """Positions of a step; those of the second launch have more tiles."""
    tiles, item = len(channel_tiles(problem.channels, machine)), ITEM_BYTES[problem.dtype]
    constants = tiles * 4 * (_NUMBERS + KINDS * (COLUMNS + 1) + 1)
    rings = 3 * SLOTS + 3 + 3  # x, dy, du; lines, dx
    widest = _WIDTH_IN_BANKS * machine.psum_bank_fp32_elems
    return widest_step(machine, constants, item * (tiles * rings + 1), widest)


@lru_cache(maxsize=1024)
def recipes_of(
    problem: GroupNormGradient, machine: Machine, cores: int
) -> tuple[GroupNormGradientRecipe, ...]:
    """What both kernels do, on each core: steps as wide as fit."""
    tiles = channel_tiles(problem.channels, machine)
    width = min(_width(problem, machine), -(-problem.positions // cores))
    cut = cut_of(width, _SUMMED * len(tiles))
    return tuple(
        GroupNormGradientRecipe(
            shape=(1, problem.channels, problem.positions),
            tiles=tiles,
            lines=machine.partitions,
            width=width,
            between=problem.dtype,
            activation=problem.activation,
            part=part,
            parts=cores,
            rows=rows,
        )
        for part, rows in enumerate(sweeps(1, problem.positions, cut, machine, cores))
    )


def sums_launch(
    problem: GroupNormGradient, packed: tuple[Array, ...], machine: Machine, cores: int
) -> FusedOpLaunch:
    """The first kernel with what `pack` makes of a, b, r and s; x and dy go before that."""
    problem.require(machine, cores)
    kernels = (group_norm_sums, group_norm_sums_on_two_cores)
    return launch_on(machine, kernels, packed, recipes_of(problem, machine, cores))


def input_launch(
    problem: GroupNormGradient, packed: tuple[Array, ...], machine: Machine, cores: int
) -> FusedOpLaunch:
    """The second kernel with what `pack` makes of a, b, A, B and C."""
    problem.require(machine, cores)
    kernels = (group_norm_gradient, group_norm_gradient_on_two_cores)
    return launch_on(machine, kernels, packed, recipes_of(problem, machine, cores))


def pack(numbers: Array, machine: Machine) -> tuple[Array]:
    """Numbers of every channel [C, 4 or 5], on the partitions of its tile."""
    return (on_partitions(numbers, channel_tiles(len(numbers), machine), machine),)


def simulate(
    problem: GroupNormGradient,
    tensors: tuple[Array, Array],
    numbers: tuple[Array, Array],
    machine: Machine,
    cores: int = 1,
) -> tuple[Array, Array]:
    """Sums [C, 2] and dx, of x and dy [1, C, P] and numbers of both launches, in nkisim."""
    first, second = (pack(of_channels, machine) for of_channels in numbers)
    sums = sums_launch(problem, first, machine, cores).run(*tensors).outputs
    dx = input_launch(problem, second, machine, cores).run(*tensors).outputs
    return np.asarray(sums).sum(axis=0), np.asarray(dx)

"""The problem of a group norm, its decisions, and what its two launches cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from nkisim.machine import Machine
from trnconv.algorithms.algorithm import Array
from trnconv.fused_ops.group_norm.apply_core import SLOTS, Y_SLOTS
from trnconv.fused_ops.group_norm.kernel import (
    channel_statistics,
    channel_statistics_on_two_cores,
    group_norm,
    group_norm_on_two_cores,
    group_scale_shift,
    group_scale_shift_on_two_cores,
)
from trnconv.fused_ops.group_norm.price import (
    ApplyLaunch,
    StatisticsLaunch,
    scale_shift_price,
    step_ns,
)
from trnconv.fused_ops.group_norm.recipe import GroupNormRecipe
from trnconv.fused_ops.group_norm.statistics_core import KINDS, RECORD, TRIPLE
from trnconv.fused_ops.launch import FusedOpLaunch, launch_on
from trnconv.fused_ops.packing import on_partitions
from trnconv.fused_ops.price import LaunchPrice, clock_of, slowest
from trnconv.fused_ops.problem import FusedOp
from trnconv.fused_ops.refusal import (
    bias_reasons,
    choice_reasons,
    machine_reasons,
    shape_reasons,
)
from trnconv.fused_ops.sweep import channel_tiles, cut_of, sweeps, widest_step
from trnconv.problem.epilogue import ACTIVATIONS, ITEM_BYTES
from trnconv.problem.limits import MAX_OFFSET

_WIDTH_IN_CHUNKS = 4
_COLUMNS = 288  # of records that are combined at once
_TILES = SLOTS + Y_SLOTS
_APPLIED = 5  # instructions of a step, at most, of either kernel
_SHARES_OF_A_CHUNK = 4
_SHARED = "bfloat16"  # sums of others take the Vector engine as long as records of them


@dataclass(frozen=True)
class GroupNorm(FusedOp):
    """act(gamma_c * (x - mean) * rsqrt(variance + eps) + beta_c) of groups of channels.

    x is [images, channels, frames * positions]; each image, or each frame of one image, has
    statistics of its own.
    """

    images: int
    channels: int
    groups: int
    positions: int
    dtype: str = "bfloat16"
    activation: str = "silu"
    eps: float = 1e-6
    frames: int = 1  # that have statistics of their own

    def _reasons(self, machine: Machine, cores: int) -> Iterator[str]:
        sizes = (self.images, self.channels, self.frames, self.positions)
        yield from shape_reasons(sizes, self.dtype)
        yield from choice_reasons("activation", self.activation, ACTIVATIONS)
        yield from machine_reasons(machine, cores)
        yield from bias_reasons(machine, self.activation)
        if self.groups < 1 or self.channels % self.groups:
            yield f"{self.groups} groups: they divide {self.channels} channels"
        if self.channels // self.groups > machine.partitions:
            yield (
                f"groups of {self.channels // self.groups} channels: at most {machine.partitions},"
                " the partitions of a tile; use more groups"
            )
        if self.images > 1 and self.frames > 1:
            yield f"{self.images} images of {self.frames} frames: one image a launch"
        if _width(self, machine) == 0:
            yield (
                f"{self.channels} channels: tiles of x and y do not fit SBUF, which has"
                f" {machine.sbuf_usable_bytes_per_partition} bytes a partition; split the groups"
            )

    def in_launches(self) -> tuple[GroupNorm, ...]:
        """The same as one launch after another, of as many groups as offsets reach.

        Groups have nothing to do with each other, and those of one image lie together.
        """
        group = self.channels // self.groups * self.positions
        most = max(1, MAX_OFFSET // group) if self.units == 1 else self.groups
        count = -(-self.groups // most)
        bounds = [self.groups * n // count for n in range(count + 1)]
        return tuple(
            replace(self, groups=end - at, channels=self.channels // self.groups * (end - at))
            for at, end in pairwise(bounds)
        )

    @property
    def units(self) -> int:
        """What has statistics of its own."""
        return self.images * self.frames

    def modelled(self, machine: Machine, cores: int) -> LaunchPrice:
        """Both launches, one after the other."""
        return self.statistics_price(machine, cores) + self.apply_price(machine, cores)

    def statistics_price(self, machine: Machine, cores: int = 1) -> LaunchPrice:
        """The first launch."""
        return self._launch_price(StatisticsLaunch, 1, machine, cores)

    def apply_price(self, machine: Machine, cores: int = 1) -> LaunchPrice:
        """The second launch."""
        return self._launch_price(ApplyLaunch, 2, machine, cores)

    def _launch_price(
        self,
        launch: type[StatisticsLaunch | ApplyLaunch],
        tensors: int,
        machine: Machine,
        cores: int,
    ) -> LaunchPrice:
        """The core that ends last, and the longest program of any."""
        item, clock = ITEM_BYTES[self.dtype], clock_of(machine, cores)
        prices = [
            launch(recipe, item, clock).price() for recipe in recipes_of(self, machine, cores)
        ]
        statistics = 4 * TRIPLE * self.units * cores * self.channels
        moved = tensors * item * self.units * self.channels * self.positions + statistics
        longest = max(price.instructions for price in prices)
        return replace(slowest(prices, moved), instructions=longest)

    def scale_shift_price(self, machine: Machine, cores: int = 1) -> LaunchPrice:
        """The other second launch: scales and shifts alone."""
        return scale_shift_price(recipes_of(self, machine, cores)[0], machine)


def _tiles(problem: GroupNorm, machine: Machine) -> tuple[tuple[int, int], ...]:
    return channel_tiles(problem.channels, machine, problem.channels // problem.groups)


def _width(problem: GroupNorm, machine: Machine) -> int:
    """Positions of a step, in whole chunks of statistics; 0 if not even one fits."""
    tiles = len(_tiles(problem, machine))
    records = TRIPLE + _COLUMNS + RECORD * _WIDTH_IN_CHUNKS
    sums = KINDS * _COLUMNS // (TRIPLE + RECORD)
    constants = 4 * machine.partitions + 4 * tiles * (2 * records + sums) + 200 * tiles
    position, chunk = _TILES * tiles * ITEM_BYTES[problem.dtype], machine.bn_stats_max_elems
    return widest_step(machine, constants, position, _WIDTH_IN_CHUNKS * chunk, chunk)


def _shared(problem: GroupNorm, width: int, machine: Machine) -> int:
    """Positions of a whole step whose sums two engines take, so that both end together."""
    unit = machine.bn_stats_max_elems // _SHARES_OF_A_CHUNK
    if problem.dtype != _SHARED or width < 2 * unit:
        return 0
    return min(range(unit, width, unit), key=lambda shared: step_ns(width, shared, machine))


@lru_cache(maxsize=1024)
def recipes_of(problem: GroupNorm, machine: Machine, cores: int) -> tuple[GroupNormRecipe, ...]:
    """What both kernels do, on each core."""
    chunk, tiles = machine.bn_stats_max_elems, _tiles(problem, machine)
    share = -(-problem.units * problem.positions // cores)
    width = min(_width(problem, machine), chunk * -(-share // chunk), problem.positions)
    shared = _shared(problem, width, machine)
    stride = RECORD * -(-(width - shared) // chunk) + (TRIPLE if shared else 0)
    cut = cut_of(width, _APPLIED * len(tiles))
    rows = sweeps(problem.units, problem.positions, cut, machine, cores)
    whole = problem.positions * problem.frames
    return tuple(
        GroupNormRecipe(
            shape=(problem.images, problem.channels, whole),
            images=problem.units,
            image_pitch=problem.positions if problem.frames > 1 else problem.channels * whole,
            channel_pitch=whole,
            tiles=tiles,
            lines=machine.partitions,
            width=width,
            chunk=chunk,
            shared=shared,
            held=_COLUMNS // stride,
            stride=stride,
            part=core,
            parts=cores,
            eps=problem.eps,
            activation=problem.activation,
            rows=rows[core],
        )
        for core in range(cores)
    )


def statistics_launch(problem: GroupNorm, machine: Machine, cores: int) -> FusedOpLaunch:
    """The first kernel; it takes x."""
    problem.require(machine, cores)
    kernels = (channel_statistics, channel_statistics_on_two_cores)
    return launch_on(machine, kernels, (), recipes_of(problem, machine, cores))


def apply_launch(
    problem: GroupNorm, gamma: Array, beta: Array, machine: Machine, cores: int
) -> FusedOpLaunch:
    """The second kernel; it takes x and statistics."""
    problem.require(machine, cores)
    constants = _constants(problem, gamma, beta, machine)
    kernels = (group_norm, group_norm_on_two_cores)
    return launch_on(machine, kernels, (constants,), recipes_of(problem, machine, cores))


def scale_shift_launch(
    problem: GroupNorm, gamma: Array, beta: Array, machine: Machine, cores: int = 1
) -> FusedOpLaunch:
    """What a convolution's start takes: the kernel takes statistics of as many cores as counted."""
    problem.require(machine, cores)
    constants = _constants(problem, gamma, beta, machine)
    kernels = (group_scale_shift, group_scale_shift_on_two_cores)
    return launch_on(machine, kernels, (constants,), recipes_of(problem, machine, cores))


def _constants(problem: GroupNorm, gamma: Array, beta: Array, machine: Machine) -> Array:
    """gamma and beta of every tile, and the matrix that averages over groups."""
    group = problem.channels // problem.groups
    numbers = np.stack([gamma, beta], 1)
    packed = on_partitions(numbers, _tiles(problem, machine), machine)
    groups = np.arange(machine.partitions) // group
    average = (groups[:, None] == groups[None, :]) / group
    return np.concatenate([packed, average.astype(np.float32)], 1)


def simulate(
    problem: GroupNorm, x: Array, gamma: Array, beta: Array, machine: Machine, cores: int = 1
) -> Array:
    """y of both kernels in nkisim."""
    statistics = statistics_launch(problem, machine, cores).run(x).outputs
    launch = apply_launch(problem, gamma, beta, machine, cores)
    return np.asarray(launch.run(x, statistics).outputs)

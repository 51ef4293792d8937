"""The problem of a channel norm's gradient, its decisions, and its launch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from nkisim.machine import Machine
from trnconv.ask.ends import IDENTITY, ITEM_BYTES
from trnconv.forms.form import Array
from trnconv.neighbours.chain import busy_of
from trnconv.neighbours.channel_norm import problem as channel_norm
from trnconv.neighbours.channel_norm.problem import ChannelNorm, ChannelNormPlan
from trnconv.neighbours.channel_norm.square_sums import SLOTS
from trnconv.neighbours.channel_norm_gradient.kernel import (
    GIVEN,
    NORMED,
    channel_norm_gradient,
    channel_norm_gradient_on_two_cores,
)
from trnconv.neighbours.channel_norm_gradient.price import GradientStep, launch_price
from trnconv.neighbours.channel_norm_gradient.recipe import ChannelNormGradientRecipe
from trnconv.neighbours.launch import NeighbourLaunch, launch_on
from trnconv.neighbours.price import LaunchPrice, clock_of
from trnconv.neighbours.refusal import require, slope_reasons
from trnconv.neighbours.step_sums import COLUMNS
from trnconv.neighbours.sweep import Cut, SweepRow, channel_tiles, sweeps

_TURN_INSTRUCTIONS = 4000  # static, of a turn: its start and end are then a few % of it
_LEAST_WIDTH = 32  # positions of a step; below, engines spend their time on starting
_PASSES = (0, 1, 2)


@dataclass(frozen=True)
class ChannelNormGradient:
    """dx of x and dy, and sums over positions of du n and of du, of a norm and its activation."""

    norm: ChannelNorm

    def refuses(self, machine: Machine, cores: int = 1) -> str:
        """Why there is no plan, in words; empty if there is one."""
        return next(self._reasons(machine, cores), "")

    def _reasons(self, machine: Machine, cores: int) -> Iterator[str]:
        plain = replace(self.norm, activation=IDENTITY, has_beta=False)
        yield from filter(None, (plain.refuses(machine, cores),))
        yield from slope_reasons(self.norm.activation)
        if _width(self.norm, machine) < _LEAST_WIDTH:
            yield (
                f"{self.norm.channels} channels: {_step_bytes(self.norm, machine)} bytes a position"
                f" in SBUF, which has {machine.sbuf_usable_bytes_per_partition} a partition;"
                " split them"
            )

    def price(self, machine: Machine, cores: int = 1) -> LaunchPrice:
        """What it takes, in closed form. Modelled."""
        require(self, machine, cores)
        return _price(self, machine, cores)


@dataclass(frozen=True)
class ChannelNormGradientPlan:
    """Decisions: those of the norm's sums, and which products the GpSimd engine makes."""

    norm: ChannelNormPlan
    gpsimd_passes: int


@lru_cache(maxsize=4096)
def plan_of(problem: ChannelNormGradient, machine: Machine, cores: int) -> ChannelNormGradientPlan:
    """The widest step that fits, with the work dealt so that the busiest engine has least."""
    norm = problem.norm
    share = -(-norm.images * norm.positions // cores)
    width = min(_width(norm, machine), share, norm.positions)
    clock = clock_of(machine, cores)
    passes = _PASSES if norm.activation != IDENTITY else _PASSES[:2]
    choices = [
        (columns, count) for columns in range(0, width + 1, max(1, width // 4)) for count in passes
    ]

    def busiest(choice: tuple[int, int]) -> tuple[float, ...]:
        return max(busy_of(GradientStep(norm, clock, *choice).stages(width)).values()), *choice

    columns, count = min(choices, key=busiest)
    length = GradientStep(norm, clock, columns, count).length(width)
    cut = Cut(width, max(1, _TURN_INSTRUCTIONS // length))
    return ChannelNormGradientPlan(ChannelNormPlan(cut, columns), count)


def _step_bytes(norm: ChannelNorm, machine: Machine) -> int:
    """SBUF of a partition for one position of a step: every tile that the kernel's core holds."""
    item = ITEM_BYTES[norm.dtype]
    squares = channel_norm.square_bytes(norm)
    of_type = SLOTS + GIVEN + 2 * NORMED + 2 + 2  # x, dy, n and du, scale du - n S, dx
    tiles = len(channel_tiles(norm.channels, machine))
    return tiles * (of_type * item + (2 + 2) * squares) + item  # squares, products; once: read


def _width(norm: ChannelNorm, machine: Machine) -> int:
    """Positions of a step: at most a bank of sums."""
    bank, lines = machine.psum_bank_fp32_elems, machine.partitions
    tiles = len(channel_tiles(norm.channels, machine))
    squares = channel_norm.square_bytes(norm)
    columns = 4 * (2 * (COLUMNS + 1) + 1)
    constants = squares * (bank + lines) + tiles * (8 + squares * lines + columns)
    room = machine.sbuf_usable_bytes_per_partition - constants
    return min(bank, max(0, room) // _step_bytes(norm, machine))


@lru_cache(maxsize=4096)
def _price(problem: ChannelNormGradient, machine: Machine, cores: int) -> LaunchPrice:
    norm, plan = problem.norm, plan_of(problem, machine, cores)
    step = GradientStep(
        norm, clock_of(machine, cores), plan.norm.vector_columns, plan.gpsimd_passes
    )
    return launch_price(step, _rows(norm, plan, machine, cores), plan.norm.cut.width)


def _rows(
    norm: ChannelNorm, plan: ChannelNormGradientPlan, machine: Machine, cores: int
) -> tuple[tuple[SweepRow, ...], ...]:
    return sweeps(norm.images, norm.positions, plan.norm.cut, machine, cores)


def launch_of(
    problem: ChannelNormGradient, packed: tuple[Array, ...], machine: Machine, cores: int
) -> NeighbourLaunch:
    """The kernel with what `pack` gives; x and dy go before that."""
    require(problem, machine, cores)
    norm, plan = problem.norm, plan_of(problem, machine, cores)
    recipes = tuple(
        ChannelNormGradientRecipe(
            norm=channel_norm.recipe_of(norm, plan.norm, machine, rows),
            between=norm.dtype,
            gpsimd_passes=plan.gpsimd_passes,
            part=part,
            parts=cores,
        )
        for part, rows in enumerate(_rows(norm, plan, machine, cores))
    )
    kernels = (channel_norm_gradient, channel_norm_gradient_on_two_cores)
    return launch_on(machine, kernels, packed, recipes)


def pack(
    norm: ChannelNorm, gamma: Array, beta: Array | None, machine: Machine
) -> tuple[Array, Array]:
    """Scale and bias of every tile; and scales as often as there are partitions, for sums."""
    constants = channel_norm.constants_of(norm, gamma, beta, machine)
    scales = np.repeat(constants[:, 0::2], machine.partitions, axis=1)
    return constants, scales.astype(
        "float32" if channel_norm.is_wide(norm) else channel_norm.SQUARES
    )


def simulate(
    problem: ChannelNormGradient,
    tensors: tuple[Array, Array],
    gamma: Array,
    beta: Array | None,
    machine: Machine,
    cores: int = 1,
) -> tuple[Array, Array]:
    """dx, and sums [channels, 1 or 2] of du n and of du, of the kernel in nkisim, of x and dy."""
    packed = pack(problem.norm, gamma, beta, machine)
    dx, sums = launch_of(problem, packed, machine, cores).run(*tensors).outputs
    return np.asarray(dx), np.asarray(sums).sum(axis=0)

"""The problem of an RMS norm's gradient, its decisions, and its launch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from nkisim.machine import Machine
from trnconv.algorithms.algorithm import Array
from trnconv.fused_ops.chain import busy_of
from trnconv.fused_ops.launch import FusedOpLaunch, launch_on
from trnconv.fused_ops.price import Clock, LaunchPrice, clock_of, slowest
from trnconv.fused_ops.problem import FusedOp
from trnconv.fused_ops.refusal import sbuf_reason, slope_reasons
from trnconv.fused_ops.rms_norm import problem as rms_norm
from trnconv.fused_ops.rms_norm.problem import RmsNorm, RmsNormPlan, rows_of
from trnconv.fused_ops.rms_norm.square_sums import SLOTS
from trnconv.fused_ops.rms_norm_gradient.kernel import (
    DY_SLOTS,
    NORMED,
    rms_norm_gradient,
    rms_norm_gradient_on_two_cores,
)
from trnconv.fused_ops.rms_norm_gradient.price import GradientStep
from trnconv.fused_ops.rms_norm_gradient.recipe import RmsNormGradientRecipe
from trnconv.fused_ops.step_sums import COLUMNS
from trnconv.fused_ops.sweep import channel_tiles, cut_of, widest_step
from trnconv.problem.epilogue import IDENTITY, ITEM_BYTES

_LEAST_WIDTH = 32  # positions of a step; below, engines spend their time on starting
_PASSES = (0, 1, 2)


@dataclass(frozen=True)
class RmsNormGradient(FusedOp):
    """dx of x and dy, and sums over positions of du n and of du, of a norm and its activation."""

    norm: RmsNorm

    def _reasons(self, machine: Machine, cores: int) -> Iterator[str]:
        plain = replace(self.norm, activation=IDENTITY, has_beta=False)
        yield from filter(None, (plain.refuses(machine, cores),))
        yield from slope_reasons(self.norm.activation)
        if _width(self.norm, machine) < _LEAST_WIDTH:
            what = f"{self.norm.channels} channels"
            yield sbuf_reason(what, _step_bytes(self.norm, machine), "split them", machine)

    def modelled(self, machine: Machine, cores: int) -> LaunchPrice:
        """The core that ends last."""
        norm, plan = self.norm, plan_of(self, machine, cores)
        clock, width = clock_of(machine, cores), plan.norm.cut.width
        step = _step(norm, clock, plan.norm.vector_columns, plan.gpsimd_passes)
        moved = 3 * norm.images * norm.channels * norm.positions * ITEM_BYTES[norm.dtype]
        return slowest(
            (step.core_price(rows, width) for rows in rows_of(norm, plan.norm, machine, cores)),
            moved + cores * norm.channels * step.kinds * 4,
        )


@dataclass(frozen=True)
class RmsNormGradientPlan:
    """Decisions: those of the norm's sums, and which products the GpSimd engine makes."""

    norm: RmsNormPlan
    gpsimd_passes: int


@lru_cache(maxsize=4096)
def plan_of(problem: RmsNormGradient, machine: Machine, cores: int) -> RmsNormGradientPlan:
    """The widest step that fits, with the work dealt so that the busiest engine has least."""
    norm = problem.norm
    share = -(-norm.images * norm.positions // cores)
    width = min(_width(norm, machine), share, norm.positions)
    clock = clock_of(machine, cores)
    passes = _PASSES if norm.activation != IDENTITY else _PASSES[:2]
    steps = [
        _step(norm, clock, columns, count)
        for columns in range(0, width + 1, max(1, width // 4))
        for count in passes
    ]

    def busiest(step: GradientStep) -> tuple[float, int, int]:
        ns = max(busy_of(step.stages(width)).values())
        return ns, step.vector_columns, step.gpsimd_passes

    step = min(steps, key=busiest)
    norm_plan = RmsNormPlan(cut_of(width, step.length(width)), step.vector_columns)
    return RmsNormGradientPlan(norm_plan, step.gpsimd_passes)


def _step(norm: RmsNorm, clock: Clock, columns: int, gpsimd_passes: int) -> GradientStep:
    kinds = 2 if norm.has_beta else 1
    return GradientStep(
        norm.channels, norm.dtype, norm.activation, clock, columns, gpsimd_passes, kinds
    )


def _step_bytes(norm: RmsNorm, machine: Machine) -> int:
    """SBUF of a partition for one position of a step: every tile that the kernel's core holds."""
    item = ITEM_BYTES[norm.dtype]
    of_type = SLOTS + DY_SLOTS + 2 * NORMED + 2 + 2  # x, dy, n and du, scale du - n S, dx
    tiles = len(channel_tiles(norm.channels, machine))
    squares = 2 + 2  # squares, products
    return tiles * (of_type * item + squares * norm.square_bytes) + item  # once: read


def _width(norm: RmsNorm, machine: Machine) -> int:
    """Positions of a step: at most a bank of sums."""
    bank, lines = machine.psum_bank_fp32_elems, machine.partitions
    tiles = len(channel_tiles(norm.channels, machine))
    squares = norm.square_bytes
    columns = 4 * (2 * (COLUMNS + 1) + 1)
    constants = squares * (bank + lines) + tiles * (8 + squares * lines + columns)
    return widest_step(machine, constants, _step_bytes(norm, machine), bank)


def launch_of(
    problem: RmsNormGradient, packed: tuple[Array, ...], machine: Machine, cores: int
) -> FusedOpLaunch:
    """The kernel with what `pack` gives; x and dy go before that."""
    problem.require(machine, cores)
    norm, plan = problem.norm, plan_of(problem, machine, cores)
    recipes = tuple(
        RmsNormGradientRecipe(
            norm=rms_norm.recipe_of(norm, plan.norm, machine, rows),
            between=norm.dtype,
            gpsimd_passes=plan.gpsimd_passes,
            part=part,
            parts=cores,
        )
        for part, rows in enumerate(rows_of(norm, plan.norm, machine, cores))
    )
    kernels = (rms_norm_gradient, rms_norm_gradient_on_two_cores)
    return launch_on(machine, kernels, packed, recipes)


def pack(norm: RmsNorm, gamma: Array, beta: Array | None, machine: Machine) -> tuple[Array, Array]:
    """Scale and bias of every tile; and scales as often as there are partitions, for sums."""
    constants = rms_norm.constants_of(norm, gamma, beta, machine)
    scales = np.repeat(constants[:, 0::2], machine.partitions, axis=1)
    return constants, scales.astype("float32" if norm.is_wide else rms_norm.SQUARES)


def simulate(
    problem: RmsNormGradient,
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

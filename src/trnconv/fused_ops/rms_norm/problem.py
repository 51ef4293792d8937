"""The problem of an RMS norm, its decisions, and its launch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import numpy as np

from nkisim.machine import Machine
from trnconv.algorithms.algorithm import Array
from trnconv.algorithms.float_terms import bf16_terms
from trnconv.fused_ops.chain import busy_of
from trnconv.fused_ops.launch import FusedOpLaunch, launch_on
from trnconv.fused_ops.packing import on_partitions
from trnconv.fused_ops.price import SCALAR, VECTOR, LaunchPrice, clock_of, slowest
from trnconv.fused_ops.problem import FusedOp
from trnconv.fused_ops.refusal import (
    bias_reasons,
    choice_reasons,
    machine_reasons,
    sbuf_reason,
    shape_reasons,
)
from trnconv.fused_ops.rms_norm.kernel import rms_norm, rms_norm_on_two_cores
from trnconv.fused_ops.rms_norm.price import NormStep
from trnconv.fused_ops.rms_norm.recipe import RmsNormRecipe
from trnconv.fused_ops.sweep import Cut, SweepRow, channel_tiles, cut_of, sweeps, widest_step
from trnconv.problem.epilogue import ACTIVATIONS, ITEM_BYTES

NORM = "norm"  # x / max(|x|, eps) * sqrt(C): eps is a length (Wan, HunyuanVideo 1.5)
MEAN = "mean"  # x / sqrt(mean of squares + eps) (LTX)
VARIANTS = (NORM, MEAN)
SQUARES = "bfloat16"  # type of squares of 16-bit x
_WIDTH_IN_BANKS = 4  # two steps of sums fill PSUM


@dataclass(frozen=True)
class RmsNorm(FusedOp):
    """act(gamma_c * x / rms over channels + beta_c), for x [images, channels, positions].

    `norm` has eps as the least length of a vector of channels; here its square is added to the sum
    of squares. That differs by more than a rounding of bf16 only where a length is below 12 eps.
    """

    channels: int
    positions: int
    dtype: str = "bfloat16"
    activation: str = "silu"
    images: int = 1
    eps: float = 1e-12
    variant: str = NORM
    has_beta: bool = False
    x_first: int = 0  # of more positions that a channel of x has in memory
    x_positions: int = 0  # so many; 0: just those that are normed

    def _reasons(self, machine: Machine, cores: int) -> Iterator[str]:
        yield from shape_reasons((self.images, self.channels, self.positions), self.dtype)
        yield from shape_reasons((self.images, self.channels, self.in_memory), self.dtype)
        if not 0 <= self.x_first <= self.in_memory - self.positions:
            yield (
                f"positions {self.x_first} to {self.x_first + self.positions} of x, which has"
                f" {self.in_memory} a channel"
            )
        yield from choice_reasons("activation", self.activation, ACTIVATIONS)
        yield from choice_reasons("variant", self.variant, VARIANTS)
        yield from machine_reasons(machine, cores)
        if self.has_beta:
            yield from bias_reasons(machine, self.activation)
        if _width(self, machine) == 0:
            what = f"{self.channels} channels"
            yield sbuf_reason(what, _step_bytes(self, machine), "split them", machine)

    @property
    def in_memory(self) -> int:
        """Positions of a channel of x."""
        return self.x_positions or self.positions

    @property
    def is_wide(self) -> bool:
        """Whether squares are float32."""
        return self.dtype == "float32"

    @property
    def square_bytes(self) -> int:
        """Of a square in SBUF."""
        return 4 if self.is_wide else 2

    def modelled(self, machine: Machine, cores: int) -> LaunchPrice:
        """The core that ends last."""
        plan = plan_of(self, machine, cores)
        clock = clock_of(machine, cores)
        step = NormStep(self.channels, self.dtype, self.activation, clock, plan.vector_columns)
        return slowest(
            (step.core_price(rows, plan.cut.width) for rows in rows_of(self, plan, machine, cores)),
            2 * self.images * self.channels * self.positions * ITEM_BYTES[self.dtype],
        )


@dataclass(frozen=True)
class RmsNormPlan:
    """Decisions: how positions are cut, and what of a step the Vector engine squares."""

    cut: Cut
    vector_columns: int


@lru_cache(maxsize=4096)
def plan_of(problem: RmsNorm, machine: Machine, cores: int) -> RmsNormPlan:
    """The widest step that fits, with squares dealt so that Scalar and Vector engine end together.

    No wider than what each core has of one image, and of all.
    """
    bank = machine.psum_bank_fp32_elems
    share = -(-problem.images * problem.positions // cores)
    width = min(_width(problem, machine), bank * -(-share // bank), problem.positions)
    clock = clock_of(machine, cores)
    steps = [
        NormStep(problem.channels, problem.dtype, problem.activation, clock, columns)
        for columns in range(0, width + 1, max(1, width // 16))
    ]

    def busiest(step: NormStep) -> tuple[float, int]:
        busy = busy_of(step.stages(width))
        return max(busy[SCALAR], busy[VECTOR]), step.vector_columns

    step = min(steps, key=busiest)
    return RmsNormPlan(cut_of(width, step.length(width)), step.vector_columns)


def rows_of(
    problem: RmsNorm, plan: RmsNormPlan, machine: Machine, cores: int
) -> tuple[tuple[SweepRow, ...], ...]:
    """The steps of each core."""
    return sweeps(problem.images, problem.positions, plan.cut, machine, cores)


def _step_bytes(problem: RmsNorm, machine: Machine) -> int:
    """SBUF of a partition for one position of a step: x, squares, products and y."""
    each = (4 + 2) * ITEM_BYTES[problem.dtype] + 2 * problem.square_bytes + 2 * 4
    return len(channel_tiles(problem.channels, machine)) * each


def _width(problem: RmsNorm, machine: Machine) -> int:
    """Positions of a step: whole banks of sums; 0 if not even one fits."""
    bank, lines = machine.psum_bank_fp32_elems, machine.partitions
    tiles = len(channel_tiles(problem.channels, machine))
    constants = 4 * (bank + 2 * lines) + 8 * tiles
    most = _WIDTH_IN_BANKS * bank
    return widest_step(machine, constants, _step_bytes(problem, machine), most, bank)


def launch_of(
    problem: RmsNorm, gamma: Array, beta: Array | None, machine: Machine, cores: int
) -> FusedOpLaunch:
    """The kernel with its constants; x goes before them."""
    problem.require(machine, cores)
    plan = plan_of(problem, machine, cores)
    cores_rows = rows_of(problem, plan, machine, cores)
    recipes = tuple(recipe_of(problem, plan, machine, rows) for rows in cores_rows)
    constants = constants_of(problem, gamma, beta, machine)
    kernels = (rms_norm, rms_norm_on_two_cores)
    return launch_on(machine, kernels, (constants,), recipes)


def recipe_of(
    problem: RmsNorm, plan: RmsNormPlan, machine: Machine, rows: tuple[SweepRow, ...]
) -> RmsNormRecipe:
    """What a core does whose steps these rows are."""
    sums = under_root(problem.variant, problem.eps, problem.channels)
    return RmsNormRecipe(
        shape=(problem.images, problem.channels, problem.positions),
        x_first=problem.x_first,
        x_positions=problem.in_memory,
        tiles=channel_tiles(problem.channels, machine),
        width=plan.cut.width,
        bank=machine.psum_bank_fp32_elems,
        vector_columns=plan.vector_columns,
        squares="float32" if problem.is_wide else SQUARES,
        under_root=(sums,) if problem.is_wide else bf16_terms(sums),
        quadrant=machine.quadrant_partitions,
        lines=machine.partitions,
        activation=problem.activation,
        has_beta=problem.has_beta,
        rows=rows,
    )


def under_root(variant: str, eps: float, channels: int) -> float:
    """What is added to the sum of squares over channels."""
    return eps**2 if variant == NORM else channels * eps


def scale_shift_of(gamma: Array, beta: Array | None) -> Array:
    """Scale and shift of every channel [C, 2]: the root of their number goes into the scale."""
    scale_shift = np.zeros((len(gamma), 2), np.float32)
    scale_shift[:, 0] = gamma.astype(np.float64) * sqrt(len(gamma))
    if beta is not None:
        scale_shift[:, 1] = beta
    return scale_shift


def constants_of(problem: RmsNorm, gamma: Array, beta: Array | None, machine: Machine) -> Array:
    """Scale and bias of every tile, on the partitions of its channels."""
    tiles = channel_tiles(problem.channels, machine)
    return on_partitions(scale_shift_of(gamma, beta), tiles, machine)


def simulate(
    problem: RmsNorm,
    x: Array,
    gamma: Array,
    beta: Array | None,
    machine: Machine,
    cores: int = 1,
) -> Array:
    """y of the kernel in nkisim."""
    launch = launch_of(problem, gamma, beta, machine, cores)
    return np.asarray(launch.run(x).outputs)

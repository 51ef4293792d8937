"""The problem of a channel norm, its decisions, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from math import sqrt

import numpy as np

from nkisim.compiler_count import matmul_instructions
from nkisim.machine import Machine
from trnconv.ask.ends import ACTIVATIONS, ITEM_BYTES
from trnconv.forms.float_terms import TERMS, bf16_terms
from trnconv.forms.form import Array
from trnconv.neighbours.chain import Stage, Stages, busy_of
from trnconv.neighbours.channel_norm.kernel import channel_norm, channel_norm_on_two_cores
from trnconv.neighbours.channel_norm.recipe import ChannelNormRecipe
from trnconv.neighbours.channel_norm.square_sums import SLOTS
from trnconv.neighbours.launch import NeighbourLaunch, launch_on
from trnconv.neighbours.price import (
    SCALAR,
    TENSOR,
    VECTOR,
    Clock,
    LaunchPrice,
    Steps,
    clock_of,
    rows_price,
)
from trnconv.neighbours.refusal import (
    bias_reasons,
    choice_reasons,
    machine_reasons,
    require,
    shape_reasons,
)
from trnconv.neighbours.sweep import Cut, SweepRow, channel_tiles, steps_of, sweeps

NORM = "norm"  # x / max(|x|, eps) * sqrt(C): eps is a length (Wan, HunyuanVideo 1.5)
MEAN = "mean"  # x / sqrt(mean of squares + eps) (LTX)
VARIANTS = (NORM, MEAN)
SQUARES = "bfloat16"  # type of squares of 16-bit x
_TURN_INSTRUCTIONS = 4000  # static, of a turn: its start and end are then 3 % of it
_WIDTH_IN_BANKS = 4  # two steps of sums fill PSUM


@dataclass(frozen=True)
class ChannelNorm:
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

    def refuses(self, machine: Machine, cores: int = 1) -> str:
        """Why there is no plan, in words; empty if there is one."""
        return next(self._reasons(machine, cores), "")

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
            yield (
                f"{self.channels} channels: {_step_bytes(self, machine)} bytes a position in SBUF,"
                f" which has {machine.sbuf_usable_bytes_per_partition} a partition; split them"
            )

    @property
    def in_memory(self) -> int:
        """Positions of a channel of x."""
        return self.x_positions or self.positions

    def price(self, machine: Machine, cores: int = 1) -> LaunchPrice:
        """What it takes, in closed form. Modelled."""
        require(self, machine, cores)
        return _price(self, machine, cores)


@dataclass(frozen=True)
class ChannelNormPlan:
    """Decisions: how positions are cut, and what of a step the Vector engine squares."""

    cut: Cut
    vector_columns: int


@lru_cache(maxsize=4096)
def plan_of(problem: ChannelNorm, machine: Machine, cores: int) -> ChannelNormPlan:
    """The widest step that fits, with squares dealt so that Scalar and Vector engine end together.

    No wider than what each core has of one image, and of all.
    """
    bank = machine.psum_bank_fp32_elems
    share = -(-problem.images * problem.positions // cores)
    width = min(_width(problem, machine), bank * -(-share // bank), problem.positions)
    clock = clock_of(machine, cores)
    columns = range(0, width + 1, max(1, width // 16))
    busy = {count: busy_of(_stages(problem, clock, width, count)) for count in columns}
    best = min(busy, key=lambda count: (max(busy[count][SCALAR], busy[count][VECTOR]), count))
    steps = max(1, _TURN_INSTRUCTIONS // _step_length(problem, machine, width, best))
    return ChannelNormPlan(Cut(width, steps), best)


def _step_bytes(problem: ChannelNorm, machine: Machine) -> int:
    """SBUF of a partition for one position of a step: x, squares, products and y."""
    item = ITEM_BYTES[problem.dtype]
    squares = square_bytes(problem)
    return len(channel_tiles(problem.channels, machine)) * (
        4 * item + 2 * squares + 2 * 4 + 2 * item
    )


def is_wide(problem: ChannelNorm) -> bool:
    """Whether squares are float32."""
    return problem.dtype == "float32"


def square_bytes(problem: ChannelNorm) -> int:
    """Of a square in SBUF."""
    return 4 if is_wide(problem) else 2


def _width(problem: ChannelNorm, machine: Machine) -> int:
    """Positions of a step: whole banks of sums; 0 if not even one fits."""
    bank, lines = machine.psum_bank_fp32_elems, machine.partitions
    constants = 4 * (bank + lines) + 8 * len(channel_tiles(problem.channels, machine))
    room = machine.sbuf_usable_bytes_per_partition - constants - 4 * lines
    most = max(0, room) // _step_bytes(problem, machine) // bank
    return bank * min(most, _WIDTH_IN_BANKS)


def _banks(width: int, machine: Machine) -> list[int]:
    """Columns of each bank of sums."""
    return [count for _, count in steps_of(width, machine.psum_bank_fp32_elems)]


def _stages(problem: ChannelNorm, clock: Clock, width: int, columns: int) -> Stages:
    """What a step takes of every engine and of memory, and how long the next stage waits."""
    machine, item = clock.machine, ITEM_BYTES[problem.dtype]
    wide = is_wide(problem)
    tiles = len(channel_tiles(problem.channels, machine))
    banks = _banks(width, machine)
    by_vector = min(columns, width)
    squares = clock.vector((2 if wide else 1) * by_vector) if by_vector else 0.0
    others = clock.scalar(width - by_vector) if by_vector < width else 0.0
    matmuls = [clock.matmul(count, wide=wide) for count in banks]
    powers = [clock.vector(count) for count in banks]
    early = by_vector >= banks[0] and tiles == 1  # sums of a bank begin before all is squared
    first = squares if early else max(squares, others)
    sums = clock.warming((1 + tiles) * sum(matmuls))
    sums = max(sums, max(squares, others) - first + matmuls[-1])
    products = max(sums + powers[-1], clock.warming(matmuls[0]) + tiles * sum(powers))
    end = clock.scalar(width)
    return (
        *clock.load(problem.channels, width * item, tiles),
        Stage(VECTOR, tiles * squares, 0.0),
        Stage(SCALAR, tiles * others, first + clock.scalar_latency(0)),
        Stage(TENSOR, (1 + tiles) * sum(matmuls), clock.matmul_latency()),
        Stage(VECTOR, tiles * sum(powers), products + clock.vector_latency(0)),
        Stage(SCALAR, tiles * end, clock.scalar_latency(width)),
        *clock.store(problem.channels, width * item, tiles, SLOTS),
    )


def _step_length(problem: ChannelNorm, machine: Machine, width: int, columns: int) -> int:
    """Static instructions of a step, as a compiler counts them."""
    tiles, banks = len(channel_tiles(problem.channels, machine)), len(_banks(width, machine))
    squares = (columns > 0) + (columns < width)
    matmuls = matmul_instructions("float32" if is_wide(problem) else "")
    return tiles * (3 + squares + banks) + (1 + tiles) * banks * matmuls


@lru_cache(maxsize=4096)
def _price(problem: ChannelNorm, machine: Machine, cores: int) -> LaunchPrice:
    plan = plan_of(problem, machine, cores)
    rows = sweeps(problem.images, problem.positions, plan.cut, machine, cores)
    prices = [_core_price(problem, plan, clock_of(machine, cores), core) for core in rows]
    slowest = max(prices, key=lambda price: price.ns)
    total = 2 * problem.images * problem.channels * problem.positions * ITEM_BYTES[problem.dtype]
    return LaunchPrice(slowest.ns, slowest.instructions, slowest.regions, total, slowest.busy)


def _core_price(
    problem: ChannelNorm, plan: ChannelNormPlan, clock: Clock, rows: tuple[SweepRow, ...]
) -> LaunchPrice:
    """Row after row, behind the load of constants."""

    @cache  # a row asks for the same few widths again and again
    def stages(width: int) -> Stages:
        return _stages(problem, clock, width, plan.vector_columns)

    def length(width: int) -> int:
        return _step_length(problem, clock.machine, width, plan.vector_columns)

    terms = 1 if is_wide(problem) else TERMS
    before = LaunchPrice(clock.issue, 3 + terms, 0, 0, ())
    table = clock.table(problem.activation)
    return before + rows_price(rows, plan.cut.width, clock, Steps(stages, length, table))


def launch_of(
    problem: ChannelNorm, gamma: Array, beta: Array | None, machine: Machine, cores: int
) -> NeighbourLaunch:
    """The kernel with its constants; x goes before them."""
    require(problem, machine, cores)
    plan = plan_of(problem, machine, cores)
    rows = sweeps(problem.images, problem.positions, plan.cut, machine, cores)
    recipes = tuple(recipe_of(problem, plan, machine, core) for core in rows)
    constants = constants_of(problem, gamma, beta, machine)
    kernels = (channel_norm, channel_norm_on_two_cores)
    return launch_on(machine, kernels, (constants,), recipes)


def recipe_of(
    problem: ChannelNorm, plan: ChannelNormPlan, machine: Machine, rows: tuple[SweepRow, ...]
) -> ChannelNormRecipe:
    """What a core does whose steps these rows are."""
    sums = under_root(problem.variant, problem.eps, problem.channels)
    return ChannelNormRecipe(
        shape=(problem.images, problem.channels, problem.positions),
        x_first=problem.x_first,
        x_positions=problem.in_memory,
        tiles=channel_tiles(problem.channels, machine),
        width=plan.cut.width,
        bank=machine.psum_bank_fp32_elems,
        vector_columns=plan.vector_columns,
        squares="float32" if is_wide(problem) else SQUARES,
        under_root=(sums,) if is_wide(problem) else bf16_terms(sums),
        quadrant=machine.quadrant_partitions,
        lines=machine.partitions,
        activation=problem.activation,
        has_beta=problem.has_beta,
        rows=rows,
    )


def under_root(variant: str, eps: float, channels: int) -> float:
    """What is added to the sum of squares over channels."""
    return eps**2 if variant == NORM else channels * eps


def scales_of(gamma: Array, beta: Array | None) -> Array:
    """Scale and shift of every channel [C, 2]: the root of their number goes into the scale."""
    scales = np.zeros((len(gamma), 2), np.float32)
    scales[:, 0] = gamma.astype(np.float64) * sqrt(len(gamma))
    if beta is not None:
        scales[:, 1] = beta
    return scales


def constants_of(problem: ChannelNorm, gamma: Array, beta: Array | None, machine: Machine) -> Array:
    """Scale and bias of every tile, on the partitions of its channels."""
    tiles = channel_tiles(problem.channels, machine)
    constants = np.zeros((machine.partitions, 2 * len(tiles)), np.float32)
    scales = scales_of(gamma, beta)
    for tile, (first, count) in enumerate(tiles):
        constants[:count, 2 * tile : 2 * tile + 2] = scales[first : first + count]
    return constants


def simulate(
    problem: ChannelNorm,
    x: Array,
    gamma: Array,
    beta: Array | None,
    machine: Machine,
    cores: int = 1,
) -> Array:
    """y of the kernel in nkisim."""
    launch = launch_of(problem, gamma, beta, machine, cores)
    return np.asarray(launch.run(x).outputs)

"""The problem of modulation, and its decisions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import ml_dtypes
import numpy as np

from nkisim.machine import Machine
from trnconv.algorithms.algorithm import Array
from trnconv.errors import PlanError
from trnconv.fused_ops.launch import FusedOpLaunch, launch_on
from trnconv.fused_ops.modulation.kernel import (
    SLOTS,
    Y_SLOTS,
    modulation,
    modulation_on_two_cores,
)
from trnconv.fused_ops.modulation.price import launch_price, step_length
from trnconv.fused_ops.modulation.recipe import BlockRun, ModulationRecipe, PsumChunk
from trnconv.fused_ops.price import LaunchPrice
from trnconv.fused_ops.problem import FusedOp
from trnconv.fused_ops.refusal import (
    choice_reasons,
    machine_reasons,
    shape_reasons,
    takes_loops,
)
from trnconv.fused_ops.sweep import ITERATION_INSTRUCTIONS, channel_tiles
from trnconv.problem.epilogue import ACTIVATIONS, ITEM_BYTES
from trnconv.problem.limits import DEFAULT_BUDGET

_UNROLLED = DEFAULT_BUDGET  # static instructions; longer programs are loops, one a frame
_WIDTH_IN_BANKS = 6
_TYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}


@dataclass(frozen=True)
class Modulation(FusedOp):
    """act((a_c x + b_c) * scale + shift) for x [channels, frames, rows, columns].

    scale and shift are [channels, low frames, rows / factor, columns / factor]: an element is for
    factor x factor positions, and `frame_map` says which low frame each frame of x has.
    """

    channels: int
    rows: int
    columns: int
    factor: int
    frame_map: tuple[int, ...]
    dtype: str = "bfloat16"
    activation: str = "silu"
    has_scale_shift: bool = True  # a and b of a group norm

    def _reasons(self, machine: Machine, cores: int) -> Iterator[str]:
        sizes = (self.channels, len(self.frame_map), self.rows, self.columns)
        yield from shape_reasons(sizes, self.dtype)
        yield from choice_reasons("activation", self.activation, ACTIVATIONS)
        yield from machine_reasons(machine, cores)
        if self.factor < 1 or self.rows % self.factor or self.columns % self.factor:
            size = f"{self.rows} x {self.columns}"
            yield f"a factor of {self.factor}: it divides rows and columns, {size}"
        if min(self.frame_map) < 0:
            yield f"frames {self.frame_map}: numbers of low frames, from 0 on"
        if self.factor > machine.psum_bank_fp32_elems:
            yield f"a factor of {self.factor}: at most {machine.psum_bank_fp32_elems}"
        if _widest(self, machine) < self.columns:
            yield (
                f"{self.channels} channels of {self.columns} columns: a row does not fit SBUF, of"
                f" {machine.sbuf_usable_bytes_per_partition} bytes a partition; split the columns"
            )

    @property
    def low_frames(self) -> int:
        """Frames of scale and shift."""
        return max(self.frame_map) + 1

    def modelled(self, machine: Machine, cores: int) -> LaunchPrice:
        """The core that ends last."""
        return launch_price(recipes_of(self, machine, cores), ITEM_BYTES[self.dtype], machine)


def _widest(problem: Modulation, machine: Machine) -> int:
    """Most positions of a step."""
    tiles = len(channel_tiles(problem.channels, machine))
    item = ITEM_BYTES[problem.dtype]
    low = 2 * SLOTS / problem.factor  # scales and shifts, of rows that are loaded whole
    room = machine.sbuf_usable_bytes_per_partition - item * machine.partitions - 64 * tiles
    fits = int(room / (tiles * item * (SLOTS + 2 + Y_SLOTS + low)))
    return min(fits, _WIDTH_IN_BANKS * machine.psum_bank_fp32_elems)


def _largest_divisor(number: int, most: int) -> int:
    return max(n for n in range(1, max(1, min(number, most)) + 1) if number % n == 0)


@lru_cache(maxsize=1024)
def recipes_of(problem: Modulation, machine: Machine, cores: int) -> tuple[ModulationRecipe, ...]:
    """What each core does."""
    widest, s = _widest(problem, machine), problem.factor
    low = (problem.low_frames, problem.rows // s, problem.columns // s)
    rows = _largest_divisor(s, widest // problem.columns)
    low_rows = _largest_divisor(low[1], widest // (s * problem.columns)) if rows == s else 1
    plain = ModulationRecipe(
        shape=(problem.channels, len(problem.frame_map), problem.rows, problem.columns),
        low=low,
        factor=s,
        tiles=channel_tiles(problem.channels, machine),
        lines=machine.partitions,
        bank=machine.psum_bank_fp32_elems,
        low_rows=low_rows,
        parts=s // rows,
        rows=rows,
        width=low_rows * rows * problem.columns,
        chunks=tuple(_chunks(low_rows, rows, low[2], s, machine.psum_bank_fp32_elems)),
        has_scale_shift=problem.has_scale_shift,
        activation=problem.activation,
        runs=(),
    )
    shares = [tuple(_runs(problem, plain, machine, (core, cores))) for core in range(cores)]
    return tuple(replace(plain, runs=runs) for runs in shares)


def _chunks(low_rows: int, rows: int, columns: int, s: int, bank: int) -> Iterator[PsumChunk]:
    """Rectangles of a step that fit a bank each."""
    parts = -(-columns // (bank // s))
    wide = -(-columns // parts)
    whole = parts == 1 and rows * columns * s <= bank
    lows = bank // (rows * columns * s) if whole else 1
    high = rows if whole else max(1, min(rows, bank // (wide * s)) if parts == 1 else 1)
    for low in range(0, low_rows, lows):
        for row in range(0, rows, high):
            for column in range(0, columns, wide):
                yield PsumChunk(
                    low,
                    min(lows, low_rows - low),
                    row,
                    min(high, rows - row),
                    column,
                    min(wide, columns - column),
                )


def _runs(
    problem: Modulation, recipe: ModulationRecipe, machine: Machine, program: tuple[int, int]
) -> Iterator[BlockRun]:
    """Blocks of a core, frame by frame; a loop and what is left of it if they are many."""
    core, cores = program
    blocks = recipe.low[1] // recipe.low_rows
    bounds = [-(-blocks * n // cores) for n in range(cores + 1)]
    share, fewest = bounds[core + 1] - bounds[core], blocks // cores
    length = recipe.parts * step_length(recipe, wide=problem.dtype == "float32")
    many = len(problem.frame_map) * -(-blocks // cores) * length > _UNROLLED
    iterations = max(2, -(-fewest * length // ITERATION_INSTRUCTIONS))
    body = fewest // iterations if many and takes_loops(machine) else 0
    iterations = fewest // body if body else 0
    for frame, low_frame in enumerate(problem.frame_map):
        first = bounds[core]
        if iterations:
            yield BlockRun(frame, low_frame, first, body, iterations)
        left = share - iterations * body
        if left:
            yield BlockRun(frame, low_frame, first + iterations * body, left, 1)


def launch_of(problem: Modulation, machine: Machine, cores: int) -> FusedOpLaunch:
    """The kernel; it takes x, scale, shift and scale_shift [channels, 2] (a, b)."""
    problem.require(machine, cores)
    identity = np.eye(machine.partitions, dtype=_TYPES[problem.dtype])
    kernels = (modulation, modulation_on_two_cores)
    return launch_on(machine, kernels, (identity,), recipes_of(problem, machine, cores))


def simulate(
    problem: Modulation,
    x: Array,
    low: tuple[Array, Array],
    scale_shift: Array | None,
    machine: Machine,
    cores: int = 1,
) -> Array:
    """y of the kernel in nkisim; `low` are scale and shift."""
    if (scale_shift is None) == problem.has_scale_shift:
        raise PlanError(f"{problem}: scale_shift {scale_shift}; give them if it has them.")
    numbers = np.zeros((problem.channels, 2), np.float32) if scale_shift is None else scale_shift
    return np.asarray(launch_of(problem, machine, cores).run(x, *low, numbers).outputs)

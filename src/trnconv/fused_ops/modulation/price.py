"""What modulation takes, by the cost model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nkisim.compiler_count import matmul_instructions
from nkisim.machine import Machine
from trnconv.fused_ops.chain import Stage, Stages, busy_of, chain_ns
from trnconv.fused_ops.modulation.recipe import BlockRun, ModulationRecipe, PsumChunk
from trnconv.fused_ops.price import SCALAR, TENSOR, VECTOR, Clock, LaunchPrice, clock_of, slowest

_SLOTS = 4


def launch_price(recipes: Sequence[ModulationRecipe], item: int, machine: Machine) -> LaunchPrice:
    """The core that ends last."""
    clock = clock_of(machine, len(recipes))
    prices = [_core(recipe, item, clock) for recipe in recipes]
    return slowest(prices, sum(price.hbm_bytes for price in prices))


def step_length(recipe: ModulationRecipe, *, wide: bool = False) -> int:
    """Static instructions of a step, as a compiler counts them."""
    pair = 2 * matmul_instructions("float32" if wide else "")
    small = 5 + (2 if recipe.has_scale_shift else 0)
    return len(recipe.tiles) * (small + len(recipe.chunks) * (pair + 1))


def _core(recipe: ModulationRecipe, item: int, clock: Clock) -> LaunchPrice:
    """Stretches one after the other: loops, and what stands between them."""
    loads = 1 + (len(recipe.tiles) if recipe.has_scale_shift else 0)
    total = LaunchPrice(loads * clock.issue, loads) + clock.barrier
    table = clock.table(recipe.activation)
    for iterations, steps in _stretches(recipe.runs, recipe.parts):
        total += _stretch(recipe, item, clock, (iterations, steps, table))
        table = 0.0
    return total


def _stretches(runs: Sequence[BlockRun], parts: int) -> list[tuple[int, int]]:
    """Iterations, and steps of each."""
    stretches: list[tuple[int, int]] = []
    for run in runs:
        if run.iterations == 1 and stretches and stretches[-1][0] == 1:
            stretches[-1] = (1, stretches[-1][1] + run.blocks * parts)
        else:
            stretches.append((run.iterations, run.blocks * parts))
    return stretches


def _stretch(
    recipe: ModulationRecipe, item: int, clock: Clock, stretch: tuple[int, int, float]
) -> LaunchPrice:
    iterations, steps, table = stretch
    stages = _stages(recipe, item, clock)
    widths = [recipe.width] * steps
    once = {SCALAR: table} if table else {}
    iteration = chain_ns(widths, lambda _: stages)
    first = chain_ns(widths, lambda _: stages, once)
    pause = clock.timing.loop_iteration_ns if iterations > 1 else 0.0
    busy = {resource: iterations * steps * ns for resource, ns in busy_of(stages).items()}
    low = recipe.low_rows * recipe.low[2]
    moved = iterations * steps * 2 * item * recipe.shape[0] * (recipe.width + low)
    length = steps * step_length(recipe, wide=item == 4)
    ns = first + (iterations - 1) * iteration + iterations * pause
    return LaunchPrice(ns, length, int(iterations > 1), moved, tuple(busy.items()))


def _columns(recipe: ModulationRecipe, chunk: PsumChunk) -> int:
    return chunk.low_rows * chunk.rows * chunk.low_columns * recipe.factor


def _stages(recipe: ModulationRecipe, item: int, clock: Clock) -> Stages:
    """What a step takes of every engine and of memory."""
    tiles, channels, low = len(recipe.tiles), recipe.shape[0], recipe.low_rows * recipe.low[2]
    slow = 2 if item == 4 else 1
    columns = [_columns(recipe, chunk) for chunk in recipe.chunks]
    scale_shift = clock.vector(slow * low) + clock.vector(low if item == 4 else low / 4)
    small = scale_shift if recipe.has_scale_shift else 0.0
    product = clock.vector(slow * recipe.width)
    matmuls = [2 * clock.matmul(count, wide=item == 4) for count in columns]
    ends = sum(map(clock.scalar, columns))
    waits = clock.scalar_latency(columns[-1]) - clock.scalar(columns[-1])
    summed = max(clock.warming(sum(matmuls)) + clock.scalar(columns[-1]), matmuls[0] + ends)
    low_loads = clock.load(2 * channels, low * item, 2 * tiles)
    loads = clock.load(channels, recipe.width * item, tiles)
    issued = clock.dma_latency + (3 * tiles - 1) * clock.issue  # all are issued in turn
    return (
        *(replace(stage, latency_ns=0.0) for stage in low_loads),
        *(replace(stage, latency_ns=0.0) for stage in loads[:-1]),
        replace(loads[-1], latency_ns=max(loads[-1].latency_ns, issued)),
        Stage(VECTOR, tiles * (small + product), small + clock.vector_latency(slow * recipe.width)),
        Stage(TENSOR, tiles * sum(matmuls), clock.matmul_latency()),
        Stage(SCALAR, tiles * ends, summed + waits),
        *clock.store(channels, recipe.width * item, tiles, _SLOTS),
    )

"""What the two launches of a group norm take, in closed form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from nkisim.compiler_count import matmul_instructions
from nkisim.machine import Machine
from trnconv.ask.starts import FACTORS
from trnconv.neighbours.chain import Stage, Stages
from trnconv.neighbours.group_norm.apply_core import SLOTS
from trnconv.neighbours.group_norm.recipe import GroupNormRecipe
from trnconv.neighbours.group_norm.statistics_core import RECORD, TRIPLE
from trnconv.neighbours.price import SCALAR, VECTOR, Clock, LaunchPrice, Steps, clock_of, rows_price
from trnconv.neighbours.sweep import IMAGES, SweepRow, steps_of

_TRIPLE_CYCLES = 13  # of bn_aggr
_SMALL = 1.0  # columns
_COMBINED = 4  # instructions that combine records
_FILLED = 5  # instructions that make triples of sums
_SUMS = 2  # over groups: matmuls that make a and b
_COEFFICIENTS = 6  # instructions of the Vector engine that make a and b


def statistics_price(
    recipes: Sequence[GroupNormRecipe], item: int, machine: Machine, hbm_bytes: int
) -> LaunchPrice:
    """The core that ends last."""
    return _slowest(recipes, machine, hbm_bytes, partial(_statistics, item))


def apply_price(
    recipes: Sequence[GroupNormRecipe], item: int, machine: Machine, hbm_bytes: int
) -> LaunchPrice:
    """The core that ends last."""
    return _slowest(recipes, machine, hbm_bytes, partial(_applied, item))


def factors_price(recipe: GroupNormRecipe, machine: Machine) -> LaunchPrice:
    """Coefficients of all images, one after the other, on every core."""
    others = recipe.parts - 1
    clock, tiles = clock_of(machine, recipe.parts), len(recipe.tiles)
    lines = recipe.tiles[-1][1]
    stored = clock.dma_latency + clock.moved_alone(-(-lines // recipe.parts), 4 * FACTORS)
    matmuls = _SUMS * matmul_instructions("float32")
    each = tiles * (1 + _COEFFICIENTS + matmuls + 1)
    chains = recipe.images * tiles
    sums = _SUMS * chains * clock.wide_matmul(_SMALL)
    chain = chains * (_chain_ns(clock) + _SUMS * clock.matmul_latency()) + clock.warming(sums)
    constants = clock.moved(recipe.lines, 4 * (2 * tiles + recipe.lines))
    moved = 4 * recipe.images * recipe.shape[1] * (TRIPLE * recipe.parts + FACTORS)
    busy = recipe.images * tiles * _COEFFICIENTS * clock.vector(_SMALL)
    return LaunchPrice(
        constants
        + _statistics_load_ns(recipe, clock)
        + chain
        + stored
        + others * clock.timing.core_barrier_ns,
        1 + recipe.images * each + others,
        0,
        moved,
        ((VECTOR, busy),),
    )


def _slowest(
    recipes: Sequence[GroupNormRecipe],
    machine: Machine,
    hbm_bytes: int,
    core_price: Callable[[GroupNormRecipe, Clock], LaunchPrice],
) -> LaunchPrice:
    clock = clock_of(machine, len(recipes))
    prices = [core_price(recipe, clock) for recipe in recipes]
    slowest = max(prices, key=lambda price: price.ns)
    longest = max(price.instructions for price in prices)
    return replace(slowest, hbm_bytes=hbm_bytes, instructions=longest)


def _chunks(width: int, recipe: GroupNormRecipe) -> list[int]:
    """Positions of each record of a step."""
    shared = recipe.shared if width == recipe.width else 0
    return [count for _, count in steps_of(width - shared, recipe.chunk)]


def _combine_ns(recipe: GroupNormRecipe, clock: Clock, columns: float, whole: int) -> float:
    """Columns of records into the image so far; most instructions wait for the one before.

    `whole`: steps with sums that are made a record first.
    """
    aggregated = _TRIPLE_CYCLES * (1 + columns / TRIPLE)
    hop = clock.timing.semaphore_ns
    ns = max(clock.vector(aggregated), clock.vector_latency(aggregated) - hop)
    if recipe.shared and whole:
        ns += clock.vector(whole) + (_FILLED - 1) * (clock.vector_latency(2 * whole) - hop)
    return len(recipe.tiles) * (ns + (_COMBINED - 2) * clock.vector(_SMALL))


def _statistics(item: int, recipe: GroupNormRecipe, clock: Clock) -> LaunchPrice:
    """Steps at the pace of an engine or of loads; records are combined on the way."""
    tiles, channels = len(recipe.tiles), recipe.shape[1]
    full = _full_ns(recipe, clock) / recipe.held

    def stages(width: int) -> Stages:
        chunks = _chunks(width, recipe)
        *shared, moved = clock.load(channels, width * item, tiles)
        # The first tile is counted while the others are on their way.
        early = (tiles - 1) * min(clock.issue, clock.vector(chunks[0]))
        loaded = (*shared, replace(moved, latency_ns=moved.latency_ns - early))
        counted = tiles * sum(map(clock.vector, chunks))
        last = clock.vector_latency(chunks[-1])
        if width < recipe.width or not recipe.shared:
            latency = counted - clock.vector(chunks[-1]) + last
            return (*loaded, Stage(VECTOR, counted + full, latency), Stage(SCALAR, 0.0, 0.0))
        summed, squared = (tiles * ns for ns in _shared_ns(recipe.shared, clock))
        return (
            *loaded,
            Stage(VECTOR, counted + summed + full, last),
            Stage(SCALAR, squared, squared + clock.scalar_latency(0)),
        )

    def length(width: int) -> int:
        sums = 2 if width == recipe.width and recipe.shared else 0
        return tiles * (1 + len(_chunks(width, recipe)) + sums)

    rows = [row for row in recipe.rows if row.pieces]
    total = rows_price(rows, recipe.width, clock, Steps(stages, length))
    stored = clock.dma_latency + clock.moved_alone(recipe.tiles[-1][1], 4 * TRIPLE)
    alone = bool(rows) and rows[-1].pieces[-1].alone
    stored += (tiles * (recipe.parts if alone else 1) - 1) * clock.issue
    total += LaunchPrice(stored if rows else 0.0, 1, 0, 0, ())
    for row in rows:
        total += _image_ends(recipe, clock, row)
    return total


def _shared_ns(positions: int, clock: Clock) -> tuple[float, float]:
    """Sums by the Vector engine, and squares by the Scalar engine, of a tile of channels."""
    return clock.narrow_sum(positions), clock.scalar(positions) + clock.read_out


def step_ns(width: int, shared: int, machine: Machine) -> float:
    """What the busier engine takes for a step of one tile, with so many positions shared."""
    clock = clock_of(machine, 1)
    summed, squared = _shared_ns(shared, clock)
    recorded = [count for _, count in steps_of(width - shared, machine.bn_stats_max_elems)]
    aggregated = _TRIPLE_CYCLES * (1 + RECORD / TRIPLE * len(recorded)) / clock.timing.vector_ghz
    return max(sum(map(clock.vector, recorded)) + summed + aggregated, squared)


def _full_ns(recipe: GroupNormRecipe, clock: Clock) -> float:
    """As many whole steps as are held, combined."""
    return _combine_ns(recipe, clock, recipe.held * recipe.stride, recipe.held)


def _image_ends(recipe: GroupNormRecipe, clock: Clock, row: SweepRow) -> LaunchPrice:
    """What begins and ends of images add to a row: clears, records left over, stores."""
    tiles, full = len(recipe.tiles), _full_ns(recipe, clock)
    ns, instructions = 0.0, 0
    for piece in row.pieces:
        steps, left = divmod(piece.length, recipe.width)
        count = steps + (left > 0)
        before = (count - 1) // recipe.held  # times that as many as are held were combined
        whole = steps - before * recipe.held
        columns = whole * recipe.stride + RECORD * len(_chunks(left, recipe)) * (left > 0)
        last = _combine_ns(recipe, clock, columns, whole)
        filled = _FILLED * (before + (whole > 0)) if recipe.shared else 0
        instructions += (_COMBINED * (before + 1) + filled) * tiles
        ns += row.turns * max(0.0, before * full + last - count * full / recipe.held)
        parts = recipe.parts if piece.alone else 1
        instructions += tiles * (piece.begins + parts * piece.ends)
    if row.along == IMAGES:
        ns += (row.turns - 1) * clock.dma_latency
    return LaunchPrice(ns, instructions, 0, 0, ())


def _applied(item: int, recipe: GroupNormRecipe, clock: Clock) -> LaunchPrice:
    """Steps at the pace of DMA or of the Scalar engine; an image waits for its coefficients."""
    tiles, channels = len(recipe.tiles), recipe.shape[1]

    def stages(width: int) -> Stages:
        ends = clock.scalar_latency(width)
        return (
            *clock.load(channels, width * item, tiles),
            Stage(SCALAR, tiles * clock.scalar(width), ends),
            *clock.store(channels, width * item, tiles, SLOTS),
        )

    steps = Steps(stages, lambda _: 3 * tiles, clock.table(recipe.activation))
    rows = [row for row in recipe.rows if row.pieces]
    total = LaunchPrice(clock.issue, 1, 0, 0, ())
    total += rows_price(rows, recipe.width, clock, steps)
    load = clock.dma_latency + clock.moved(channels, recipe.width * item)
    waits = max(0.0, _coefficients_ns(recipe, clock) - load)
    for row in rows:
        begun = sum(piece.begins for piece in row.pieces)
        if begun:
            total += _begun(recipe, clock, row, waits)
    return total


def _begun(recipe: GroupNormRecipe, clock: Clock, row: SweepRow, waits: float) -> LaunchPrice:
    """Coefficients of the images of a row; of the first of a turn, all wait for them."""
    tiles, count = len(recipe.tiles), sum(piece.begins for piece in row.pieces)
    turns = row.turns if row.along == IMAGES else 1
    runs = recipe.shape[1] * recipe.parts
    moved = clock.moved(runs, 4 * TRIPLE)
    matmuls = _SUMS * matmul_instructions("float32")
    busy = count * turns * tiles * _COEFFICIENTS * clock.vector(_SMALL)
    ns = turns * (waits + (count - 1) * moved)
    instructions = count * tiles * (1 + _COEFFICIENTS + matmuls)
    return LaunchPrice(ns, instructions, 0, 0, ((VECTOR, busy),))


def _coefficients_ns(recipe: GroupNormRecipe, clock: Clock) -> float:
    """From the load of statistics to the last tile's coefficients."""
    sums = _SUMS * (clock.warming(clock.wide_matmul(_SMALL)) + clock.matmul_latency())
    return _statistics_load_ns(recipe, clock) + len(recipe.tiles) * (_chain_ns(clock) + sums)


def _statistics_load_ns(recipe: GroupNormRecipe, clock: Clock) -> float:
    return clock.dma_latency + clock.moved_alone(recipe.tiles[-1][1] * recipe.parts, 4 * TRIPLE)


def _chain_ns(clock: Clock) -> float:
    """From statistics of a tile to its coefficients, without sums over groups.

    Each instruction waits for the one before.
    """
    hop = clock.timing.semaphore_ns
    return _COEFFICIENTS * (clock.vector_latency(_SMALL) - hop) + 3 * hop

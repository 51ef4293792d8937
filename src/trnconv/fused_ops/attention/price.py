"""What attention takes, by the cost model: items at the pace of the busiest engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nkisim.compiler_count import matmul_instructions
from nkisim.machine import Machine
from trnconv.algorithms.dma import descriptor_ns
from trnconv.fused_ops.attention.recipe import AttentionRecipe, QueryRow
from trnconv.fused_ops.price import (
    DMA,
    HBM,
    ISSUE,
    SCALAR,
    TENSOR,
    VECTOR,
    Clock,
    LaunchPrice,
    clock_of,
    slowest,
)
from trnconv.fused_ops.sweep import steps_of

_SMALL = 1.0  # columns
_NEAR = 0.75  # of the busiest engine's work: the Tensor engine's waits then show


@dataclass(frozen=True)
class _Item:
    """A tile of queries by a block of keys, ns."""

    tensor: float
    vector: float
    scalar: float
    scores: float  # of `tensor`
    transpose: float  # of `tensor`
    weights: float  # from scores to weights that may be transposed

    @property
    def pace(self) -> float:
        """From one item to the next; the Tensor engine comes back to an item for its weights."""
        back = (self.weights + self.transpose + self.scores) / 2
        return max(self.tensor, self.vector, self.scalar, back)


def launch_price(recipes: Sequence[AttentionRecipe], machine: Machine) -> LaunchPrice:
    """The core that ends last."""
    clock = clock_of(machine, len(recipes))
    prices = [_core(recipe, clock) for recipe in recipes]
    return slowest(prices, sum(price.hbm_bytes for price in prices))


def more_images(first: LaunchPrice, both: LaunchPrice, count: int) -> LaunchPrice:
    """What so many images more than two add, each as the second one does."""
    busy = dict(first.busy)
    return LaunchPrice(
        count * (both.ns - first.ns),
        count * (both.instructions - first.instructions),
        count * (both.regions - first.regions),
        count * (both.hbm_bytes - first.hbm_bytes),
        tuple((resource, count * (ns - busy[resource])) for resource, ns in both.busy),
    )


def _core(recipe: AttentionRecipe, clock: Clock) -> LaunchPrice:
    total, behind_loop = clock.barrier, True
    for number, row in enumerate(recipe.rows):
        following = recipe.rows[number + 1 : number + 2]
        looped = row.iterations > 1
        drains = looped or not following or following[0].iterations > 1
        total += _row(recipe, row, clock, _Ends(fills=looped or behind_loop, drains=drains))
        behind_loop = looped
    return total


@dataclass(frozen=True)
class _Ends:
    """Whether a row starts with nothing loaded, and whether nothing follows it at once."""

    fills: bool
    drains: bool


def _blocks(recipe: AttentionRecipe, row: QueryRow) -> dict[int, int]:
    """How many blocks there are of so many keys."""
    whole, left = divmod(row.keys, recipe.block)
    return {keys: count for keys, count in ((recipe.block, whole), (left, 1)) if keys and count}


def _row(recipe: AttentionRecipe, row: QueryRow, clock: Clock, ends: _Ends) -> LaunchPrice:
    """All iterations of a row."""
    tiles = -(-row.count // recipe.lines)
    queries = -(-row.count // tiles)
    work, tensor, pace, alone = 0.0, 0.0, 0.0, 0.0
    busy = dict.fromkeys((TENSOR, VECTOR, SCALAR, DMA, ISSUE), 0.0)
    for keys, count in _blocks(recipe, row).items():
        item = _item(recipe, keys, queries, clock)
        moved = _transposed(recipe, keys, clock) + clock.moved(keys, 2 * recipe.shape[2])
        work += count * max(tiles * item.pace, moved)
        tensor += count * tiles * item.tensor
        pace = max(pace, item.pace)
        alone = max(alone, item.weights + item.tensor)
        for resource, ns in (
            (TENSOR, tiles * item.tensor),
            (VECTOR, tiles * item.vector),
            (SCALAR, tiles * item.scalar),
            (DMA, moved),
            (ISSUE, 3 * clock.issue),
        ):
            busy[resource] += row.iterations * count * ns
    cold = max(0.0, clock.warming(tensor) - work)
    waits = tensor > _NEAR * work
    work = max(work, alone + (pace if tiles > 2 else 0.0))  # the last item, behind those before
    fill, copied, drain = _fill_and_drain(recipe, row, clock)
    copied = copied if waits else 0.0  # else it is work of the engine that is the bound
    work += fill + cold if ends.fills else max(0.0, fill - 2 * pace - copied) + cold
    work += copied + (drain if ends.drains else 0.0)
    looped = row.iterations > 1
    pause = clock.timing.loop_iteration_ns if looped else 0.0
    bytes_moved = row.iterations * 2 * recipe.shape[2] * (2 * row.count + 2 * row.keys)
    busy[HBM] = clock.hbm(bytes_moved)
    length = _length(recipe, row)
    return LaunchPrice(
        row.iterations * (work + pause), length, int(looped), bytes_moved, tuple(busy.items())
    )


def _transposed(recipe: AttentionRecipe, rows: int, clock: Clock) -> float:
    """Rows of k or q that DMA transposes."""
    rate, depth = clock.timing.dma_transpose_rate, recipe.shape[2]
    each = descriptor_ns(clock.timing, 2 * depth, rate=rate)
    return rows * each / clock.timing.dma_engines


def _fill_and_drain(
    recipe: AttentionRecipe, row: QueryRow, clock: Clock
) -> tuple[float, float, float]:
    """Until the first scores; a wait for the last weights; behind the last product."""
    depth, lines = recipe.shape[2], recipe.lines
    keys = min(row.keys, recipe.block)
    loads = max(_transposed(recipe, keys, clock), clock.issue)
    fill = clock.dma_latency + loads + _transposed(recipe, row.count, clock)
    copied = clock.matmul_latency() + clock.vector(keys / 4) + clock.vector_latency(keys / 4)
    added = clock.matmul_latency() + clock.vector_latency(depth) + clock.vector_latency(_SMALL)
    store = clock.dma_latency + clock.moved_alone(min(lines, row.count), 2 * depth)
    return fill, copied, added + clock.scalar_latency(depth) + store


def _item(recipe: AttentionRecipe, keys: int, queries: int, clock: Clock) -> _Item:
    """One item; the first block of a row takes a little less."""
    (deep, elems), depth, timing = recipe.depth, recipe.shape[2], clock.timing
    banks = [count for _, count in steps_of(keys, recipe.bank)]
    tiles = [count for _, count in steps_of(keys, recipe.lines)]
    cells = recipe.lines**2
    rate = timing.pe_rate(elems * queries / cells)
    scores = deep * sum(map(clock.matmul, banks)) / rate
    transpose = sum(
        clock.matmul(queries) / timing.pe_rate(queries * count / cells) for count in tiles
    )
    products = sum(clock.matmul(depth) / timing.pe_rate(queries * count / cells) for count in tiles)
    waits = clock.vector_latency(_SMALL) - timing.semaphore_ns
    follow = waits + clock.vector_latency(0) - clock.vector(0) - timing.semaphore_ns
    maxima = sum(map(clock.vector, banks)) + follow + clock.vector(_SMALL)
    copies = sum(clock.vector(count / 2) for count in banks)
    exps = sum(map(clock.scalar, banks)) + clock.read_out + clock.scalar(_SMALL)
    weights = clock.matmul_latency() + clock.vector(banks[-1]) + follow + waits + exps
    return _Item(
        tensor=scores + transpose + products,
        vector=maxima + copies + clock.vector(depth) + clock.vector(_SMALL),
        scalar=exps,
        scores=scores,
        transpose=transpose,
        weights=weights + clock.scalar_latency(0) - clock.scalar(0) + timing.semaphore_ns,
    )


def _length(recipe: AttentionRecipe, row: QueryRow) -> int:
    """Static instructions of an iteration, as a compiler counts them."""
    tiles, pair = -(-row.count // recipe.lines), matmul_instructions("")
    length = 1 + 3 * tiles - tiles  # the first block has no factors
    for keys, count in _blocks(recipe, row).items():
        banks = [columns for _, columns in steps_of(keys, recipe.bank)]
        products = -(-keys // recipe.lines)
        loads = 1 + _pieces(keys, recipe.lines)
        matmuls = recipe.depth[0] * len(banks) + 2 * products
        copies = sum(_pieces(columns, recipe.lines) for columns in banks)
        small = 2 * len(banks) + 3 + copies + 2
        length += count * (loads + tiles * (pair * matmuls + small))
    return length


def _pieces(keys: int, lines: int) -> int:
    """Whole tiles are moved together, and what is left by itself."""
    return (keys >= lines) + (keys % lines > 0)

"""What the launches of a group norm take, by the cost model."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nkisim.compiler_count import matmul_instructions
from nkisim.machine import Machine
from trnconv.fused_ops.chain import Stage, Stages
from trnconv.fused_ops.group_norm.apply_core import SLOTS
from trnconv.fused_ops.group_norm.recipe import GroupNormRecipe
from trnconv.fused_ops.group_norm.statistics_core import RECORD, TRIPLE
from trnconv.fused_ops.price import SCALAR, VECTOR, Clock, LaunchPrice, Steps, clock_of, rows_price
from trnconv.fused_ops.sweep import IMAGES, SweepRow, steps_of
from trnconv.problem.prologue import FACTORS

_TRIPLE_CYCLES = 13  # of bn_aggr
_SMALL = 1.0  # columns
_COMBINED = 4  # instructions that combine records
_FILLED = 5  # instructions that make triples of sums
_SUMS = 2  # over groups: matmuls that make a and b
_SCALE_SHIFT = 6  # instructions of the Vector engine that make a and b


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


@dataclass(frozen=True)
class StatisticsLaunch:
    """The first launch on one core; elements of x have `item` bytes."""

    recipe: GroupNormRecipe
    item: int
    clock: Clock

    @property
    def tiles(self) -> int:
        """Of channels."""
        return len(self.recipe.tiles)

    def chunks(self, width: int) -> list[int]:
        """Positions of each record of a step."""
        shared = self.recipe.shared if width == self.recipe.width else 0
        return [count for _, count in steps_of(width - shared, self.recipe.chunk)]

    def combine_ns(self, columns: float, whole: int) -> float:
        """Columns of records into the image so far; most instructions wait for the one before.

        `whole`: steps with sums that are made a record first.
        """
        clock = self.clock
        aggregated = _TRIPLE_CYCLES * (1 + columns / TRIPLE)
        hop = clock.timing.semaphore_ns
        ns = max(clock.vector(aggregated), clock.vector_latency(aggregated) - hop)
        if self.recipe.shared and whole:
            ns += clock.vector(whole) + (_FILLED - 1) * (clock.vector_latency(2 * whole) - hop)
        return self.tiles * (ns + (_COMBINED - 2) * clock.vector(_SMALL))

    @property
    def full_ns(self) -> float:
        """As many whole steps as are held, combined."""
        return self.combine_ns(self.recipe.held * self.recipe.stride, self.recipe.held)

    def stages(self, width: int) -> Stages:
        """Steps at the pace of an engine or of loads; records are combined on the way."""
        clock, recipe, tiles = self.clock, self.recipe, self.tiles
        chunks, full = self.chunks(width), self.full_ns / recipe.held
        *shared, moved = clock.load(recipe.shape[1], width * self.item, tiles)
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

    def length(self, width: int) -> int:
        """Static instructions of a step, without those that combine records."""
        sums = 2 if width == self.recipe.width and self.recipe.shared else 0
        return self.tiles * (1 + len(self.chunks(width)) + sums)

    def price(self) -> LaunchPrice:
        """All steps, what begins and ends of images, and the last stores."""
        clock, rows = self.clock, self.recipe.rows
        total = rows_price(rows, self.recipe.width, clock, Steps(self.stages, self.length))
        stored = clock.dma_latency + clock.moved_alone(self.recipe.tiles[-1][1], 4 * TRIPLE)
        alone = bool(rows) and rows[-1].pieces[-1].alone
        stored += (self.tiles * (self.recipe.parts if alone else 1) - 1) * clock.issue
        total += LaunchPrice(stored if rows else 0.0, 1)
        for row in rows:
            total += self.image_ends(row)
        return total

    def image_ends(self, row: SweepRow) -> LaunchPrice:
        """What begins and ends of images add to a row: clears, records left over, stores."""
        recipe, tiles, full = self.recipe, self.tiles, self.full_ns
        ns, instructions = 0.0, 0
        for piece in row.pieces:
            steps, left = divmod(piece.length, recipe.width)
            count = steps + (left > 0)
            before = (count - 1) // recipe.held  # times that as many as are held were combined
            whole = steps - before * recipe.held
            columns = whole * recipe.stride + RECORD * len(self.chunks(left)) * (left > 0)
            last = self.combine_ns(columns, whole)
            filled = _FILLED * (before + (whole > 0)) if recipe.shared else 0
            instructions += (_COMBINED * (before + 1) + filled) * tiles
            ns += row.iterations * max(0.0, before * full + last - count * full / recipe.held)
            parts = recipe.parts if piece.alone else 1
            instructions += tiles * (piece.begins + parts * piece.ends)
        if row.along == IMAGES:
            ns += (row.iterations - 1) * self.clock.dma_latency
        return LaunchPrice(ns, instructions)


@dataclass(frozen=True)
class ScaleShiftTime:
    """From statistics of an image to a and b of its channels."""

    recipe: GroupNormRecipe
    clock: Clock

    @property
    def length(self) -> int:
        """Static instructions of a tile, with the load."""
        return 1 + _SCALE_SHIFT + _SUMS * matmul_instructions("float32")

    def busy(self, images: int) -> tuple[tuple[str, float], ...]:
        """What so many images take the Vector engine."""
        instructions = images * len(self.recipe.tiles) * _SCALE_SHIFT
        return ((VECTOR, instructions * self.clock.vector(_SMALL)),)

    @property
    def load_ns(self) -> float:
        """Until statistics are there."""
        runs = self.recipe.tiles[-1][1] * self.recipe.parts
        return self.clock.dma_latency + self.clock.moved_alone(runs, 4 * TRIPLE)

    @property
    def chain_ns(self) -> float:
        """From statistics of a tile to its scale and shift, without sums over groups.

        Each instruction waits for the one before.
        """
        hop = self.clock.timing.semaphore_ns
        return _SCALE_SHIFT * (self.clock.vector_latency(_SMALL) - hop) + 3 * hop

    @property
    def ns(self) -> float:
        """From the load of statistics to the last tile's scale and shift."""
        clock = self.clock
        sums = _SUMS * (clock.warming(clock.wide_matmul(_SMALL)) + clock.matmul_latency())
        return self.load_ns + len(self.recipe.tiles) * (self.chain_ns + sums)


@dataclass(frozen=True)
class ApplyLaunch:
    """The second launch on one core; elements of x and y have `item` bytes."""

    recipe: GroupNormRecipe
    item: int
    clock: Clock

    def stages(self, width: int) -> Stages:
        """Steps at the pace of DMA or of the Scalar engine."""
        clock, channels, tiles = self.clock, self.recipe.shape[1], len(self.recipe.tiles)
        return (
            *clock.load(channels, width * self.item, tiles),
            Stage(SCALAR, tiles * clock.scalar(width), clock.scalar_latency(width)),
            *clock.store(channels, width * self.item, tiles, SLOTS),
        )

    def price(self) -> LaunchPrice:
        """All steps; an image waits for its scale and shift."""
        recipe, clock = self.recipe, self.clock
        length = 3 * len(recipe.tiles)
        steps = Steps(self.stages, lambda _: length, clock.table(recipe.activation))
        total = LaunchPrice(clock.issue, 1)
        total += rows_price(recipe.rows, recipe.width, clock, steps)
        for row in recipe.rows:
            begun = sum(piece.begins for piece in row.pieces)
            if begun:
                total += self.scale_shift(begun, row.iterations if row.along == IMAGES else 1)
        return total

    def scale_shift(self, images: int, iterations: int) -> LaunchPrice:
        """Scale and shift of a row's images; of the first of an iteration, all wait for them."""
        recipe, clock = self.recipe, self.clock
        times = ScaleShiftTime(recipe, clock)
        load = clock.dma_latency + clock.moved(recipe.shape[1], recipe.width * self.item)
        moved = clock.moved(recipe.shape[1] * recipe.parts, 4 * TRIPLE)
        ns = iterations * (max(0.0, times.ns - load) + (images - 1) * moved)
        length = images * len(recipe.tiles) * times.length
        return LaunchPrice(ns, length, busy=times.busy(images * iterations))


def scale_shift_price(recipe: GroupNormRecipe, machine: Machine) -> LaunchPrice:
    """Scale and shift of all images, one after the other, on every core."""
    clock, tiles = clock_of(machine, recipe.parts), len(recipe.tiles)
    times, images = ScaleShiftTime(recipe, clock), recipe.images
    runs = -(-recipe.tiles[-1][1] // recipe.parts)
    stored = clock.dma_latency + clock.moved_alone(runs, 4 * FACTORS)
    chains = images * tiles
    sums = _SUMS * chains * clock.wide_matmul(_SMALL)
    chain = chains * (times.chain_ns + _SUMS * clock.matmul_latency()) + clock.warming(sums)
    constants = clock.moved(recipe.lines, 4 * (2 * tiles + recipe.lines))
    moved = 4 * images * recipe.shape[1] * (TRIPLE * recipe.parts + FACTORS)
    length = 1 + images * tiles * (times.length + 1)
    ns = constants + times.load_ns + chain + stored
    return LaunchPrice(ns, length, 0, moved, times.busy(images)) + clock.barrier

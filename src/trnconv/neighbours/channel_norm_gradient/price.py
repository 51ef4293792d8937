"""What the gradient of a channel norm takes, in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from nkisim.compiler_count import matmul_instructions
from trnconv.ask.ends import IDENTITY, ITEM_BYTES
from trnconv.forms.float_terms import TERMS
from trnconv.neighbours.chain import Stage, Stages
from trnconv.neighbours.channel_norm.problem import ChannelNorm, is_wide
from trnconv.neighbours.channel_norm_gradient.kernel import LATE
from trnconv.neighbours.price import (
    GPSIMD,
    SCALAR,
    TENSOR,
    VECTOR,
    Clock,
    LaunchPrice,
    Steps,
    rows_price,
)
from trnconv.neighbours.step_sums import COLUMNS, FOLDING
from trnconv.neighbours.sweep import SweepRow, channel_tiles


@dataclass(frozen=True)
class GradientStep:
    """A step with its decisions."""

    norm: ChannelNorm
    clock: Clock
    vector_columns: int  # of a step, squared by the Vector engine
    gpsimd_passes: int

    @property
    def tiles(self) -> int:
        """Of channels."""
        return len(channel_tiles(self.norm.channels, self.clock.machine))

    @property
    def slopes(self) -> int:
        """Whether there is act' to take and to multiply with."""
        return int(self.norm.activation != IDENTITY)

    @property
    def kinds(self) -> int:
        """Sums over positions."""
        return 2 if self.norm.has_beta else 1

    def stages(self, width: int) -> Stages:
        """What a step takes of every engine and of memory, and how long the next stage waits."""
        clock, item, tiles = self.clock, ITEM_BYTES[self.norm.dtype], self.tiles
        both = 2 if is_wide(self.norm) else 1  # cycles an element, of two operands in SBUF
        by_vector = min(self.vector_columns, width)
        squares = clock.vector(both * by_vector) if by_vector else 0.0
        others = clock.scalar(width - by_vector) if by_vector < width else 0.0
        matmul = clock.matmul(width, wide=is_wide(self.norm))
        once, twice = clock.vector(width), clock.vector(both * width)
        on_gpsimd = min(self.gpsimd_passes, 1 + self.slopes)
        products = (1 + self.slopes - on_gpsimd) * twice, on_gpsimd * clock.gpsimd(width)
        summed = clock.scalar(width) + clock.read_out
        given, last = 2 * self.norm.channels, clock.vector_latency(width)
        return (
            *clock.load(given, width * item, 2 * tiles),
            Stage(VECTOR, tiles * squares, 0.0),
            Stage(SCALAR, tiles * others, tiles * max(squares, others) + clock.scalar_latency(0)),
            Stage(TENSOR, (1 + tiles) * matmul, matmul + clock.matmul_latency()),
            Stage(VECTOR, tiles * once, last),
            Stage(SCALAR, tiles * self.slopes * clock.scalar(width), clock.scalar_latency(width)),
            Stage(VECTOR, tiles * products[0], 0.0),
            Stage(GPSIMD, tiles * products[1], tiles * max(products)),
            Stage(SCALAR, tiles * self.kinds * summed, 0.0),
            Stage(TENSOR, tiles * matmul, matmul + clock.matmul_latency()),
            Stage(VECTOR, tiles * (2 * once + twice), tiles * (once + twice) + last),
            *clock.store(self.norm.channels, width * item, tiles, LATE),
        )

    def length(self, width: int) -> int:
        """Static instructions of a step, as a compiler counts them."""
        squares = (self.vector_columns > 0) + (self.vector_columns < width)
        moves, vector = 3, 5  # x, dy and dx; n, du n, n S, scale du - n S, and r times that
        matmuls = matmul_instructions("float32" if is_wide(self.norm) else "")
        each = moves + squares + vector + 2 * self.slopes + self.kinds
        return self.tiles * each + (1 + 2 * self.tiles) * matmuls

    def folds(self, steps: int) -> int:
        """Static instructions of sums that are folded, of a turn of so many steps."""
        return -(-steps // COLUMNS) * FOLDING * self.kinds * self.tiles


def launch_price(
    step: GradientStep, cores: Sequence[tuple[SweepRow, ...]], width: int
) -> LaunchPrice:
    """The core that ends last; all bytes."""
    slowest = max((_core_price(step, rows, width) for rows in cores), key=lambda price: price.ns)
    norm, parts = step.norm, len(cores)
    moved = 3 * norm.images * norm.channels * norm.positions * ITEM_BYTES[norm.dtype]
    return replace(slowest, hbm_bytes=moved + parts * norm.channels * step.kinds * 4)


def _core_price(step: GradientStep, rows: tuple[SweepRow, ...], width: int) -> LaunchPrice:
    """Row after row, behind the load of constants, before the store of sums."""
    clock, stages = step.clock, cache(step.stages)
    terms = 1 if is_wide(step.norm) else TERMS
    barrier = clock.timing.core_barrier_ns if clock.cores > 1 else 0.0  # of sums; rows have one
    before = LaunchPrice(2 * clock.issue, 4 + terms + step.tiles, 0, 0, ())
    after = LaunchPrice(barrier, step.tiles + clock.cores - 1, 0, 0, ())
    table = clock.table(step.norm.activation)
    steps = Steps(stages, step.length, table, step.folds)
    return before + rows_price(rows, width, clock, steps) + after

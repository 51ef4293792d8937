"""What the two launches of a group norm's gradient take, by the cost model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from trnconv.fused_ops.chain import Stage, Stages
from trnconv.fused_ops.group_norm_gradient.kernel import KINDS, LATE
from trnconv.fused_ops.group_norm_gradient.recipe import GroupNormGradientRecipe
from trnconv.fused_ops.price import (
    GPSIMD,
    SCALAR,
    VECTOR,
    Clock,
    LaunchPrice,
    Steps,
    rows_price,
)
from trnconv.fused_ops.step_sums import fold_instructions
from trnconv.problem.epilogue import IDENTITY, ITEM_BYTES

_FAST = 4  # elements a cycle of the Vector engine, of 16-bit types, with one operand


@dataclass(frozen=True)
class GradientPasses:
    """What passes over a step take."""

    recipe: GroupNormGradientRecipe
    clock: Clock

    @property
    def tiles(self) -> int:
        """Of channels."""
        return len(self.recipe.tiles)

    @property
    def slopes(self) -> int:
        """Whether there is act' to take and to multiply with."""
        return int(self.recipe.activation != IDENTITY)

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return ITEM_BYTES[self.recipe.between]

    def line(self, width: int) -> float:
        """One operand, times a number, plus another."""
        return self.clock.vector(width if self.item == 4 else width / _FAST)

    def product(self, width: int) -> float:
        """Two operands in SBUF."""
        return self.clock.vector(2 * width if self.item == 4 else width)

    def sums_stages(self, width: int) -> Stages:
        """A step of the first launch."""
        clock, tiles, slopes = self.clock, self.tiles, self.slopes
        is_narrow = self.recipe.between == "bfloat16"
        summed = clock.narrow_sum(width) if is_narrow else clock.vector(width)
        vector = slopes * self.product(width) + summed
        return (
            *clock.load(2 * self.recipe.shape[1], width * self.item, 2 * tiles),
            Stage(VECTOR, tiles * self.line(width), 0.0),
            Stage(SCALAR, tiles * slopes * clock.scalar(width), clock.scalar_latency(width)),
            Stage(VECTOR, tiles * vector, slopes * clock.vector_latency(width)),
            Stage(GPSIMD, tiles * clock.gpsimd(width), tiles * clock.gpsimd(width)),
            Stage(
                SCALAR, tiles * (clock.scalar(width) + clock.read_out), clock.scalar_latency(width)
            ),
        )

    def sums_length(self, _width: int) -> int:
        """Static instructions of such a step."""
        return self.tiles * (2 + 1 + 2 * self.slopes + 1 + KINDS)

    def folds(self, steps: int) -> int:
        """Static instructions that fold the sums of an iteration of so many steps."""
        return fold_instructions(steps, KINDS, self.tiles)

    def input_stages(self, width: int) -> Stages:
        """A step of the second launch."""
        clock, tiles, slopes = self.clock, self.tiles, self.slopes
        vector = tiles * (slopes * self.product(width) + self.product(width))
        return (
            *clock.load(2 * self.recipe.shape[1], width * self.item, 2 * tiles),
            Stage(VECTOR, tiles * self.line(width), 0.0),
            Stage(SCALAR, tiles * slopes * clock.scalar(width), clock.scalar_latency(width)),
            Stage(
                VECTOR, vector, slopes * tiles * self.product(width) + clock.vector_latency(width)
            ),
            *clock.store(self.recipe.shape[1], width * self.item, tiles, LATE),
        )

    def input_length(self, _width: int) -> int:
        """Static instructions of such a step."""
        return self.tiles * (2 + 1 + 2 * self.slopes + 1 + 1)

    def sums_price(self) -> LaunchPrice:
        """The first launch, on one core."""
        clock, tiles = self.clock, self.recipe.tiles
        before = LaunchPrice(clock.issue, 1 + len(tiles))
        stored = clock.dma_latency + clock.moved_alone(tiles[-1][1], 4 * KINDS)
        steps = Steps(cache(self.sums_stages), self.sums_length, self._table_ns, self.folds)
        return before + self._rows(steps) + LaunchPrice(stored, len(tiles))

    def input_price(self) -> LaunchPrice:
        """The second launch, on one core."""
        steps = Steps(cache(self.input_stages), self.input_length, self._table_ns)
        return LaunchPrice(self.clock.issue, 1) + self._rows(steps)

    @property
    def _table_ns(self) -> float:
        return self.clock.table(self.recipe.activation)

    def _rows(self, steps: Steps) -> LaunchPrice:
        return rows_price(self.recipe.rows, self.recipe.width, self.clock, steps)

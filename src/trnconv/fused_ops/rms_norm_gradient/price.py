"""What the gradient of an RMS norm takes, by the cost model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from trnconv.fused_ops.chain import Stage, Stages
from trnconv.fused_ops.price import (
    GPSIMD,
    SCALAR,
    TENSOR,
    VECTOR,
    LaunchPrice,
    Steps,
    rows_price,
)
from trnconv.fused_ops.rms_norm.price import NormStep
from trnconv.fused_ops.rms_norm_gradient.kernel import LATE
from trnconv.fused_ops.step_sums import fold_instructions
from trnconv.fused_ops.sweep import SweepRow
from trnconv.problem.epilogue import IDENTITY


@dataclass(frozen=True)
class GradientStep(NormStep):
    """A step with its decisions: those of the norm, and what the GpSimd engine multiplies."""

    gpsimd_passes: int
    kinds: int  # of sums over positions

    @property
    def slopes(self) -> int:
        """Whether there is act' to take and to multiply with."""
        return int(self.activation != IDENTITY)

    def stages(self, width: int) -> Stages:
        """What a step takes of every engine and of memory, and how long the next stage waits."""
        clock, tiles = self.clock, self.tiles
        squares, others = self.squares(width)
        matmul = clock.matmul(width, wide=self.is_wide)
        once, twice = clock.vector(width), clock.vector(self.pair_cycles * width)
        on_gpsimd = min(self.gpsimd_passes, 1 + self.slopes)
        products = (1 + self.slopes - on_gpsimd) * twice, on_gpsimd * clock.gpsimd(width)
        summed = clock.scalar(width) + clock.read_out
        last = clock.vector_latency(width)
        return (
            *clock.load(2 * self.channels, width * self.item, 2 * tiles),
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
            *clock.store(self.channels, width * self.item, tiles, LATE),
        )

    def length(self, width: int) -> int:
        """Static instructions of a step, as a compiler counts them."""
        moves, vector = 3, 5  # x, dy and dx; n, du n, n S, scale du - n S, and r times that
        each = moves + self.square_passes(width) + vector + 2 * self.slopes + self.kinds
        return self.tiles * each + (1 + 2 * self.tiles) * self.matmul_length

    def folds(self, steps: int) -> int:
        """Static instructions that fold the sums of an iteration of so many steps."""
        return fold_instructions(steps, self.kinds, self.tiles)

    def core_price(self, rows: tuple[SweepRow, ...], width: int) -> LaunchPrice:
        """Row after row on one core, behind the load of constants, before the store of sums."""
        clock, tiles = self.clock, self.tiles
        before = LaunchPrice(2 * clock.issue, 2 + self.constants + tiles)
        table = clock.table(self.activation)
        steps = Steps(cache(self.stages), self.length, table, self.folds)
        stored = clock.barrier + LaunchPrice(0.0, tiles)  # rows have a barrier of their own
        return before + rows_price(rows, width, clock, steps) + stored

"""What an RMS norm takes, by the cost model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from nkisim.compiler_count import matmul_instructions
from trnconv.algorithms.float_terms import TERMS
from trnconv.fused_ops.chain import Stage, Stages
from trnconv.fused_ops.price import SCALAR, TENSOR, VECTOR, Clock, LaunchPrice, Steps, rows_price
from trnconv.fused_ops.rms_norm.square_sums import SLOTS
from trnconv.fused_ops.sweep import SweepRow, channel_tiles, steps_of
from trnconv.problem.epilogue import ITEM_BYTES


@dataclass(frozen=True)
class NormStep:
    """A step of a norm over so many channels, with its decisions."""

    channels: int
    dtype: str
    activation: str
    clock: Clock
    vector_columns: int  # of a step, squared by the Vector engine

    @property
    def tiles(self) -> int:
        """Of channels."""
        return len(channel_tiles(self.channels, self.clock.machine))

    @property
    def is_wide(self) -> bool:
        """Whether squares are float32."""
        return self.dtype == "float32"

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return ITEM_BYTES[self.dtype]

    @property
    def pair_cycles(self) -> int:
        """Of the Vector engine for an element, of two operands in SBUF."""
        return 2 if self.is_wide else 1

    @property
    def constants(self) -> int:
        """Instructions that fill the matrices of sums of squares."""
        return 2 + (1 if self.is_wide else TERMS)

    @property
    def matmul_length(self) -> int:
        """Static instructions of a matmul."""
        return matmul_instructions("float32" if self.is_wide else "")

    def square_passes(self, width: int) -> int:
        """Instructions that square a tile."""
        return (self.vector_columns > 0) + (self.vector_columns < width)

    def squares(self, width: int) -> tuple[float, float]:
        """What the Vector engine and the Scalar engine take to square a tile."""
        clock, by_vector = self.clock, min(self.vector_columns, width)
        return (
            clock.vector(self.pair_cycles * by_vector) if by_vector else 0.0,
            clock.scalar(width - by_vector) if by_vector < width else 0.0,
        )

    def stages(self, width: int) -> Stages:
        """What a step takes of every engine and of memory, and how long the next stage waits."""
        clock, tiles, wide = self.clock, self.tiles, self.is_wide
        banks = self._banks(width)
        squares, others = self.squares(width)
        matmuls = [clock.matmul(count, wide=wide) for count in banks]
        powers = [clock.vector(count) for count in banks]
        # Sums of a bank begin before all is squared.
        early = min(self.vector_columns, width) >= banks[0] and tiles == 1
        first = squares if early else max(squares, others)
        sums = clock.warming((1 + tiles) * sum(matmuls))
        sums = max(sums, max(squares, others) - first + matmuls[-1])
        products = max(sums + powers[-1], clock.warming(matmuls[0]) + tiles * sum(powers))
        return (
            *clock.load(self.channels, width * self.item, tiles),
            Stage(VECTOR, tiles * squares, 0.0),
            Stage(SCALAR, tiles * others, first + clock.scalar_latency(0)),
            Stage(TENSOR, (1 + tiles) * sum(matmuls), clock.matmul_latency()),
            Stage(VECTOR, tiles * sum(powers), products + clock.vector_latency(0)),
            Stage(SCALAR, tiles * clock.scalar(width), clock.scalar_latency(width)),
            *clock.store(self.channels, width * self.item, tiles, SLOTS),
        )

    def length(self, width: int) -> int:
        """Static instructions of a step, as a compiler counts them."""
        tiles, banks = self.tiles, len(self._banks(width))
        matmuls = (1 + tiles) * banks * self.matmul_length
        return tiles * (3 + self.square_passes(width) + banks) + matmuls

    def _banks(self, width: int) -> list[int]:
        """Columns of each bank of sums."""
        return [count for _, count in steps_of(width, self.clock.machine.psum_bank_fp32_elems)]

    def core_price(self, rows: tuple[SweepRow, ...], width: int) -> LaunchPrice:
        """Row after row on one core, behind the load of constants."""
        table = self.clock.table(self.activation)
        steps = Steps(cache(self.stages), self.length, table)  # rows have few widths
        before = LaunchPrice(self.clock.issue, 1 + self.constants)
        return before + rows_price(rows, width, self.clock, steps)

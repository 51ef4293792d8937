"""The price of an elementwise operation as a kernel of its own: loads, passes of an engine, stores.

There is no kernel: it is what an add, a clamp or a copy would take if nothing else took it over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nkisim.machine import Machine
from trnconv.fused_ops.chain import Stage, Stages
from trnconv.fused_ops.price import VECTOR, LaunchPrice, Steps, clock_of, rows_price, slowest
from trnconv.fused_ops.problem import FusedOp
from trnconv.fused_ops.refusal import choice_reasons, machine_reasons
from trnconv.fused_ops.sweep import cut_of, sweeps
from trnconv.problem.epilogue import ITEM_BYTES

_WIDTH_IN_BANKS = 4  # as wide as the steps of norms
_SLOTS = 4


@dataclass(frozen=True)
class Pointwise(FusedOp):
    """An operation on `elements`: tensors read and written, and operators of the Vector engine.

    A copy has no operator: DMA moves it by way of SBUF.
    """

    elements: int
    reads: int = 1
    writes: int = 1
    dtype: str = "bfloat16"
    operators: int = 1

    def _reasons(self, machine: Machine, cores: int) -> Iterator[str]:
        if min(self.elements, self.reads, self.writes) < 1 or self.operators < 0:
            yield f"{self}: at least one element, read and written, and no fewer than 0 operators"
        yield from choice_reasons("dtype", self.dtype, tuple(ITEM_BYTES))
        yield from machine_reasons(machine, cores)

    def modelled(self, machine: Machine, cores: int) -> LaunchPrice:
        """Elements on all partitions, in steps; the core that ends last."""
        item, lines = ITEM_BYTES[self.dtype], machine.partitions
        positions = -(-self.elements // lines)
        clock = clock_of(machine, cores)
        length = self.reads + self.operators + self.writes
        width = min(_WIDTH_IN_BANKS * machine.psum_bank_fp32_elems, positions)
        cycles = 2 if item == 4 and self.reads > 1 else 1

        def stages(count: int) -> Stages:
            passes = self.operators * clock.vector(cycles * count)
            latency = clock.vector_latency(cycles * count) if self.operators else 0.0
            return (
                *clock.load(self.reads * lines, count * item, self.reads),
                Stage(VECTOR, passes, latency),
                *clock.store(self.writes * lines, count * item, self.writes, _SLOTS),
            )

        steps = Steps(stages, lambda _: length)
        cores_rows = sweeps(1, positions, cut_of(width, length), machine, cores)
        return slowest(
            (rows_price(rows, width, clock, steps) for rows in cores_rows),
            item * self.elements * (self.reads + self.writes),
        )

"""The engines of one core together: where instructions are placed, and what a loop moves on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from nkisim.enums import engine
from nkisim.machine import Machine
from nkisim.timing.costs import Cost
from nkisim.timing.dma_engines import DmaEngines
from nkisim.timing.engines import ComputeEngine, Placed, ScalarEngine, TensorEngine
from nkisim.trace import Instruction


class Core:
    """Compute engines and DMA of one core; `place[where](cost, ready)` runs an instruction."""

    def __init__(self, machine: Machine) -> None:
        self._timing = machine.timing
        self._engines: dict[engine, ComputeEngine] = {
            engine.tensor: TensorEngine(machine),
            engine.vector: ComputeEngine(),
            engine.scalar: ScalarEngine(machine.timing.table_load_ns),
            engine.gpsimd: ComputeEngine(),
            engine.sync: ComputeEngine(),
        }
        self._dma = DmaEngines(machine)
        self.place: dict[engine, Callable[[Cost, float], Placed]] = {
            engine.dma: self._dma.place,
            **{where: one.place for where, one in self._engines.items()},
        }

    @property
    def busy_ns(self) -> dict[str, float]:
        """Busy time by engine; DMA as data movement and as issue."""
        busy = {where.name: one.busy for where, one in self._engines.items()}
        busy["dma"] = self._dma.busy
        busy["dma issue"] = self._dma.issue_busy / self._timing.dma_issue_queues
        return busy

    @property
    def hbm_bytes(self) -> int:
        """Bytes read from and written to HBM."""
        return self._dma.hbm_bytes

    def free(self, instruction: Instruction, cost: Cost) -> float:
        """When the engine or queue of an instruction can take another one."""
        if cost.transfer is not None:
            return self._dma.queue(cost.transfer.direction).issue_free
        return self._engines[instruction.engine].free

    def meters(self) -> list[float]:
        """Every number that grows with time; in a steady loop each gains the same per period."""
        engines = (one.meters() for one in self._engines.values())
        return [*(meter for meters in engines for meter in meters), *self._dma.meters()]

    def advance(self, gains: Sequence[float]) -> None:
        """Add to the meters, in their order."""
        at = 0
        for one in self._engines.values():
            count = len(one.meters())
            one.advance(gains[at : at + count])
            at += count
        self._dma.advance(gains[at:])

    def condition(self) -> tuple[Hashable, ...]:
        """What else decides how instructions run; the same at both ends of a period."""
        return tuple(one.condition() for one in self._engines.values())

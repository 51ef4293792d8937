"""The engines of one core together: where instructions are placed, and what a loop moves on."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from nkisim.enums import engine
from nkisim.machine import Machine
from nkisim.timing.costs import Cost
from nkisim.timing.dma_engines import DmaEngines
from nkisim.timing.engines import ComputeEngine, Placed, ScalarEngine, TensorEngine
from nkisim.timing.shared_limit import SharedLimit
from nkisim.trace import Instruction


class Core:
    """Compute engines and DMA of one core; `place[where](cost, ready)` runs an instruction.

    `hbm` is the memory of the core, or of both cores of a launch.
    """

    def __init__(self, machine: Machine, hbm: SharedLimit, number: int = 0) -> None:
        self._timing = machine.timing
        self._psum = SharedLimit()
        self._engines: dict[engine, ComputeEngine] = {
            engine.tensor: TensorEngine(machine),
            engine.vector: ComputeEngine(self._psum),
            engine.scalar: ScalarEngine(machine.timing.table_load_ns, self._psum),
            engine.gpsimd: ComputeEngine(),
            engine.sync: ComputeEngine(),
        }
        self._dma = DmaEngines(machine, hbm, number)
        self.place: dict[engine, Callable[[Cost, float], Placed]] = {
            engine.dma: self._dma.place,
            **{where: unit.place for where, unit in self._engines.items()},
        }

    @property
    def busy_ns(self) -> dict[str, float]:
        """Busy time by engine; DMA as data movement and as issue."""
        busy = {where.name: unit.busy for where, unit in self._engines.items()}
        busy["dma"] = self._dma.busy
        busy["dma issue"] = self._dma.issue_busy / self._timing.dma_issue_queues
        return busy

    @property
    def hbm_bytes(self) -> int:
        """Bytes read from and written to HBM."""
        return self._dma.hbm_bytes

    def lane(self, instruction: Instruction, cost: Cost) -> object:
        """What keeps an instruction in order: its engine, or its DMA queue."""
        return instruction.engine if cost.transfer is None else self._dma.lane(cost.transfer)

    def free(self, instruction: Instruction, cost: Cost) -> float:
        """When the engine or queue of an instruction can take another one."""
        if cost.transfer is not None:
            return self._dma.queue(cost.transfer).issue_free
        return self._engines[instruction.engine].free

    def drain(self, when: float) -> None:
        """Everything has ended at a time, and nothing starts earlier."""
        for unit in self._engines.values():
            unit.drain(when)
        self._dma.drain(when)
        self._psum.drained(when)

    def condition(self, now: float) -> tuple[Hashable, ...]:
        """What decides how instructions run once everything has drained."""
        return tuple(unit.condition(now) for unit in self._engines.values())

    def totals(self) -> list[float]:
        """What an iteration of a loop adds to."""
        return [*(unit.busy for unit in self._engines.values()), *self._dma.totals()]

    def pass_by(self, iterations: int, gains: list[float], shift_ns: float) -> None:
        """Let iterations of a loop pass, each with these gains, all of them in this time."""
        engines = list(self._engines.values())
        for unit, gain in zip(engines, gains, strict=False):
            unit.busy += iterations * gain
            unit.postpone(shift_ns)
        self._dma.add([iterations * gain for gain in gains[len(engines) :]])

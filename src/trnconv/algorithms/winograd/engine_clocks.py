"""The engines of a core as a pipeline sees them: nkisim's clocks, and what steps cost on them."""

from __future__ import annotations

from nkisim.enums import engine
from nkisim.machine import Machine
from nkisim.timing.core import Core
from nkisim.timing.shared_limit import SharedLimit
from trnconv.algorithms.winograd.on_chip import OnChip
from trnconv.algorithms.winograd.steady_state import TransferWork
from trnconv.algorithms.winograd.step_costs import StepCosts


class EngineClocks:
    """Where steps are placed in time. Times are of the default reading, in ns."""

    def __init__(self, machine: Machine, *, in_loop: bool) -> None:
        self.hop_ns = float(machine.timing.semaphore_ns)
        place = Core(machine, SharedLimit()).place
        self.tensor, self.vector = place[engine.tensor], place[engine.vector]
        self.scalar, self.gpsimd = place[engine.scalar], place[engine.gpsimd]
        self.dma = place[engine.dma]
        self.costs = StepCosts(machine, in_loop=in_loop)

    def used(self, released: float, *tiles: OnChip) -> None:
        """Places that were read until then."""
        for tile in tiles:
            tile.free = max(tile.free, released + self.hop_ns)

    def written(self, tile: OnChip, visible: float) -> None:
        """A place of which a part was written then, by an engine that tells others."""
        tile.written(max(tile.ready, visible + self.hop_ns))

    def on_gpsimd(self, elems: int, ready: float) -> float:
        """When the GpSimd engine has done so many elements."""
        return self.gpsimd(self.costs.gpsimd(elems), ready).visible + self.hop_ns

    def move(self, moved: TransferWork, direction: str, ready: float) -> float:
        """When a transfer is done."""
        return self.dma(self.costs.transfer(moved, direction), ready).visible

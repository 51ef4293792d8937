"""EngineWork: what some part of a weight gradient asks of every engine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class EngineWork:
    """Work of all engines, and the instructions it takes."""

    tensor: float = 0.0  # cycles
    vector: float = 0.0  # cycles
    scalar: float = 0.0  # cycles
    gpsimd: float = 0.0  # cycles
    dma: float = 0.0  # ns of all DMA engines together
    dmas: float = 0.0
    unhidden: float = 0.0  # ns of the queue that short DMAs take longer to issue than to move
    hbm: float = 0.0  # bytes
    instructions: float = 0.0

    def add(self, other: EngineWork, times: float) -> None:
        """This many more of another."""
        self.tensor += times * other.tensor
        self.vector += times * other.vector
        self.scalar += times * other.scalar
        self.gpsimd += times * other.gpsimd
        self.dma += times * other.dma
        self.dmas += times * other.dmas
        self.unhidden += times * other.unhidden
        self.hbm += times * other.hbm
        self.instructions += times * other.instructions

"""Cost rules, one per instruction; importing this package registers them all."""

from nkisim.timing.costs import (
    dma,
    gpsimd_engine,
    scalar_engine,
    sequencer,
    tensor_engine,
    vector_engine,
)
from nkisim.timing.costs.cost import RULES, Cost, Transfer, cost_of
from nkisim.timing.costs.tensor_engine import CELLS

__all__ = [
    "CELLS",
    "RULES",
    "Cost",
    "Transfer",
    "cost_of",
    "dma",
    "gpsimd_engine",
    "scalar_engine",
    "sequencer",
    "tensor_engine",
    "vector_engine",
]

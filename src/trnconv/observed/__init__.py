"""What models do, as data: the convolutions of one encode or decode, and all else.

Observed by `trnconv.pytorch` on the meta device, kept here for the sizes of the registry. So
whole models are planned without torch.
"""

from trnconv.observed.files import shipped, shipped_text
from trnconv.observed.graphs import Graph, graphs_of
from trnconv.observed.observation import (
    LeftToTorch,
    Moved,
    Observation,
    ObservedConv,
    without_ends,
    without_norms,
    without_starts,
)
from trnconv.observed.operation import Operation
from trnconv.observed.other_size import at_size

__all__ = [
    "Graph",
    "LeftToTorch",
    "Moved",
    "Observation",
    "ObservedConv",
    "Operation",
    "at_size",
    "graphs_of",
    "shipped",
    "shipped_text",
    "without_ends",
    "without_norms",
    "without_starts",
]

"""What models do, as data: the convolutions of one encode or decode, and all else.

Traced by `trnconv.pytorch` on the meta device, kept here for the sizes of the registry. So
whole models are planned without torch.
"""

from trnconv.traces.files import shipped, shipped_text
from trnconv.traces.graphs import Graph, graphs_of
from trnconv.traces.model_trace import (
    LeftToTorch,
    ModelTrace,
    Moved,
    TracedConv,
    without_fused_norms,
    without_norm_epilogues,
    without_norms,
)
from trnconv.traces.operation import Operation
from trnconv.traces.other_size import at_size

__all__ = [
    "Graph",
    "LeftToTorch",
    "ModelTrace",
    "Moved",
    "Operation",
    "TracedConv",
    "at_size",
    "graphs_of",
    "shipped",
    "shipped_text",
    "without_fused_norms",
    "without_norm_epilogues",
    "without_norms",
]

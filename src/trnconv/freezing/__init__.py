"""Freezing: kernels, recipes and packing of named convolutions as a folder without this package.

The folder has the layout of Hugging Face's `kernels` (edition 5, backend neuron): plain NKI and
torch, a recipe for each shape, and tests. `trnconv freeze` writes it.
"""

from trnconv.freezing.entries import FrozenEntry, frozen_entry
from trnconv.freezing.folder import write_folder
from trnconv.freezing.problems import FrozenProblem, problems_of

__all__ = ["FrozenEntry", "FrozenProblem", "frozen_entry", "problems_of", "write_folder"]

"""Export: kernels, recipes and packing of named convolutions as a folder without this package.

The folder has the layout of Hugging Face's `kernels` (edition 5, backend neuron): plain NKI and
torch, a recipe for each shape, and tests. `trnconv export` writes it.
"""

from trnconv.export.entries import ExportedEntry, exported_entry
from trnconv.export.folder import write_folder
from trnconv.export.problems import ExportedProblem, problems_of

__all__ = ["ExportedEntry", "ExportedProblem", "exported_entry", "problems_of", "write_folder"]

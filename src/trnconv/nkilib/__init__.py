"""nki-library's calls, with its signatures of 2.33, answered by trnconv's planner and kernels.

`conv3d`, `conv3d_bwd`, `conv1d` and `depthwise_conv1d` take the library's arguments, in its order,
with its layouts and defaults, and return what it returns. They are called as its kernels are called
from a launcher: with torch tensors (on a Neuron device; on a CPU they are simulated) or with NumPy
arrays (simulated). Inside of a kernel of your own, filters have to be packed before (`pack`). What
is ours is keyword-only.
"""

from trnconv.nkilib.backward import conv3d_bwd
from trnconv.nkilib.depthwise import depthwise_conv1d
from trnconv.nkilib.forward import conv1d, conv3d
from trnconv.nkilib.modes import ActFnType, BatchNormMode, ResidualAddLoc
from trnconv.nkilib.packed_filters import FiltersInKernel, PackedFilters, pack

__all__ = [
    "ActFnType",
    "BatchNormMode",
    "FiltersInKernel",
    "PackedFilters",
    "ResidualAddLoc",
    "conv1d",
    "conv3d",
    "conv3d_bwd",
    "depthwise_conv1d",
    "pack",
]

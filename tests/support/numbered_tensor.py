"""Tensors outside of kernels, for tests: filled with their own addresses, read as NumPy arrays."""

import numpy as np

from nkisim.machine import TRN2
from nkisim.memory.layout import MemoryRegion
from nkisim.memory.placement import Memory
from nkisim.tensors.indirection import read_held
from nkisim.tensors.tensor import NkiTensor

HBM, SBUF, PSUM = MemoryRegion.private_hbm, MemoryRegion.sbuf, MemoryRegion.psum


def tensor(shape, region=HBM, dtype="float32", values=None):
    """A tensor that holds 0, 1, 2, ... in row-major order, or `values`."""
    memory = Memory(TRN2, 0, with_values=True, precise=True)
    storage = memory.allocate(shape, dtype, region)
    if values is None:
        values = np.arange(np.prod(shape))
    storage.adopt(np.array(values, storage.data.dtype).reshape(-1))
    return NkiTensor(storage.shape, storage.dtype, storage, region)


def read(view):
    """What a view holds now."""
    return np.array(read_held(view))

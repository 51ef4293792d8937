"""Steps that kernels under test begin and end with, and whole matmuls made of them."""

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.running.host_arrays import Spec
from nkisim.running.kernel import run


def load(array, **placement):
    """An SBUF tile with the contents of a kernel argument."""
    tile = nl.ndarray(array.shape, array.dtype, nl.sbuf, **placement)
    nisa.dma_copy(tile, array)
    return tile


def give(tile):
    """A kernel result with the contents of an on-chip tile."""
    result = nl.ndarray(tile.shape, tile.dtype, nl.shared_hbm)
    copied = nl.ndarray(tile.shape, tile.dtype, nl.sbuf)
    nisa.tensor_copy(copied, tile)
    nisa.dma_copy(result, copied)
    return result


def result_of(kernel, *arrays, machine="trn2"):
    """What a kernel returns."""
    return run(kernel, *arrays, machine=machine).outputs


def specs(*arrays):
    """The arrays without their data."""
    return tuple(Spec(array.shape, array.dtype.name) for array in arrays)


def assert_traces_agree(kernel, *arrays, machine="trn2"):
    """A shape-only run issues the same instructions as a run with values."""
    with_values = run(kernel, *arrays, machine=machine)
    without = run(kernel, *specs(*arrays), machine=machine, values=False)
    assert with_values.trace.key() == without.trace.key()

"""One instruction on tiles, for tests: arrays in, what is in the tiles afterwards out."""

import re
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.errors import NkiValidationError
from nkisim.running.host_arrays import Spec
from nkisim.running.kernel import run


@dataclass(frozen=True)
class Psum:
    """An array whose tile lives in PSUM."""

    array: np.ndarray


def _array(tile):
    return tile.array if isinstance(tile, Psum) else tile


def kernel_of(issue, tiles):
    """A kernel that loads every tile, calls `issue` on them and returns what they hold then."""

    def kernel(*arrays):
        loaded = []
        for tile, array in zip(tiles, arrays, strict=True):
            sbuf = nl.ndarray(array.shape, array.dtype, nl.sbuf)
            nisa.dma_copy(sbuf, array)
            if isinstance(tile, Psum):
                psum = nl.ndarray(array.shape, array.dtype, nl.psum)
                nisa.tensor_copy(psum, sbuf)
                loaded.append(psum)
            else:
                loaded.append(sbuf)
        issue(*loaded)
        results = []
        for tile in loaded:
            result = nl.ndarray(tile.shape, tile.dtype, nl.shared_hbm)
            sbuf = nl.ndarray(tile.shape, tile.dtype, nl.sbuf)
            nisa.tensor_copy(sbuf, tile)
            nisa.dma_copy(result, sbuf)
            results.append(result)
        return tuple(results)

    return kernel


def run_tiles(issue, *tiles, machine="trn2", values=True):
    """The run of `issue` on tiles that hold the arrays."""
    arrays = [_array(tile) for tile in tiles]
    if not values:
        arrays = [Spec(array.shape, array.dtype.name) for array in arrays]
    return run(kernel_of(issue, tiles), *arrays, machine=machine, values=values)


def after(issue, *tiles, machine="trn2"):
    """The contents of all tiles after `issue`."""
    return run_tiles(issue, *tiles, machine=machine).outputs


def issued(run_, op):
    """The one instruction called `op` in a run."""
    found = [instruction for instruction in run_.trace.instructions() if instruction.op == op]
    assert len(found) == 1
    return found[0]


def assert_shape_only_agrees(issue, *tiles, machine="trn2"):
    """A shape-only run issues the same instructions as a run with values."""
    with_values = run_tiles(issue, *tiles, machine=machine)
    without = run_tiles(issue, *tiles, machine=machine, values=False)
    assert with_values.trace.key() == without.trace.key()


@contextmanager
def refused(instruction, limit, error=NkiValidationError):
    """The block is refused in the name of `instruction` by a limit that matches, with a remedy."""
    with pytest.raises(error) as caught:
        yield
    assert caught.value.instruction == instruction
    assert re.search(limit, caught.value.limit), caught.value.limit
    assert caught.value.remedy


def zeros(*shape, dtype=np.float32):
    """A tile to write to."""
    return np.zeros(shape, dtype)

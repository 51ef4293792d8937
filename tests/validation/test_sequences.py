"""What the scans over long sequences ask of the engines, from the loops of the tutorial."""

from collections import Counter

import pytest

import nkisim
from nkisim import Spec
from validation.kernels import mamba_sequence

STATES, TILES = 3, 2


def trace_of(kernel, steps):
    row, state = Spec((128 * TILES, steps), "float32"), Spec((STATES, steps), "float32")
    a = Spec((128 * TILES, STATES), "float32")
    return nkisim.run(kernel, row, row, a, state, state, machine="trn1", values=False).trace


@pytest.mark.parametrize("steps", [1024, 3072, 8192])
def test_mamba_v2_works_on_whole_sequences(steps):
    ops = Counter(i.op for i in trace_of(mamba_sequence.whole_rows, steps).instructions())
    bodies, banks = STATES * TILES, steps // 512
    assert ops["tensor_tensor_scan"] == bodies
    assert ops["nc_matmul"] == bodies * 2 * banks
    assert ops["activation"] == bodies * (1 + 2 * banks)
    assert ops["tensor_tensor"] == 3 * bodies + TILES


@pytest.mark.parametrize("steps", [1024, 3072, 8192])
def test_mamba_v3_works_on_tiles_of_512(steps):
    ops = Counter(i.op for i in trace_of(mamba_sequence.tiled_rows, steps).instructions())
    pieces = STATES * TILES * steps // 512
    assert ops["activation"] == ops["tensor_tensor_scan"] == ops["tensor_copy"] == pieces
    assert ops["nc_matmul"] == 2 * pieces
    assert ops["tensor_tensor"] == 3 * pieces + TILES
    assert ops["dma_copy"] == 2 * pieces + STATES * TILES + 3 * TILES

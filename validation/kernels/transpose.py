"""A matrix transpose tile by tile on the Tensor engine: a CS149 solution's stream."""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
from validation.kernels.tiles import rotating

TILES_IN_FLIGHT = 8


def transpose(a: nl.NkiTensor) -> nl.NkiTensor:
    """Load a 128 x 128 tile, nc_transpose, copy to SBUF, store."""
    part = nl.tile_size.pmax
    rows, columns = a.shape
    out = nl.ndarray((columns, rows), dtype=a.dtype, buffer=nl.shared_hbm)
    tiles = rotating(TILES_IN_FLIGHT, (part, part), a.dtype)
    psum = rotating(nl.tile_size.psum_num_banks, (part, part), a.dtype, nl.psum)
    results = rotating(TILES_IN_FLIGHT, (part, part), a.dtype)
    across = columns // part
    for i in range(rows // part * across):
        m, n = i // across * part, i % across * part
        tile, swapped, result = (
            tiles[i % len(tiles)],
            psum[i % len(psum)],
            results[i % len(results)],
        )
        nisa.dma_copy(dst=tile, src=a[m : m + part, n : n + part])
        nisa.nc_transpose(dst=swapped, data=tile)
        nisa.tensor_copy(dst=result, src=swapped)
        nisa.dma_copy(dst=out[n : n + part, m : m + part], src=result)
    return out

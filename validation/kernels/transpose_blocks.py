"""A matrix transposed in blocks of 2,048 rows and 128 columns: the streams of Tilebench.

Every program of the launch takes a contiguous share of the columns.
"""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
from validation.kernels.tiles import rotating

ROWS = 2048
TILES_IN_FLIGHT = 8


def by_dma(a: nl.NkiTensor) -> nl.NkiTensor:
    """A transposing load and a store of rows per block; no engine computes."""
    part = nl.tile_size.pmax
    rows = min(ROWS, a.shape[0])
    out = nl.ndarray((a.shape[1], a.shape[0]), dtype=a.dtype, buffer=nl.shared_hbm)
    tiles = rotating(TILES_IN_FLIGHT, (part, rows), a.dtype)
    for i, (column, row) in enumerate(_blocks(a, rows)):
        tile = tiles[i % TILES_IN_FLIGHT]
        source = a[row : row + rows, column : column + part]
        nisa.dma_transpose(dst=tile, src=source, axes=(1, 0))
        nisa.dma_copy(dst=out[column : column + part, row : row + rows], src=tile)
    return out


def by_tensor_engine(a: nl.NkiTensor) -> nl.NkiTensor:
    """int8: load 128 x 128, widen to bf16, nc_transpose, narrow; a store of rows per block."""
    part = nl.tile_size.pmax
    rows = min(ROWS, a.shape[0])
    out = nl.ndarray((a.shape[1], a.shape[0]), dtype=a.dtype, buffer=nl.shared_hbm)
    tiles = rotating(TILES_IN_FLIGHT, (part, rows), a.dtype)
    bands = rotating(TILES_IN_FLIGHT, (part, part), a.dtype)
    wide = rotating(TILES_IN_FLIGHT, (part, part), nl.bfloat16)
    psum = rotating(nl.tile_size.psum_num_banks, (part, part), nl.bfloat16, nl.psum)
    count = 0
    for i, (column, row) in enumerate(_blocks(a, rows)):
        tile = tiles[i % TILES_IN_FLIGHT]
        for first in range(0, rows, part):
            iteration = count % TILES_IN_FLIGHT
            swapped = psum[count % len(psum)]
            source = a[row + first : row + first + part, column : column + part]
            nisa.dma_copy(dst=bands[iteration], src=source)
            nisa.tensor_copy(dst=wide[iteration], src=bands[iteration])
            nisa.nc_transpose(dst=swapped, data=wide[iteration])
            nisa.tensor_copy(dst=tile[:, first : first + part], src=swapped)
            count += 1
        nisa.dma_copy(dst=out[column : column + part, row : row + rows], src=tile)
    return out


def _blocks(a: nl.NkiTensor, rows: int) -> list[tuple[int, int]]:
    """(first column, first row) of this program's blocks, column by column."""
    part = nl.tile_size.pmax
    share = a.shape[1] // part // nl.num_programs()
    first = nl.program_id(0) * share
    blocks = []
    for column in range(first, first + share):
        for row in range(0, a.shape[0], rows):
            blocks.append((column * part, row))
    return blocks

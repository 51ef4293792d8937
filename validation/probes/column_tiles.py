"""Probe: whether two column tiles of 64 work side by side.

Time it with `halves` 1 and 2 and many repeats. The same time for both means that 64 channels that
are left over cost half a pass (`trn2+column-tiles`); twice the time, that they cost a whole one.
"""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl


def column_tiles(
    stationary: nl.NkiTensor, moving: nl.NkiTensor, halves: int, repeats: int
) -> nl.NkiTensor:
    """The product of 64 stationary columns, in one half of the array or in both."""
    tiles = []
    for x in (stationary, moving):
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        tiles.append(tile)
    lines, size = stationary.shape[1], (nl.tile_size.pmax, stationary.shape[1])
    bank = nl.ndarray((halves * lines, moving.shape[1]), dtype=nl.float32, buffer=nl.psum)
    for _ in range(repeats):
        for half in range(halves):
            part = bank[half * lines : (half + 1) * lines]
            nisa.nc_matmul(
                dst=part,
                stationary=tiles[0],
                moving=tiles[1],
                accumulate=False,
                tile_position=(0, half * lines),
                tile_size=size,
            )
    copied = nl.ndarray(bank.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=copied, src=bank)
    y = nl.ndarray(bank.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=y, src=copied)
    return y

"""One more matmul or transpose: streams of the Tensor engine with resident operands.

After foxl-ai/kiln, tools/probe_engine_rates.py: an instruction writes the next of four PSUM tiles,
and all four are read at the end, so that none is dead.
"""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
from validation.kernels.tiles import rotating

RING = 4


def matmuls(stationary: nl.NkiTensor, moving: nl.NkiTensor, repeats: int) -> nl.NkiTensor:
    """`repeats` matmuls of moving [K, N] by tiles of stationary [tiles, K, M] in turn, summed.

    Each PSUM tile of the ring is one accumulation. The result [M, 1] is their sum over columns.
    """
    tiles, depth, width = stationary.shape
    weights = nl.ndarray((depth, tiles, width), dtype=stationary.dtype, buffer=nl.sbuf)
    for number in range(tiles):
        nisa.dma_copy(dst=weights[:, number, :], src=stationary[number])
    streamed = nl.ndarray(moving.shape, dtype=moving.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=streamed, src=moving)
    ring = rotating(RING, (width, moving.shape[1]), nl.float32, nl.psum)
    for iteration in range(repeats):
        weight = weights[:, iteration % tiles, :]
        nisa.nc_matmul(ring[iteration % RING], weight, streamed, accumulate=iteration >= RING)
    return _total(ring)


def transposes(data: nl.NkiTensor, repeats: int) -> nl.NkiTensor:
    """`repeats` times nc_transpose of the next of the tiles of data [tiles, 128, 128].

    The result [128, 1] is the sum over columns of what the ring holds.
    """
    tiles, rows, columns = data.shape
    resident = nl.ndarray((rows, tiles, columns), dtype=data.dtype, buffer=nl.sbuf)
    for number in range(tiles):
        nisa.dma_copy(dst=resident[:, number, :], src=data[number])
    ring = rotating(RING, (columns, rows), nl.float32, nl.psum)
    for iteration in range(repeats):
        source = resident[:, iteration % tiles, :]
        nisa.nc_transpose(ring[iteration % RING], source, engine=nisa.tensor_engine)
    return _total(ring)


def _total(ring: list[nl.NkiTensor]) -> nl.NkiTensor:
    """The sum over columns of all tiles of the ring, stored."""
    rows = ring[0].shape[0]
    out = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(total, 0.0)
    for tile in ring:
        part = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(part, nl.add, tile, axis=1)
        nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
    nisa.dma_copy(dst=out, src=total)
    return out

"""A tensor copied through SBUF, or clamped at zero on the way: the streams of Tilebench.

Every program of the launch takes a contiguous share.
"""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
from validation.kernels.tiles import rotating

COLUMNS = 1024  # of a tile, at most
TILES_IN_FLIGHT = 16


def copy(x: nl.NkiTensor) -> nl.NkiTensor:
    """x, by tiles of 128 x 1024 consecutive elements: a load and a store each."""
    return _by_tiles(x, clamp=False)


def relu(x: nl.NkiTensor) -> nl.NkiTensor:
    """max(x, 0): as copy, with a tensor_scalar in place."""
    return _by_tiles(x, clamp=True)


def _by_tiles(x: nl.NkiTensor, *, clamp: bool) -> nl.NkiTensor:
    part = nl.tile_size.pmax
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = rotating(TILES_IN_FLIGHT, (part, COLUMNS), x.dtype)
    for i, (first, rows, columns) in enumerate(_pieces(x, part)):
        tile = tiles[i % TILES_IN_FLIGHT][0:rows, 0:columns]
        pattern = [[columns, rows], [1, columns]]
        nisa.dma_copy(dst=tile, src=x.ap(pattern, offset=first))
        if clamp:
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.maximum, operand0=0.0)
        nisa.dma_copy(dst=out.ap(pattern, offset=first), src=tile)
    return out


def _pieces(x: nl.NkiTensor, part: int) -> list[tuple[int, int, int]]:
    """(first element, rows, columns) of this program's tiles; what 128 rows leave over is a row."""
    count = 1
    for size in x.shape:
        count *= size
    share = -(-count // nl.num_programs())
    first = nl.program_id(0) * share
    end = min(count, first + share)
    pieces = []
    while first < end:
        columns, rest = divmod(min(part * COLUMNS, end - first), part)
        if columns > 0:
            pieces.append((first, part, columns))
        if rest > 0:
            pieces.append((first + part * columns, 1, rest))
        first += part * columns + rest
    return pieces

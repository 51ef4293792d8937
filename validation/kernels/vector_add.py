"""a + b for long vectors: the ladder of tile sizes from a Stanford CS149 assignment."""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
from validation.kernels.tiles import rotating

TILES_IN_FLIGHT = 16


def by_rows(a: nl.NkiTensor, b: nl.NkiTensor, rows: int) -> nl.NkiTensor:
    """Tiles of (rows, 1): one element per partition, added as a per-partition scalar."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    left = rotating(TILES_IN_FLIGHT, (rows, 1), a.dtype)
    right = rotating(TILES_IN_FLIGHT, (rows, 1), b.dtype)
    sums = rotating(TILES_IN_FLIGHT, (rows, 1), a.dtype)
    for i in range(a.shape[0] // rows):
        iteration, span = i % TILES_IN_FLIGHT, slice(i * rows, (i + 1) * rows)
        nisa.dma_copy(dst=left[iteration], src=a[span])
        nisa.dma_copy(dst=right[iteration], src=b[span])
        nisa.tensor_scalar(
            dst=sums[iteration], data=left[iteration], op0=nl.add, operand0=right[iteration]
        )
        nisa.dma_copy(dst=out[span], src=sums[iteration])
    return out


def by_columns(
    a: nl.NkiTensor, b: nl.NkiTensor, columns: int, *, static_rings: bool = False
) -> nl.NkiTensor:
    """Tiles of (128, columns) of the vectors folded into 128 rows.

    static_rings: descriptors are built before the kernel runs, as when DGE is switched off.
    """
    part = nl.tile_size.pmax
    mode = nisa.dge_mode.none if static_rings else nisa.dge_mode.unknown
    shape = (part, a.shape[0] // part)
    a_rows, b_rows = a.reshape(shape), b.reshape(shape)
    out = nl.ndarray(shape, dtype=a.dtype, buffer=nl.shared_hbm)
    depth = min(TILES_IN_FLIGHT, shape[1] // columns)
    left = rotating(depth, (part, columns), a.dtype)
    right = rotating(depth, (part, columns), b.dtype)
    sums = rotating(depth, (part, columns), a.dtype)
    for i in range(shape[1] // columns):
        iteration, span = i % depth, slice(i * columns, (i + 1) * columns)
        nisa.dma_copy(dst=left[iteration], src=a_rows[:, span], dge_mode=mode)
        nisa.dma_copy(dst=right[iteration], src=b_rows[:, span], dge_mode=mode)
        nisa.tensor_tensor(
            dst=sums[iteration], data1=left[iteration], data2=right[iteration], op=nl.add
        )
        nisa.dma_copy(dst=out[:, span], src=sums[iteration], dge_mode=mode)
    return out

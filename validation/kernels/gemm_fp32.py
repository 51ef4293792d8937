"""fp32 GEMMs of NKIBench: plain, with a transposed left operand, and batched with a short K.

Their PSUM tiles are copied out by the Scalar engine: the published profiles show the Vector engine
idle. On trn1 that is an activation with the copy function.
"""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
from validation.kernels.tiles import rotating

BLOCK = 1024  # columns of one load
TILES_IN_FLIGHT = 16
RESULTS_IN_FLIGHT = 2


def copy_out(dst: nl.NkiTensor, src: nl.NkiTensor) -> None:
    """PSUM to SBUF on the Scalar engine."""
    nisa.activation(dst=dst, op=nl.copy, data=src)


class Transposer:
    """Transposes tiles of at most 128 x 128 by a matmul with the identity."""

    def __init__(self, dtype: str) -> None:
        part = nl.tile_size.pmax
        self.identity = nl.shared_identity_matrix(part, dtype)
        self.psum = rotating(2, (part, part), nl.float32, nl.psum)
        self.count = 0

    def transpose(self, dst: nl.NkiTensor, data: nl.NkiTensor) -> None:
        """dst = data.T, by way of PSUM."""
        swapped = self.psum[self.count % 2][: data.shape[1], : data.shape[0]]
        self.count += 1
        nisa.nc_matmul(swapped, data, self.identity, is_moving_onezero=True, accumulate=False)
        copy_out(dst, swapped)


class Sums:
    """PSUM tiles in turn, filled by matmuls over K and copied out."""

    def __init__(self, count: int) -> None:
        shape = (nl.tile_size.pmax, nl.tile_size.gemm_moving_fmax)
        self.tiles = rotating(count, shape, nl.float32, nl.psum)
        self.count = 0

    def multiply(
        self, result: nl.NkiTensor, stationary: list[nl.NkiTensor], moving: list[nl.NkiTensor]
    ) -> None:
        """result = stationary.T @ moving, up to 512 columns at a time."""
        width = result.shape[1]
        wide = self.tiles[0].shape[1]
        for first in range(0, width, wide):
            last = min(first + wide, width)
            total = self.tiles[self.count % len(self.tiles)][:, : last - first]
            self.count += 1
            for k, weights in enumerate(stationary):
                nisa.nc_matmul(total, weights, moving[k][:, first:last], accumulate=k > 0)
            copy_out(result[:, first:last], total)


def matmul(lhs: nl.NkiTensor, rhs: nl.NkiTensor) -> nl.NkiTensor:
    """lhs [M, K] @ rhs [K, N] by 128 rows and 1,024 columns of output.

    rhs blocks are loaded for every 128 rows anew, as the published 9.06 GB of reads say.
    """
    part = nl.tile_size.pmax
    rows, k_tiles = lhs.shape[0], lhs.shape[1] // part
    out = nl.ndarray((rows, rhs.shape[1]), dtype=lhs.dtype, buffer=nl.shared_hbm)
    transposer, sums = Transposer(lhs.dtype), Sums(4)
    moving = rotating(TILES_IN_FLIGHT, (part, BLOCK), rhs.dtype)
    left = rotating(2, (part, BLOCK), lhs.dtype)
    stationary = rotating(2 * k_tiles, (part, part), lhs.dtype)
    results = rotating(RESULTS_IN_FLIGHT, (part, BLOCK), lhs.dtype)
    for i in range(rhs.shape[1] // BLOCK * (rows // part)):
        n, m = divmod(i, rows // part)
        turned = stationary[i % 2 * k_tiles : (i % 2 + 1) * k_tiles]
        span, target = slice(m * part, (m + 1) * part), slice(n * BLOCK, (n + 1) * BLOCK)
        _transpose_rows(turned, lhs[span, :], left, transposer)
        result = results[i % RESULTS_IN_FLIGHT]
        _multiply_streamed(result, turned, rhs[:, target], moving, sums)
        nisa.dma_copy(dst=out[span, target], src=result)
    return out


def _transpose_rows(
    turned: list[nl.NkiTensor],
    rows: nl.NkiTensor,
    left: list[nl.NkiTensor],
    transposer: Transposer,
) -> None:
    """128 rows of lhs, loaded by blocks and transposed tile by tile."""
    part = rows.shape[0]
    for k, tile in enumerate(turned):
        block, column = divmod(k * part, BLOCK)
        source = left[block % len(left)]
        if column == 0:
            nisa.dma_copy(dst=source, src=rows[:, block * BLOCK : (block + 1) * BLOCK])
        transposer.transpose(tile, source[:, column : column + part])


def _multiply_streamed(
    result: nl.NkiTensor,
    stationary: list[nl.NkiTensor],
    rhs: nl.NkiTensor,
    moving: list[nl.NkiTensor],
    sums: Sums,
) -> None:
    """result = stationary.T @ rhs: half of the columns after the other, each reading all of rhs."""
    part = stationary[0].shape[0]
    wide = sums.tiles[0].shape[1]
    halves = []
    for first in range(0, result.shape[1], wide):
        halves.append((sums.tiles[sums.count % len(sums.tiles)], slice(first, first + wide)))
        sums.count += 1
    for k, weights in enumerate(stationary):
        tile = moving[k % len(moving)]
        nisa.dma_copy(dst=tile, src=rhs[k * part : (k + 1) * part, :])
        for total, span in halves:
            nisa.nc_matmul(total, weights, tile[:, span], accumulate=k > 0)
    for total, span in halves:
        copy_out(result[:, span], total)


def transposed_matmul(lhs_t: nl.NkiTensor, rhs: nl.NkiTensor) -> nl.NkiTensor:
    """lhs_t [K, M].T @ rhs [K, N] by blocks of 1,024 x 1,024; the last block of N is narrower."""
    part = nl.tile_size.pmax
    k_tiles, columns = lhs_t.shape[0] // part, rhs.shape[1]
    out = nl.ndarray((lhs_t.shape[1], columns), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    stationary = rotating(k_tiles, (part, BLOCK), lhs_t.dtype)
    moving = rotating(k_tiles + k_tiles // 2, (part, BLOCK), rhs.dtype)
    results = rotating(RESULTS_IN_FLIGHT, (part, BLOCK), lhs_t.dtype)
    sums = Sums(nl.tile_size.psum_num_banks)
    loaded = 0
    for m in range(0, lhs_t.shape[1], BLOCK):
        load_rows(stationary, lhs_t[:, m : m + BLOCK])
        for n in range(0, columns, BLOCK):
            width = min(BLOCK, columns - n)
            tiles = []
            for _ in range(k_tiles):
                tiles.append(moving[loaded % len(moving)][:, :width])
                loaded += 1
            load_rows(tiles, rhs[:, n : n + width])
            for row in range(0, BLOCK, part):
                result = results[row // part % RESULTS_IN_FLIGHT][:, :width]
                weights = columns_of(stationary, row, part)
                sums.multiply(result, weights, tiles)
                nisa.dma_copy(dst=out[m + row : m + row + part, n : n + width], src=result)
    return out


def load_rows(tiles: list[nl.NkiTensor], source: nl.NkiTensor) -> None:
    """Consecutive row blocks of a matrix, one DMA each."""
    height = tiles[0].shape[0]
    for i, tile in enumerate(tiles):
        nisa.dma_copy(dst=tile, src=source[i * height : (i + 1) * height, :])


def columns_of(tiles: list[nl.NkiTensor], first: int, count: int) -> list[nl.NkiTensor]:
    """The same columns of every tile."""
    views = []
    for tile in tiles:
        views.append(tile[:, first : first + count])
    return views


def batched_matmul(lhs: nl.NkiTensor, rhs: nl.NkiTensor) -> nl.NkiTensor:
    """lhs [B, M, K] @ rhs [B, K, N] with K of one tile: a matmul for every 128 x 512 outputs.

    lhs is read and transposed once per batch: the published 67 MB of reads leave room for no more.
    """
    part = nl.tile_size.pmax
    batch, rows, depth = lhs.shape
    columns = rhs.shape[2]
    out = nl.ndarray((batch, rows, columns), dtype=lhs.dtype, buffer=nl.shared_hbm)
    transposer, sums = Transposer(lhs.dtype), Sums(4)
    moving = rotating(2, (depth, BLOCK), rhs.dtype)
    left = rotating(TILES_IN_FLIGHT, (part, depth), lhs.dtype)
    turned = rotating(rows // part, (depth, part), lhs.dtype)
    results = rotating(TILES_IN_FLIGHT, (part, BLOCK), lhs.dtype)
    for i in range(batch * (columns // BLOCK)):
        b, n = i // (columns // BLOCK), i % (columns // BLOCK) * BLOCK
        nisa.dma_copy(dst=moving[i % 2], src=rhs[b, :, n : n + BLOCK])
        for m in range(rows // part):
            span = slice(m * part, (m + 1) * part)
            if n == 0:
                tile = left[m % TILES_IN_FLIGHT]
                nisa.dma_copy(dst=tile, src=lhs[b, span, :])
                transposer.transpose(turned[m], tile)
            result = results[m % TILES_IN_FLIGHT]
            sums.multiply(result, [turned[m]], [moving[i % 2]])
            nisa.dma_copy(dst=out[b, span, n : n + BLOCK], src=result)
    return out

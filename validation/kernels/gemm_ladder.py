"""lhs_t.T @ rhs four ways: the ladder of the NKI matrix-multiplication tutorials."""

from __future__ import annotations

from typing import NamedTuple

import nki.isa as nisa
import nki.language as nl
from validation.kernels.tiles import rotating

RESULT_TILES = 2


class Sizes(NamedTuple):
    """Tiles of a GEMM, and how many of them there are in each dimension."""

    part: int  # rows of a tile of either operand, and columns of a stationary tile
    wide: int  # columns of a moving tile
    m: int
    n: int
    k: int


def sizes_of(lhs_t: nl.NkiTensor, rhs: nl.NkiTensor) -> Sizes:
    """The tiles of lhs_t [K, M] and rhs [K, N]."""
    part, wide = nl.tile_size.pmax, nl.tile_size.gemm_moving_fmax
    depth, rows = lhs_t.shape
    return Sizes(part, wide, rows // part, rhs.shape[1] // wide, depth // part)


def block(tensor: nl.NkiTensor, row: tuple[int, int], column: tuple[int, int]) -> nl.NkiTensor:
    """Block (row number, column number) of an HBM matrix cut into (height, width) blocks."""
    (i, height), (j, width) = row, column
    return tensor[i * height : (i + 1) * height, j * width : (j + 1) * width]


class Output:
    """PSUM accumulators that are copied to SBUF and stored when full."""

    def __init__(self, lhs_t: nl.NkiTensor, rhs: nl.NkiTensor) -> None:
        self.sizes = sizes_of(lhs_t, rhs)
        part, wide = self.sizes.part, self.sizes.wide
        shape = (lhs_t.shape[1], rhs.shape[1])
        self.hbm = nl.ndarray(shape, dtype=lhs_t.dtype, buffer=nl.shared_hbm)
        self.psum = rotating(nl.tile_size.psum_num_banks, (part, wide), nl.float32, nl.psum)
        self.sbuf = rotating(RESULT_TILES, (part, wide), lhs_t.dtype)
        self.count = 0

    def accumulator(self) -> nl.NkiTensor:
        """The PSUM tile of the output tile in the making."""
        return self.psum[self.count % len(self.psum)]

    def finish(self, m: int, n: int) -> None:
        """Copy the accumulator out and store it as output tile (m, n)."""
        part, wide = self.sizes.part, self.sizes.wide
        result = self.sbuf[self.count % RESULT_TILES]
        nisa.tensor_copy(dst=result, src=self.accumulator())
        nisa.dma_copy(dst=block(self.hbm, (m, part), (n, wide)), src=result)
        self.count += 1


def tiled(lhs_t: nl.NkiTensor, rhs: nl.NkiTensor) -> nl.NkiTensor:
    """Both operands are loaded for every matmul."""
    part, wide, m_tiles, n_tiles, k_tiles = sizes_of(lhs_t, rhs)
    left = rotating(k_tiles, (part, part), lhs_t.dtype)
    right = rotating(k_tiles, (part, wide), rhs.dtype)
    out = Output(lhs_t, rhs)
    for m in range(m_tiles):
        for n in range(n_tiles):
            for k in range(k_tiles):
                nisa.dma_copy(dst=left[k], src=block(lhs_t, (k, part), (m, part)))
                nisa.dma_copy(dst=right[k], src=block(rhs, (k, part), (n, wide)))
                nisa.nc_matmul(out.accumulator(), left[k], right[k], accumulate=k > 0)
            out.finish(m, n)
    return out.hbm


def hoisted(lhs_t: nl.NkiTensor, rhs: nl.NkiTensor) -> nl.NkiTensor:
    """lhs_t is loaded once per row of output tiles, rhs once per output tile."""
    part, wide, m_tiles, n_tiles, k_tiles = sizes_of(lhs_t, rhs)
    left = rotating(2 * k_tiles, (part, part), lhs_t.dtype)
    right = rotating(k_tiles, (part, wide), rhs.dtype)
    out = Output(lhs_t, rhs)
    for m in range(m_tiles):
        row = left[m % 2 * k_tiles : (m % 2 + 1) * k_tiles]
        for k in range(k_tiles):
            nisa.dma_copy(dst=row[k], src=block(lhs_t, (k, part), (m, part)))
        for n in range(n_tiles):
            for k in range(k_tiles):
                nisa.dma_copy(dst=right[k], src=block(rhs, (k, part), (n, wide)))
            for k in range(k_tiles):
                nisa.nc_matmul(out.accumulator(), row[k], right[k], accumulate=k > 0)
            out.finish(m, n)
    return out.hbm


def blocked(lhs_t: nl.NkiTensor, rhs: nl.NkiTensor, *, keep_rhs: bool = True) -> nl.NkiTensor:
    """Blocks of 2 x 2 output tiles share their loads.

    keep_rhs=False loads rhs anew for each of the two rows of a block: what is left of sharing when
    SBUF cannot hold two columns of rhs tiles.
    """
    part, wide, m_tiles, n_tiles, k_tiles = sizes_of(lhs_t, rhs)
    left = rotating(2 * k_tiles, (part, part), lhs_t.dtype)
    columns = 2 if keep_rhs else 1
    right = rotating(columns * k_tiles, (part, wide), rhs.dtype)
    out = Output(lhs_t, rhs)
    for m in range(0, m_tiles, 2):
        for i in range(2 * k_tiles):
            nisa.dma_copy(
                dst=left[i], src=block(lhs_t, (i % k_tiles, part), (m + i // k_tiles, part))
            )
        for n in range(0, n_tiles, 2):
            if keep_rhs:
                _load_columns(right, rhs, n, 2)
            for tile in range(4):
                bm, bn = divmod(tile, 2)
                if not keep_rhs:
                    _load_columns(right, rhs, n + bn, 1)
                for k in range(k_tiles):
                    moving = right[(bn if keep_rhs else 0) * k_tiles + k]
                    stationary = left[bm * k_tiles + k]
                    nisa.nc_matmul(out.accumulator(), stationary, moving, accumulate=k > 0)
                out.finish(m + bm, n + bn)
    return out.hbm


def _load_columns(tiles: list[nl.NkiTensor], rhs: nl.NkiTensor, first: int, count: int) -> None:
    """`count` columns of rhs tiles, column after column."""
    part, wide = tiles[0].shape
    k_tiles = len(tiles) // count
    for i, tile in enumerate(tiles):
        column = first + i // k_tiles
        nisa.dma_copy(dst=tile, src=block(rhs, (i % k_tiles, part), (column, wide)))


def blocked_all(
    lhs_t: nl.NkiTensor, rhs: nl.NkiTensor, blocks: tuple[int, int, int]
) -> nl.NkiTensor:
    """All three dimensions are blocked, by so many tiles in (M, N, K); SBUF adds up over K."""
    sizes = sizes_of(lhs_t, rhs)
    block_m, block_n, block_k = blocks
    part, wide = sizes.part, sizes.wide
    out = nl.ndarray((lhs_t.shape[1], rhs.shape[1]), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    left = rotating(2 * block_k, (part, block_m * part), lhs_t.dtype)
    right = rotating(2 * block_k, (part, block_n * wide), rhs.dtype)
    sums = rotating(sizes.m * block_n, (part, wide), lhs_t.dtype)
    psum = rotating(nl.tile_size.psum_num_banks, (part, wide), nl.float32, nl.psum)
    packed = rotating(RESULT_TILES, (part, block_n * wide), lhs_t.dtype)
    iteration = 0
    for n in range(sizes.n // block_n):
        for tile in sums:
            nisa.memset(tile, 0.0)
        for k in range(sizes.k // block_k):
            moving = right[k % 2 * block_k : (k % 2 + 1) * block_k]
            _load_block(moving, rhs, k, n)
            for m in range(sizes.m // block_m):
                stationary = left[iteration % 2 * block_k : (iteration % 2 + 1) * block_k]
                _load_block(stationary, lhs_t, k, m)
                rows = sums[m * block_m * block_n : (m + 1) * block_m * block_n]
                _multiply_block(rows, stationary, moving, psum)
                iteration += 1
        _store_column(out, sums, packed, n)
    return out


def _load_block(tiles: list[nl.NkiTensor], source: nl.NkiTensor, k: int, column: int) -> None:
    height, width = tiles[0].shape
    for i, tile in enumerate(tiles):
        row = k * len(tiles) + i
        nisa.dma_copy(dst=tile, src=block(source, (row, height), (column, width)))


def _multiply_block(
    sums: list[nl.NkiTensor],
    stationary: list[nl.NkiTensor],
    moving: list[nl.NkiTensor],
    psum: list[nl.NkiTensor],
) -> None:
    """sums[bm, bn] += stationary[:, bm].T @ moving[:, bn], summed over K in PSUM first."""
    part, wide = sums[0].shape
    columns = moving[0].shape[1] // wide
    count = 0
    for bn in range(columns):
        for bm in range(len(sums) // columns):
            product = psum[count % len(psum)]
            for k in range(len(moving)):
                nisa.nc_matmul(
                    product,
                    stationary[k][:, bm * part : (bm + 1) * part],
                    moving[k][:, bn * wide : (bn + 1) * wide],
                    accumulate=k > 0,
                )
            total = sums[bm * columns + bn]
            nisa.tensor_tensor(dst=total, data1=total, data2=product, op=nl.add)
            count += 1


def _store_column(
    out: nl.NkiTensor, sums: list[nl.NkiTensor], packed: list[nl.NkiTensor], n: int
) -> None:
    """Gather the tiles of each output row side by side, and store the row in one DMA."""
    part, wide = sums[0].shape
    columns = packed[0].shape[1] // wide
    for row in range(len(sums) // columns):
        tile = packed[row % RESULT_TILES]
        for bn in range(columns):
            nisa.tensor_copy(dst=tile[:, bn * wide : (bn + 1) * wide], src=sums[row * columns + bn])
        nisa.dma_copy(dst=block(out, (row, part), (n, columns * wide)), src=tile)

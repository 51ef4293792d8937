"""lhs_t.T @ rhs at 2048 x 2048 x 2048: the kernels whose MFU the nki-autotune notes publish."""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
from validation.kernels.gemm_ladder import block, sizes_of
from validation.kernels.tiles import rotating

BLOCK_M, BLOCK_K = 4, 8  # tiles per block of the two-level kernel
TILES_IN_FLIGHT = 8  # addresses the compiler rotates a tile through that the source names once


def two_level(lhs_t: nl.NkiTensor, rhs: nl.NkiTensor) -> nl.NkiTensor:
    """K is summed in PSUM over 8 tiles and in SBUF over blocks; every load is double-buffered."""
    part, wide, m_tiles, n_tiles, k_tiles = sizes_of(lhs_t, rhs)
    out = nl.ndarray((lhs_t.shape[1], rhs.shape[1]), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    psum = Cleared(nl.tile_size.psum_num_banks, (part, wide))
    partial = rotating(nl.tile_size.psum_num_banks, (part, wide), lhs_t.dtype)
    k_blocks, m_blocks = k_tiles // BLOCK_K, m_tiles // BLOCK_M
    left = rotating(k_blocks * m_blocks * BLOCK_K, (part, BLOCK_M * part), lhs_t.dtype)
    right = rotating(k_blocks * BLOCK_K, (part, wide), rhs.dtype)
    sums = rotating(n_tiles * m_tiles, (part, wide), lhs_t.dtype)
    for n in range(n_tiles):
        column = sums[n * m_tiles : (n + 1) * m_tiles]
        for tile in column:
            nisa.memset(tile, 0.0)
        for k in range(k_blocks):
            moving = right[k * BLOCK_K : (k + 1) * BLOCK_K]
            load_rows(moving, rhs, k * BLOCK_K, n)
            for m in range(m_blocks):
                first = (k * m_blocks + m) * BLOCK_K
                stationary = left[first : first + BLOCK_K]
                load_rows(stationary, lhs_t, k * BLOCK_K, m)
                rows = column[m * BLOCK_M : (m + 1) * BLOCK_M]
                add_products(rows, stationary, moving, psum, partial)
        for m in range(m_tiles):
            nisa.dma_copy(dst=block(out, (m, part), (n, wide)), src=column[m])
    return out


def load_rows(tiles: list[nl.NkiTensor], source: nl.NkiTensor, row: int, column: int) -> None:
    """Consecutive row blocks of one column block, one DMA each."""
    height, width = tiles[0].shape
    for i, tile in enumerate(tiles):
        nisa.dma_copy(dst=tile, src=block(source, (row + i, height), (column, width)))


class Cleared:
    """PSUM tiles in turn, cleared half a round before they are taken.

    The published profile shows the clearing on an engine of its own. On the Vector engine, which is
    what NKI allows for PSUM, it must not queue behind the work on the tiles before.
    """

    def __init__(self, count: int, shape: tuple[int, int]) -> None:
        self.tiles = rotating(count, shape, nl.float32, nl.psum)
        self.cleared = 0
        for _ in range(count // 2):
            self._clear_next()

    def _clear_next(self) -> None:
        nisa.memset(self.tiles[self.cleared % len(self.tiles)], 0.0)
        self.cleared += 1

    def take(self) -> nl.NkiTensor:
        """A cleared tile."""
        self._clear_next()
        return self.tiles[(self.cleared - 1 - len(self.tiles) // 2) % len(self.tiles)]


def add_products(
    sums: list[nl.NkiTensor],
    stationary: list[nl.NkiTensor],
    moving: list[nl.NkiTensor],
    psum: Cleared,
    partial: list[nl.NkiTensor],
) -> None:
    """sums[m] += stationary[:, m].T @ moving, by way of a PSUM tile and a bf16 tile.

    The source leaves the engine of the copy to the compiler, which balances the load: the Scalar
    engine has nothing else to do.
    """
    part = moving[0].shape[0]
    for m, total in enumerate(sums):
        product, narrow = psum.take(), partial[m % len(partial)]
        for k in range(len(moving)):
            columns = stationary[k][:, m * part : (m + 1) * part]
            nisa.nc_matmul(product, columns, moving[k], accumulate=k > 0)
        nisa.tensor_copy(dst=narrow, src=product, engine=nisa.scalar_engine)
        nisa.tensor_tensor(dst=total, data1=total, data2=narrow, op=nl.add)


class Resident:
    """Both operands whole in SBUF; a row of output tiles is summed in PSUM, then drained."""

    def __init__(self, lhs_t: nl.NkiTensor, rhs: nl.NkiTensor) -> None:
        self.sizes = sizes_of(lhs_t, rhs)
        part, _, m_tiles, _, k_tiles = self.sizes
        self.rows, self.columns = lhs_t.shape[1], rhs.shape[1]
        self.left = rotating(k_tiles, (part, self.rows), lhs_t.dtype)
        self.right = rotating(k_tiles, (part, self.columns), rhs.dtype)
        self.results = rotating(m_tiles, (part, self.columns), lhs_t.dtype)
        load_rows(self.left, lhs_t, 0, 0)
        load_rows(self.right, rhs, 0, 0)

    def multiply(self, row: nl.NkiTensor, m: int) -> None:
        """row = the m-th row of output tiles."""
        part, wide, _, n_tiles, k_tiles = self.sizes
        for tile in range(n_tiles * k_tiles):
            n, k = divmod(tile, k_tiles)
            span = slice(n * wide, (n + 1) * wide)
            stationary = self.left[k][:, m * part : (m + 1) * part]
            nisa.nc_matmul(row[:, span], stationary, self.right[k][:, span], accumulate=k > 0)

    def drain(self, row: nl.NkiTensor, m: int) -> None:
        """Copy a row of sums to SBUF."""
        nisa.tensor_copy(dst=self.results[m], src=row)

    def store(self) -> nl.NkiTensor:
        """All rows to HBM, at the end."""
        dtype = self.results[0].dtype
        out = nl.ndarray((self.rows, self.columns), dtype=dtype, buffer=nl.shared_hbm)
        for m, result in enumerate(self.results):
            target = block(out, (m, self.sizes.part), (0, self.columns))
            nisa.dma_copy(dst=target, src=result)
        return out


def one_accumulator(lhs_t: nl.NkiTensor, rhs: nl.NkiTensor) -> nl.NkiTensor:
    """Draining a row and clearing it for the next stop the Tensor engine."""
    work = Resident(lhs_t, rhs)
    row = nl.ndarray((work.sizes.part, work.columns), dtype=nl.float32, buffer=nl.psum)
    for m in range(work.sizes.m):
        nisa.memset(row, 0.0)
        work.multiply(row, m)
        work.drain(row, m)
    return work.store()


def two_accumulators(lhs_t: nl.NkiTensor, rhs: nl.NkiTensor) -> nl.NkiTensor:
    """Two rows of PSUM take turns, in one plain loop."""
    work = Resident(lhs_t, rhs)
    psum = Cleared(2, (work.sizes.part, work.columns))
    for m in range(work.sizes.m):
        row = psum.take()
        work.multiply(row, m)
        work.drain(row, m)
    return work.store()


def skewed_accumulators(lhs_t: nl.NkiTensor, rhs: nl.NkiTensor) -> nl.NkiTensor:
    """Two rows of PSUM; a row is drained after the matmuls of the next one were issued."""
    work = Resident(lhs_t, rhs)
    psum = rotating(2, (work.sizes.part, work.columns), nl.float32, nl.psum)
    last = work.sizes.m - 1
    for m in range(work.sizes.m):
        nisa.memset(psum[m % 2], 0.0)
        work.multiply(psum[m % 2], m)
        if m > 0:
            work.drain(psum[(m - 1) % 2], m - 1)
    work.drain(psum[last % 2], last)
    return work.store()


def loads_in_inner_loop(lhs_t: nl.NkiTensor, rhs: nl.NkiTensor) -> nl.NkiTensor:
    """Every matmul loads its two tiles first; one PSUM tile, one result tile."""
    part, wide, m_tiles, n_tiles, k_tiles = sizes_of(lhs_t, rhs)
    out = nl.ndarray((lhs_t.shape[1], rhs.shape[1]), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    left = rotating(TILES_IN_FLIGHT, (part, part), lhs_t.dtype)
    right = rotating(TILES_IN_FLIGHT, (part, wide), rhs.dtype)
    total = nl.ndarray((part, wide), dtype=nl.float32, buffer=nl.psum)
    results = rotating(TILES_IN_FLIGHT, (part, wide), lhs_t.dtype)
    for tile in range(m_tiles * n_tiles):
        m, n = divmod(tile, n_tiles)
        nisa.memset(total, 0.0)
        for k in range(k_tiles):
            stationary, moving = left[k % TILES_IN_FLIGHT], right[k % TILES_IN_FLIGHT]
            nisa.dma_copy(dst=stationary, src=block(lhs_t, (k, part), (m, part)))
            nisa.dma_copy(dst=moving, src=block(rhs, (k, part), (n, wide)))
            nisa.nc_matmul(total, stationary, moving, accumulate=k > 0)
        result = results[tile % TILES_IN_FLIGHT]
        nisa.tensor_copy(dst=result, src=total)
        nisa.dma_copy(dst=block(out, (m, part), (n, wide)), src=result)
    return out


def streaming(lhs_t: nl.NkiTensor, rhs: nl.NkiTensor) -> nl.NkiTensor:
    """Loads run one block ahead of the matmuls; all of K is summed in PSUM."""
    part, wide, m_tiles, n_tiles, k_tiles = sizes_of(lhs_t, rhs)
    out = nl.ndarray((lhs_t.shape[1], rhs.shape[1]), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    left = rotating(2 * k_tiles, (part, BLOCK_M * part), lhs_t.dtype)
    right = rotating(2 * k_tiles, (part, wide), rhs.dtype)
    psum = rotating(nl.tile_size.psum_num_banks, (part, wide), nl.float32, nl.psum)
    results = rotating(nl.tile_size.psum_num_banks, (part, wide), lhs_t.dtype)
    for n in range(n_tiles):
        moving = right[n % 2 * k_tiles : (n % 2 + 1) * k_tiles]
        load_rows(moving, rhs, 0, n)
        for m in range(m_tiles):
            iteration = m // BLOCK_M % 2
            stationary = left[iteration * k_tiles : (iteration + 1) * k_tiles]
            if m % BLOCK_M == 0:
                load_rows(stationary, lhs_t, 0, m // BLOCK_M)
            total, result = psum[m % len(psum)], results[m % len(results)]
            first = m % BLOCK_M * part
            for k in range(k_tiles):
                columns = stationary[k][:, first : first + part]
                nisa.nc_matmul(total, columns, moving[k], accumulate=k > 0)
            nisa.tensor_copy(dst=result, src=total)
            nisa.dma_copy(dst=block(out, (m, part), (n, wide)), src=result)
    return out


def transposing_loads(lhs: nl.NkiTensor, rhs: nl.NkiTensor) -> nl.NkiTensor:
    """lhs @ rhs: blocks of lhs are transposed by the DMA engines; K in two levels as above."""
    part, wide = nl.tile_size.pmax, nl.tile_size.gemm_moving_fmax
    rows, depth = lhs.shape
    block_m = BLOCK_K  # 8 tiles of rows share their loads of rhs
    out = nl.ndarray((rows, rhs.shape[1]), dtype=lhs.dtype, buffer=nl.shared_hbm)
    psum = Cleared(nl.tile_size.psum_num_banks, (part, wide))
    partial = rotating(nl.tile_size.psum_num_banks, (part, wide), lhs.dtype)
    k_blocks = depth // part // BLOCK_K
    left = rotating(2 * k_blocks * BLOCK_K, (part, block_m * part), lhs.dtype)
    right = rotating(2 * k_blocks * BLOCK_K, (part, wide), rhs.dtype)
    sums = rotating(2 * block_m, (part, wide), lhs.dtype)
    iteration = 0
    for m in range(0, rows, block_m * part):
        for n in range(0, rhs.shape[1], wide):
            column = sums[iteration % 2 * block_m : (iteration % 2 + 1) * block_m]
            for tile in column:
                nisa.memset(tile, 0.0)
            for k in range(k_blocks):
                first = (iteration % 2 * k_blocks + k) * BLOCK_K
                stationary, moving = left[first : first + BLOCK_K], right[first : first + BLOCK_K]
                rows_of_m = lhs[m : m + block_m * part, :]
                transpose_columns(stationary, rows_of_m, k * BLOCK_K)
                load_rows(moving, rhs, k * BLOCK_K, n // wide)
                add_products(column, stationary, moving, psum, partial)
            for i, tile in enumerate(column):
                row = m + i * part
                nisa.dma_copy(dst=out[row : row + part, n : n + wide], src=tile)
            iteration += 1
    return out


def transpose_columns(tiles: list[nl.NkiTensor], source: nl.NkiTensor, first: int) -> None:
    """Consecutive column blocks of a matrix, transposed, one DMA each."""
    part = tiles[0].shape[0]
    for i, tile in enumerate(tiles):
        column = (first + i) * part
        nisa.dma_transpose(dst=tile, src=source[:, column : column + part])

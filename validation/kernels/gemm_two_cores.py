"""lhs @ rhs on two programs, lhs transposed on the Tensor engine: the stream of Tilebench."""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
from validation.kernels.tiles import rotating

DEPTH = 8  # K tiles of a block: summed in PSUM; blocks of K are summed in SBUF
WIDTH = 2  # moving tiles side by side in a block
BLOCKS_IN_FLIGHT = 2


def matmul(lhs: nl.NkiTensor, rhs: nl.NkiTensor, rows: int) -> nl.NkiTensor:
    """lhs [M, K], rhs [K, N]; `rows` tiles of 128 make a block of M. M is shared out."""
    gemm = Gemm(lhs, rhs, rows)
    blocks = lhs.shape[0] // (rows * gemm.part) // nl.num_programs()
    first = nl.program_id(0) * blocks
    for block in range(first, first + blocks):
        gemm.block_of_rows(block)
    return gemm.out


class Gemm:
    """The tiles of one product."""

    def __init__(self, lhs: nl.NkiTensor, rhs: nl.NkiTensor, rows: int) -> None:
        part, wide = nl.tile_size.pmax, nl.tile_size.gemm_moving_fmax
        self.lhs, self.rhs, self.rows, self.part, self.wide = lhs, rhs, rows, part, wide
        shape = (lhs.shape[0], rhs.shape[1])
        self.out = nl.ndarray(shape, dtype=lhs.dtype, buffer=nl.shared_hbm)
        self.left = rotating(BLOCKS_IN_FLIGHT, (part, rows, DEPTH * part), lhs.dtype)
        self.right = rotating(BLOCKS_IN_FLIGHT, (part, DEPTH, WIDTH * wide), rhs.dtype)
        self.sums = rotating(BLOCKS_IN_FLIGHT, (part, rows, shape[1]), nl.float32)
        self.narrow = rotating(BLOCKS_IN_FLIGHT, (part, WIDTH * wide), lhs.dtype)
        banks = nl.tile_size.psum_num_banks // 2
        self.swapped = rotating(banks, (part, part), lhs.dtype, nl.psum)
        self.products = rotating(banks, (part, wide), nl.float32, nl.psum)
        self.lefts, self.rights, self.chains = 0, 0, 0

    def block_of_rows(self, block: int) -> None:
        """All of K and N for one block of rows."""
        sums = self.sums[block % BLOCKS_IN_FLIGHT]
        for k in range(self.lhs.shape[1] // (DEPTH * self.part)):
            left = self.left[self.lefts % BLOCKS_IN_FLIGHT]
            self.lefts += 1
            self.load_left(left, block, k)
            for n in range(self.rhs.shape[1] // (WIDTH * self.wide)):
                right = self.right[self.rights % BLOCKS_IN_FLIGHT]
                self.rights += 1
                self.load_right(right, k, n)
                self.multiply(sums, left, right, (k, n))
        for m in range(self.rows):
            self.store(sums, m, (block * self.rows + m) * self.part)

    def load_left(self, left: nl.NkiTensor, block: int, k: int) -> None:
        """Rows of lhs, each 128 x 128 of them transposed in place."""
        part = self.part
        for m in range(self.rows):
            row = (block * self.rows + m) * part
            source = self.lhs[row : row + part, k * DEPTH * part : (k + 1) * DEPTH * part]
            nisa.dma_copy(dst=left[:, m, :], src=source)
            for tile in range(DEPTH):
                swapped = self.swapped[tile % len(self.swapped)]
                place = left[:, m, tile * part : (tile + 1) * part]
                nisa.nc_transpose(dst=swapped, data=place)
                nisa.tensor_copy(dst=place, src=swapped)

    def load_right(self, right: nl.NkiTensor, k: int, n: int) -> None:
        """A block of rhs, 128 rows in a DMA."""
        columns = slice(n * WIDTH * self.wide, (n + 1) * WIDTH * self.wide)
        for tile in range(DEPTH):
            row = (k * DEPTH + tile) * self.part
            nisa.dma_copy(dst=right[:, tile, :], src=self.rhs[row : row + self.part, columns])

    def multiply(
        self, sums: nl.NkiTensor, left: nl.NkiTensor, right: nl.NkiTensor, at: tuple[int, int]
    ) -> None:
        """sums of the columns of block n (+)= the product over block k, for at = (k, n)."""
        k, n = at
        part, wide = self.part, self.wide
        for i in range(self.rows * WIDTH):
            m, half = divmod(i, WIDTH)
            product = self.products[self.chains % len(self.products)]
            self.chains += 1
            for tile in range(DEPTH):
                stationary = left[:, m, tile * part : (tile + 1) * part]
                moving = right[:, tile, half * wide : (half + 1) * wide]
                nisa.nc_matmul(product, stationary, moving, accumulate=tile > 0)
            column = (n * WIDTH + half) * wide
            total = sums[:, m, column : column + wide]
            if k == 0:
                nisa.tensor_copy(dst=total, src=product)
            else:
                nisa.tensor_tensor(dst=total, data1=total, data2=product, op=nl.add)

    def store(self, sums: nl.NkiTensor, m: int, row: int) -> None:
        """128 rows of the result: whole in fp32, narrowed block by block otherwise."""
        rows = slice(row, row + self.part)
        if self.lhs.dtype == nl.float32:
            nisa.dma_copy(dst=self.out[rows, :], src=sums[:, m, :])
            return
        step, narrow = WIDTH * self.wide, self.narrow[m % BLOCKS_IN_FLIGHT]
        for n in range(self.rhs.shape[1] // step):
            columns = slice(n * step, (n + 1) * step)
            nisa.tensor_copy(dst=narrow, src=sums[:, m, columns])
            nisa.dma_copy(dst=self.out[rows, columns], src=narrow)

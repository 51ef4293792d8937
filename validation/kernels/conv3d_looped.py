"""conv3d 3 x 3 x 3 with padding, looped over blocks of rows: the stream of Tilebench's kernel.

Nothing is double buffered: one window of input rows, one block of output rows serve all iterations.
"""

from __future__ import annotations

from typing import NamedTuple

import nki.isa as nisa
import nki.language as nl
from validation.kernels.tiles import rotating

TAPS = 3  # of the filter, in each dimension
ROWS_OF_AN_ITERATION = 8
LEAST_ITERATIONS = 2  # of a device loop; what would take fewer is unrolled


Offsets = tuple[nl.NkiTensor, nl.NkiTensor]  # cells with a block's place in x and in out


class Block(NamedTuple):
    """Output rows that are computed together, and the cells that say where they are, if any."""

    depth: int
    first: int  # output row; not used with offsets
    rows: int
    offsets: Offsets | None = None


def conv3d(x: nl.NkiTensor, w: nl.NkiTensor, shape: tuple[int, int, int]) -> nl.NkiTensor:
    """x [1, C_in, D * H * W] with w [C_out, C_in, 27], up to 128 channels, padded by one.

    By output depth: the first row, a loop over blocks of eight rows, a loop over single rows for
    the rest, the last row. Every program of the launch computes all of it.
    """
    return Conv3d(x, w, shape).run()


class Conv3d:
    """The tensors of one convolution."""

    def __init__(self, x: nl.NkiTensor, w: nl.NkiTensor, shape: tuple[int, int, int]) -> None:
        part, width = nl.tile_size.pmax, shape[2]
        self.x, self.shape = x, shape
        self.c_in, self.c_out = x.shape[1], w.shape[0]
        self.out = nl.ndarray((1, self.c_out, x.shape[2]), dtype=x.dtype, buffer=nl.shared_hbm)
        self.weights = transposed_weights(w)
        window = (part, TAPS, ROWS_OF_AN_ITERATION + TAPS - 1, width + TAPS - 1)
        self.window = nl.ndarray(window, dtype=x.dtype, buffer=nl.sbuf)
        self.results = nl.ndarray(
            (part, ROWS_OF_AN_ITERATION, width), dtype=x.dtype, buffer=nl.sbuf
        )
        self.block_offsets = (_cell(), _cell())
        self.row_offsets = (_cell(), _cell())
        nisa.memset(self.window, 0.0)

    def run(self) -> nl.NkiTensor:
        """All depths."""
        depths, height, _ = self.shape
        blocks, rest = divmod(height - 2, ROWS_OF_AN_ITERATION)
        for depth in range(depths):
            self.compute(Block(depth, 0, 1))
            self.repeat(Block(depth, 1, ROWS_OF_AN_ITERATION), blocks, self.block_offsets)
            rest_from = 1 + blocks * ROWS_OF_AN_ITERATION
            self.repeat(Block(depth, rest_from, 1), rest, self.row_offsets)
            self.compute(Block(depth, height - 1, 1))
        return self.out

    def repeat(self, block: Block, iterations: int, offsets: Offsets) -> None:
        """`iterations` blocks, one below the other: a device loop if there are enough of them."""
        if iterations < LEAST_ITERATIONS:
            for iteration in range(iterations):
                self.compute(block._replace(first=block.first + iteration * block.rows))
            return
        width = self.shape[2]
        nisa.memset(offsets[0], (block.first - 1) * width)
        nisa.memset(offsets[1], block.first * width)
        moving = block._replace(offsets=offsets)

        def body(_: nisa.VirtualRegister) -> None:
            self.compute(moving)
            for cell in offsets:
                nisa.tensor_scalar(dst=cell, data=cell, op0=nl.add, operand0=block.rows * width)

        nl.fori_loop(0, iterations, body)

    def compute(self, block: Block) -> None:
        """Load the window of a block, convolve row by row, store."""
        for tap in range(TAPS):
            self.load(block, tap)
        for row in range(block.rows):
            self.convolve(row)
        self.store(block)

    def load(self, block: Block, tap: int) -> None:
        """The input rows of a block in one of the three depths it needs."""
        depths, height, width = self.shape
        depth, rows = block.depth + tap - 1, block.rows + TAPS - 1
        if not 0 <= depth < depths:
            nisa.memset(self.window[0 : self.c_in, tap, 0:rows, :], 0.0)
            return
        plane = depth * height * width
        if block.offsets:
            target = self.window[0 : self.c_in, tap, 0:rows, 1 : width + 1]
            nisa.dma_copy(dst=target, src=self.rows_of_x(rows, plane, block.offsets[0]))
            return
        top = block.first - 1
        low, high = max(top, 0), min(top + rows, height)
        if low > top:
            nisa.memset(self.window[0 : self.c_in, tap, 0 : low - top, :], 0.0)
        if high < top + rows:
            nisa.memset(self.window[0 : self.c_in, tap, high - top : rows, :], 0.0)
        target = self.window[0 : self.c_in, tap, low - top : high - top, 1 : width + 1]
        nisa.dma_copy(dst=target, src=self.rows_of_x(high - low, plane + low * width))

    def rows_of_x(
        self, rows: int, offset: int, run_time: nl.NkiTensor | None = None
    ) -> nl.NkiTensor:
        """`rows` input rows of all channels, `offset` elements (and more) into each channel."""
        pattern = [[self.x.shape[2], self.c_in], [self.shape[2], rows], [1, self.shape[2]]]
        if run_time is None:
            return self.x.ap(pattern, offset=offset)
        return self.x.ap(pattern, offset=offset, scalar_offset=run_time, indirect_dim=2)

    def convolve(self, row: int) -> None:
        """27 matmuls into a PSUM tile of its own, and a copy to the block of results."""
        width = self.shape[2]
        total = nl.ndarray((self.c_out, width), dtype=nl.float32, buffer=nl.psum)
        for tap in range(TAPS**3):
            depth, i, j = tap // TAPS**2, tap // TAPS % TAPS, tap % TAPS
            stationary = self.weights[0 : self.c_in, tap, 0 : self.c_out]
            moving = self.window[0 : self.c_in, depth, row + i, j : j + width]
            nisa.nc_matmul(total, stationary, moving, accumulate=tap > 0)
        nisa.tensor_copy(dst=self.results[0 : self.c_out, row, :], src=total)

    def store(self, block: Block) -> None:
        """The output rows of a block, in one DMA."""
        _, height, width = self.shape
        pattern = [[self.x.shape[2], self.c_out], [1, block.rows * width]]
        plane = block.depth * height * width
        if block.offsets:
            target = self.out.ap(
                pattern, offset=plane, scalar_offset=block.offsets[1], indirect_dim=2
            )
        else:
            target = self.out.ap(pattern, offset=plane + block.first * width)
        nisa.dma_copy(dst=target, src=self.results[0 : self.c_out, 0 : block.rows, :])


def _cell() -> nl.NkiTensor:
    return nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)


def transposed_weights(w: nl.NkiTensor) -> nl.NkiTensor:
    """w [C_out, C_in, 27] as [C_in, 27, C_out], by way of fp32 and nc_transpose."""
    part = nl.tile_size.pmax
    c_out, c_in, taps = w.shape
    weights = nl.ndarray((part, taps, part), dtype=w.dtype, buffer=nl.sbuf)
    raw = nl.ndarray((c_out, c_in, taps), dtype=w.dtype, buffer=nl.sbuf)
    wide = nl.ndarray((c_out, c_in, taps), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=raw, src=w)
    nisa.tensor_copy(dst=wide, src=raw)
    psum = rotating(nl.tile_size.psum_num_banks, (c_in, c_out), nl.float32, nl.psum)
    for tap in range(taps):
        swapped = psum[tap % len(psum)]
        nisa.nc_transpose(dst=swapped, data=wide[:, :, tap])
        nisa.tensor_copy(dst=weights[0:c_in, tap, 0:c_out], src=swapped)
    return weights

"""fp8 weights [128, 4096] times their scales, as bf16, in five ways on trn1.

After foxl-ai/kiln, tools/probe_prefill_vector.py: operands are resident, and 32 matmuls read each
block, so that none is dead.
"""

from __future__ import annotations

from collections.abc import Callable

import nki.isa as nisa
import nki.language as nl
from validation.kernels.tiles import rotating

TILES, TILE = 32, 128  # tiles of a block, columns of a tile
HALF = 64  # columns that share a scale
QUARTER = 4  # tiles of a wide instruction, 512 columns


class Block:
    """One block: weights [128, 32, 128] fp8, scales [128, 2, 32] fp32, the result, a PSUM tile."""

    def __init__(self, weights: nl.NkiTensor, scales: nl.NkiTensor, psum: nl.NkiTensor) -> None:
        self.weights, self.scales, self.psum = weights, scales, psum
        self.result = weights  # set for each block

    def half(self, tile: int, half: int) -> tuple[nl.NkiTensor, nl.NkiTensor, nl.NkiTensor]:
        """Result, weights and scale of half a tile."""
        span = slice(half * HALF, (half + 1) * HALF)
        scale = self.scales[:, half, tile : tile + 1]
        return self.result[:, tile, span], self.weights[:, tile, span], scale


def _on_vector(block: Block, tile: int, half: int) -> None:
    result, data, scale = block.half(tile, half)
    nisa.tensor_scalar(
        dst=result, data=data, op0=nl.multiply, operand0=scale, engine=nisa.vector_engine
    )


def _on_scalar(block: Block, tile: int, half: int) -> None:
    result, data, scale = block.half(tile, half)
    nisa.activation(dst=result, op=nl.copy, data=data, scale=scale)


def _by_halves(block: Block, scalar_tiles: int) -> None:
    """64 instructions of 64 columns; the last `scalar_tiles` tiles on the Scalar engine."""
    for tile in range(TILES):
        for half in range(2):
            if tile < TILES - scalar_tiles:
                _on_vector(block, tile, half)
            else:
                _on_scalar(block, tile, half)


def _vector(block: Block) -> None:
    _by_halves(block, 0)


def _scalar(block: Block) -> None:
    _by_halves(block, TILES)


def _both(block: Block) -> None:
    _by_halves(block, TILES // 2)


def _spread(block: Block) -> None:
    """Eight products of 512 columns with scales that are read over and over."""
    rows = block.scales.shape[0]
    shape = (rows, QUARTER, 2, HALF)
    for first in range(0, TILES, QUARTER):
        scales = block.scales.ap(
            pattern=[[2 * TILES, rows], [1, QUARTER], [TILES, 2], [0, HALF]], offset=first
        )
        result = block.result[:, first : first + QUARTER, :].reshape(shape)
        data = block.weights[:, first : first + QUARTER, :].reshape(shape)
        nisa.tensor_tensor(
            dst=result, data1=data, data2=scales, op=nl.multiply, engine=nisa.vector_engine
        )


def _psum(block: Block) -> None:
    """As `_spread` with a PSUM tile for the weights and a scale for each tile."""
    rows = block.scales.shape[0]
    for first in range(0, TILES, QUARTER):
        scales = block.scales.ap(pattern=[[2 * TILES, rows], [1, QUARTER], [0, TILE]], offset=first)
        result = block.result[:, first : first + QUARTER, :]
        nisa.tensor_tensor(
            dst=result, data1=block.psum, data2=scales, op=nl.multiply, engine=nisa.vector_engine
        )


WAYS: dict[str, Callable[[Block], None]] = {
    "vector": _vector,
    "scalar": _scalar,
    "both": _both,
    "spread": _spread,
    "psum": _psum,
}
IN_ITERATION = 2


def dequantise(weights: nl.NkiTensor, scales: nl.NkiTensor, repeats: int, way: str) -> nl.NkiTensor:
    """`repeats` blocks of weights [2, 128, 32, 128], taken in turn, by scales [128, 2, 32].

    The result [128, 1] is the sum over blocks of (sum of the tiles)ᵀ by a column of halves. The way
    "psum" has the number 0.25 for all weights.
    """
    rows = scales.shape[0]
    out = nl.ndarray((TILE, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    loaded = rotating(IN_ITERATION, (rows, TILES, TILE), weights.dtype)
    for number, tile in enumerate(loaded):
        nisa.dma_copy(dst=tile, src=weights[number])
    factors = nl.ndarray(scales.shape, dtype=scales.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=factors, src=scales)
    halves = nl.ndarray((rows, HALF), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.memset(halves, 0.5)
    total = nl.ndarray((TILE, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(total, 0.0)
    psum = nl.ndarray((rows, QUARTER, TILE), dtype=nl.float32, buffer=nl.psum)
    nisa.memset(psum, 0.25)
    results = rotating(IN_ITERATION, (rows, TILES, TILE), nl.bfloat16)
    banks = rotating(IN_ITERATION, (TILE, HALF), nl.float32, nl.psum)
    for iteration in range(repeats):
        block = Block(loaded[iteration % IN_ITERATION], factors, psum)
        block.result, bank = results[iteration % IN_ITERATION], banks[iteration % IN_ITERATION]
        WAYS[way](block)
        for tile in range(TILES):
            nisa.nc_matmul(bank, block.result[:, tile, :], halves, accumulate=tile > 0)
        nisa.tensor_tensor(dst=total, data1=total, data2=bank[:, HALF - 1 :], op=nl.add)
    nisa.dma_copy(dst=out, src=total)
    return out

"""Probe: what the Tensor engine does with fp16 operands, subnormal ones and beside bf16 ones.

Give it subnormal fp16 values (2**-20) as `moving`: products other than 0 mean that nothing is
flushed. Give it a bf16 `moving` and fp16 `stationary` and time `repeats`: the same as for two bf16
operands means that master weights in fp16 cost nothing.
"""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl


def matmul_operands(stationary: nl.NkiTensor, moving: nl.NkiTensor, repeats: int) -> nl.NkiTensor:
    """transpose(stationary) @ moving in float32, computed again and again."""
    tiles = []
    for x in (stationary, moving):
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        tiles.append(tile)
    shape = (stationary.shape[1], moving.shape[1])
    bank = nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)
    for _ in range(repeats):
        nisa.nc_matmul(dst=bank, stationary=tiles[0], moving=tiles[1], accumulate=False)
    copied = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=copied, src=bank)
    y = nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=y, src=copied)
    return y

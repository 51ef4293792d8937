"""Probe: whether a PSUM bank may be read while it still grows.

The Scalar engine copies the first product, then a second one is added to the same bank. If `y` is
(first, first + second), chains of fast convolutions need two banks (three for F(4,3)) as planned;
otherwise plan with `midgroup=False`.
"""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl


def growing_bank(stationary: nl.NkiTensor, moving: nl.NkiTensor) -> nl.NkiTensor:
    """[2, M, N]: the product after one matmul, and after the same one was added again."""
    tiles = []
    for x in (stationary, moving):
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        tiles.append(tile)
    shape = (stationary.shape[1], moving.shape[1])
    bank = nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)
    y = nl.ndarray((2, shape[0], shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    for number in range(2):
        nisa.nc_matmul(dst=bank, stationary=tiles[0], moving=tiles[1], accumulate=number > 0)
        copied = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=copied, op=nl.copy, data=bank)
        nisa.dma_copy(dst=y[number], src=copied)
    return y

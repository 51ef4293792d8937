"""Probe: whether the Vector engine adds two bf16 tiles into fp16 at one element a cycle.

Time it on a device with 1 and with `REPEATS` instructions: the difference over REPEATS - 1 is the
cost of one. 512 cycles say yes (`vector_pair_16bit_free`); 1024 say that F(4,3) below 192 channels
is not worth having. The sums tell whether the cast rounds to nearest even.
"""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl

REPEATS = 64


def vector_pairs(a: nl.NkiTensor, b: nl.NkiTensor, repeats: int) -> nl.NkiTensor:
    """a + b of two bf16 [128, n] in fp16, computed again and again."""
    tiles = []
    for x in (a, b):
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        tiles.append(tile)
    total = nl.ndarray(a.shape, dtype=nl.float16, buffer=nl.sbuf)
    for _ in range(repeats):
        nisa.tensor_tensor(dst=total, data1=tiles[0], data2=tiles[1], op=nl.add)
    y = nl.ndarray(a.shape, dtype=nl.float16, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=y, src=total)
    return y

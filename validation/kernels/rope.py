"""Rotary embedding, fp32, after NKIBench on trn1 (rope_single_freq_apply of zhang677/AccelOpt)."""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
from validation.kernels.tiles import rotating

TILE = 512  # columns of one load
IN_FLIGHT = 4


def rope(x: nl.NkiTensor, cos: nl.NkiTensor, sin: nl.NkiTensor) -> nl.NkiTensor:
    """x [D, S] by halves: (even cos - odd sin, odd cos + even sin); cos and sin are [D / 2, S].

    The Scalar engine copies, as the published activity of the engines says.
    """
    size, half = x.shape[0], x.shape[0] // 2
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    loaded, results = (rotating(IN_FLIGHT, (size, TILE), x.dtype) for _ in range(2))
    kinds = []
    for _ in range(7):
        kinds.append(rotating(IN_FLIGHT, (half, TILE), x.dtype))
    for i in range(x.shape[1] // TILE):
        span, iteration = slice(i * TILE, (i + 1) * TILE), i % IN_FLIGHT
        tile, result = loaded[iteration], results[iteration]
        cosine, sine, odd, even_cos, odd_cos, even_sin, odd_sin = (
            kind[iteration] for kind in kinds
        )
        nisa.dma_copy(dst=tile, src=x[:, span])
        nisa.dma_copy(dst=cosine, src=cos[:, span])
        nisa.dma_copy(dst=sine, src=sin[:, span])
        even = tile[:half, :]
        nisa.activation(dst=odd, op=nl.copy, data=tile[half:, :])
        nisa.tensor_tensor(dst=even_cos, data1=even, data2=cosine, op=nl.multiply)
        nisa.tensor_tensor(dst=odd_cos, data1=odd, data2=cosine, op=nl.multiply)
        nisa.tensor_tensor(dst=even_sin, data1=even, data2=sine, op=nl.multiply)
        nisa.tensor_tensor(dst=odd_sin, data1=odd, data2=sine, op=nl.multiply)
        nisa.tensor_tensor(dst=result[:half, :], data1=even_cos, data2=odd_sin, op=nl.subtract)
        nisa.tensor_tensor(dst=result[half:, :], data1=odd_cos, data2=even_sin, op=nl.add)
        nisa.dma_copy(dst=out[:, span], src=result)
    return out

"""The selective scan of Mamba with states outside, fp32, after NKIBench (mamba of AccelOpt).

The source is mamba_v1 of the NKI tutorial over 7,168 steps and two channel tiles. The bytes that it
is published with are exactly those of this stream: delta is loaded for every state, u once, and the
sum of the second channel tile goes to HBM and back between states.
"""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
from validation.kernels.mamba_sequence import WideRows
from validation.kernels.tiles import rotating


class Spill(WideRows):
    """Six tiles of the whole sequence: two products, the first sum, delta, decay and work.

    c takes the place of delta, and the second sum that of decay, once these are dead.
    """

    def __init__(self, tensors: tuple[nl.NkiTensor, ...]) -> None:
        super().__init__(tensors)
        shape = (self.part, self.steps)
        self.products = rotating(self.tiles, shape, nl.float32)
        self.first_sum, self.input, self.decay, self.work = rotating(4, shape, nl.float32)
        nisa.memset(self.first_sum, 0.0)
        self.saved = nl.ndarray(shape, dtype=nl.float32, buffer=nl.private_hbm)

    def body(self, tile: int, state: int) -> None:
        """One state of one channel tile, up to the product with c, in `work`."""
        product, work = self.products[tile], self.work
        nisa.dma_copy(dst=self.input, src=self.delta[self.span(tile), :])
        rate = self.rate(tile, state)
        nisa.activation(dst=self.decay, op=nl.exp, data=self.input, scale=rate)
        if state == 0:
            nisa.dma_copy(dst=product, src=self.u[self.span(tile), :])
            nisa.tensor_tensor(dst=product, data1=self.input, data2=product, op=nl.multiply)
        self.widen(work, self.b, state)
        nisa.tensor_tensor(dst=work, data1=product, data2=work, op=nl.multiply)
        nisa.tensor_tensor_scan(work, self.decay, work, initial=0.0, op0=nl.multiply, op1=nl.add)
        self.widen(self.input, self.c, state)
        nisa.tensor_tensor(dst=work, data1=work, data2=self.input, op=nl.multiply)

    def add(self, tile: int, state: int) -> None:
        """Add `work` to the sum of a channel tile, and store the sum after the last state."""
        total, last = self.first_sum if tile == 0 else self.decay, state == self.states - 1
        if tile == 1 and state == 0:
            nisa.memset(total, 0.0)
        elif tile == 1:
            nisa.dma_copy(dst=total, src=self.saved)
        nisa.tensor_tensor(dst=total, data1=total, data2=self.work, op=nl.add)
        if last:
            nisa.dma_copy(dst=self.out[self.span(tile), :], src=total)
        elif tile == 1:
            nisa.dma_copy(dst=self.saved, src=total)


def two_tiles(*tensors: nl.NkiTensor) -> nl.NkiTensor:
    """mamba_v1 on two channel tiles of a long sequence: delta, u, a, b, c as in mamba.py."""
    work = Spill(tensors)
    assert work.tiles == 2, f"two channel tiles of {work.part}, not {work.tiles}"
    for state in range(work.states):
        for tile in range(work.tiles):
            work.body(tile, state)
            work.add(tile, state)
    return work.out

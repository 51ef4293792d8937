"""Chained products of a few rows with large weights: what streaming weights from HBM reaches.

After foxl-ai/kiln, kiln/kernels/gemv.py (`kiln_gemv_chain_kernel`).
"""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
from validation.kernels.tiles import rotating

RING = 3  # weight tiles in flight
BANK = 512  # columns of an output tile
ABREAST = 4  # transposes that share a bank


class Chain:
    """x [T, K] bf16 times weights [C, K, K], one after the other, with the identity at hand."""

    def __init__(self, x: nl.NkiTensor, weights: nl.NkiTensor, identity: nl.NkiTensor) -> None:
        self.part = nl.tile_size.pmax
        self.weights = weights
        self.rows, self.width = x.shape
        self.depth = self.width // self.part  # weight tiles of a product
        self.identity = nl.ndarray(identity.shape, dtype=identity.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=self.identity, src=identity)
        self.row = nl.ndarray((self.rows, self.width), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=self.row, src=x)
        turned = (self.part, self.depth, self.rows)
        self.turned = nl.ndarray(turned, dtype=x.dtype, buffer=nl.sbuf)
        self.ring = rotating(RING, (self.part, self.width), weights.dtype)
        self.banks = rotating(self.width // BANK, (self.part, BANK), nl.float32, nl.psum)

    def load(self, number: int) -> None:
        """The weight tile of this number over all products, if there is one."""
        product, tile = divmod(number, self.depth)
        if product < self.weights.shape[0]:
            rows = slice(tile * self.part, (tile + 1) * self.part)
            nisa.dma_copy(dst=self.ring[number % RING], src=self.weights[product, rows, :])

    def iteration(self) -> None:
        """The row as columns, by products with the identity, four to a bank."""
        corner = self.identity[: self.rows, : self.rows]
        for first in range(0, self.depth, ABREAST):
            bank = self.banks[first // ABREAST % len(self.banks)]
            tiles = range(first, min(first + ABREAST, self.depth))
            for tile in tiles:
                at, column = (tile - first) * self.part, tile * self.part
                source, target = (
                    self.row[:, column : column + self.part],
                    bank[:, at : at + self.rows],
                )
                nisa.nc_matmul(target, source, corner, accumulate=False)
            for tile in tiles:
                at = (tile - first) * self.part
                source = bank[:, at : at + self.rows]
                nisa.tensor_copy(self.turned[:, tile, :], source, engine=nisa.vector_engine)

    def multiply(self, number: int) -> None:
        """The products of one weight tile, added to all output tiles."""
        tile, weight = number % self.depth, self.ring[number % RING]
        for n, bank in enumerate(self.banks):
            moving = weight[:, n * BANK : (n + 1) * BANK]
            nisa.nc_matmul(
                bank[: self.rows, :], self.turned[:, tile, :], moving, accumulate=tile > 0
            )

    def evict(self) -> None:
        """The output tiles as the next row, by the Scalar and the Vector engine in turn."""
        for n, bank in enumerate(self.banks):
            source, target = bank[: self.rows, :], self.row[:, n * BANK : (n + 1) * BANK]
            if n % 2 == 0:
                nisa.activation(dst=target, op=nl.copy, data=source)
            else:
                nisa.tensor_copy(dst=target, src=source, engine=nisa.vector_engine)


def gemv_chain(x: nl.NkiTensor, weights: nl.NkiTensor, identity: nl.NkiTensor) -> nl.NkiTensor:
    """x weights[0] weights[1] ..., each product rounded to the type of x."""
    work = Chain(x, weights, identity)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for number in range(RING - 1):
        work.load(number)
    for number in range(weights.shape[0] * work.depth):
        if number % work.depth == 0:
            work.iteration()
        work.load(number + RING - 1)
        work.multiply(number)
        if number % work.depth == work.depth - 1:
            work.evict()
    nisa.dma_copy(dst=out, src=work.row)
    return out

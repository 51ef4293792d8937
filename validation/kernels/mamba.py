"""The selective scan of Mamba: the first two kernels of the NKI fused-mamba tutorial."""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
from validation.kernels.tiles import rotating

TILES_IN_FLIGHT = 4


class Scan:
    """delta, u [C, T], a [C, S] and b, c [S, T]; out [C, T] is the sum of c[s] * state[s]."""

    def __init__(self, tensors: tuple[nl.NkiTensor, ...]) -> None:
        self.delta, self.u, self.a, self.b, self.c = tensors
        part = nl.tile_size.pmax
        self.channels, self.steps = self.delta.shape
        self.tiles, self.states = self.channels // part, self.a.shape[1]
        self.part = part
        self.out = nl.ndarray(self.delta.shape, dtype=self.delta.dtype, buffer=nl.shared_hbm)
        self.deltas, self.inputs = self.sbuf(), self.sbuf()
        self.decays, self.scans, self.weighted = self.sbuf(), self.sbuf(), self.sbuf()
        self.products, self.driven = self.sbuf(), self.sbuf()
        self.rates = rotating(TILES_IN_FLIGHT, (part, 1), self.a.dtype)
        self.rows = rotating(2 * TILES_IN_FLIGHT, (1, self.steps), self.b.dtype)
        self.spread = rotating(nl.tile_size.psum_num_banks, (part, self.steps), nl.float32, nl.psum)
        self.ones = nl.ndarray((1, part), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(self.ones, 1.0)
        self.broadcasts = 0
        self.bodies = 0

    def sbuf(self) -> list[nl.NkiTensor]:
        """Tiles of [128 channels, T]."""
        return rotating(TILES_IN_FLIGHT, (self.part, self.steps), nl.float32)

    def span(self, tile: int) -> slice:
        """The channels of a tile."""
        return slice(tile * self.part, (tile + 1) * self.part)

    def load(self, iteration: int, tile: int) -> tuple[nl.NkiTensor, nl.NkiTensor]:
        """delta and u of a channel tile."""
        delta, u = (
            self.deltas[iteration % TILES_IN_FLIGHT],
            self.inputs[iteration % TILES_IN_FLIGHT],
        )
        nisa.dma_copy(dst=delta, src=self.delta[self.span(tile), :])
        nisa.dma_copy(dst=u, src=self.u[self.span(tile), :])
        return delta, u

    def multiply(self, iteration: int, delta: nl.NkiTensor, u: nl.NkiTensor) -> nl.NkiTensor:
        """delta * u."""
        product = self.products[iteration % TILES_IN_FLIGHT]
        nisa.tensor_tensor(dst=product, data1=delta, data2=u, op=nl.multiply)
        return product

    def broadcast(self, source: nl.NkiTensor, state: int) -> nl.NkiTensor:
        """A row of b or c on all partitions, in PSUM, by a matmul with a row of ones."""
        row = self.rows[self.broadcasts % len(self.rows)]
        wide = self.spread[self.broadcasts % len(self.spread)]
        self.broadcasts += 1
        nisa.dma_copy(dst=row, src=source[state : state + 1, :])
        nisa.nc_matmul(wide, self.ones, row, is_stationary_onezero=True, accumulate=False)
        return wide

    def body(
        self, delta: nl.NkiTensor, product: nl.NkiTensor, total: nl.NkiTensor, tile: int, state: int
    ) -> None:
        """total += c * scan(exp(delta * a), product * b) for one state of one channel tile."""
        iteration = self.bodies % TILES_IN_FLIGHT
        self.bodies += 1
        rate, decay, driven = self.rates[iteration], self.decays[iteration], self.driven[iteration]
        scan, weighted = self.scans[iteration], self.weighted[iteration]
        nisa.dma_copy(dst=rate, src=self.a[self.span(tile), state : state + 1])
        nisa.activation(dst=decay, op=nl.exp, data=delta, scale=rate)
        spread_b = self.broadcast(self.b, state)
        nisa.tensor_tensor(dst=driven, data1=product, data2=spread_b, op=nl.multiply)
        nisa.tensor_tensor_scan(scan, decay, driven, initial=0.0, op0=nl.multiply, op1=nl.add)
        spread_c = self.broadcast(self.c, state)
        nisa.tensor_tensor(dst=weighted, data1=scan, data2=spread_c, op=nl.multiply)
        nisa.tensor_tensor(dst=total, data1=total, data2=weighted, op=nl.add)


def states_outside(*tensors: nl.NkiTensor) -> nl.NkiTensor:
    """mamba_v1: channel tiles are the inner loop, so delta and u are loaded for every state."""
    work = Scan(tensors)
    totals = rotating(work.tiles, (work.part, work.steps), nl.float32)
    for total in totals:
        nisa.memset(total, 0.0)
    for state in range(work.states):
        for tile in range(work.tiles):
            delta, u = work.load(work.bodies, tile)
            product = work.multiply(work.bodies, delta, u)
            work.body(delta, product, totals[tile], tile, state)
    for tile in range(work.tiles):
        nisa.dma_copy(dst=work.out[work.span(tile), :], src=totals[tile])
    return work.out


def channels_outside(*tensors: nl.NkiTensor) -> nl.NkiTensor:
    """mamba_v2: states are the inner loop; delta, u and their product are made once per tile.

    The source writes the product inside; the Vector engine's published active time (1.60 ms against
    2.16 ms before) has room for it only once.
    """
    work = Scan(tensors)
    totals = rotating(2, (work.part, work.steps), nl.float32)
    for tile in range(work.tiles):
        total = totals[tile % 2]
        nisa.memset(total, 0.0)
        delta, u = work.load(tile, tile)
        product = work.multiply(tile, delta, u)
        for state in range(work.states):
            work.body(delta, product, total, tile, state)
        nisa.dma_copy(dst=work.out[work.span(tile), :], src=total)
    return work.out

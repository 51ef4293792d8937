"""The selective scan of Mamba over long sequences: mamba_v2 and mamba_v3 of the NKI tutorial.

`mamba.py` has the kernels for sequences that one PSUM bank holds (512 steps). SBUF decides here how
many tiles take turns. delta * u is formed once per channel tile, though the sources have it in the
innermost loop: rows 36b, 37p and 45d are published with counts that have room for no more.
"""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
from validation.kernels.tiles import rotating

STEP = 512  # columns of a PSUM bank, and of a tile of mamba_v3
ROW = 1024  # columns of b or c that one load brings
KEPT = 2 * 1024  # bytes of SBUF per partition for everything that is small
FEW, MANY = 1, 2  # tiles of a kind: at least, and where SBUF has room


class Sequence:
    """delta, u [C, T], a [C, S] and b, c [S, T]; out [C, T] is the sum of c[s] * state[s]."""

    def __init__(self, tensors: tuple[nl.NkiTensor, ...]) -> None:
        self.delta, self.u, self.a, self.b, self.c = tensors
        self.part = nl.tile_size.pmax
        self.steps, self.states = self.delta.shape[1], self.a.shape[1]
        self.tiles = self.delta.shape[0] // self.part
        self.out = nl.ndarray(self.delta.shape, dtype=self.delta.dtype, buffer=nl.shared_hbm)
        self.free_bytes = nl.tile_size.total_available_sbuf_size - KEPT
        self.ones = nl.ndarray((1, self.part), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(self.ones, 1.0)
        self.rates = rotating(MANY, (self.part, 1), nl.float32)
        self.banks = rotating(nl.tile_size.psum_num_banks, (self.part, STEP), nl.float32, nl.psum)
        self.spread_count = 0
        self.bodies = 0

    def span(self, tile: int) -> slice:
        """The channels of a tile."""
        return slice(tile * self.part, (tile + 1) * self.part)

    def whole(self, *, least_after: int) -> list[nl.NkiTensor]:
        """Tiles [128 channels, T]: two, if as many as `least_after` still fit; else one."""
        return self.take(self.part, self.steps, least_after * 4 * self.steps)

    def take(self, rows: int, columns: int, bytes_after: int) -> list[nl.NkiTensor]:
        """Two tiles, or one if two would leave fewer than so many bytes of a partition."""
        tile_bytes = 4 * columns
        count = MANY if MANY * tile_bytes + bytes_after <= self.free_bytes else FEW
        self.free_bytes -= count * tile_bytes
        return rotating(count, (rows, columns), nl.float32)

    def rate(self, tile: int, state: int) -> nl.NkiTensor:
        """a of a channel tile and a state."""
        rate = self.rates[self.bodies % len(self.rates)]
        self.bodies += 1
        nisa.dma_copy(dst=rate, src=self.a[self.span(tile), state : state + 1])
        return rate

    def spread(self, row: nl.NkiTensor) -> nl.NkiTensor:
        """A row of at most 512 columns on all partitions, in PSUM, by a matmul with ones."""
        bank = self.banks[self.spread_count % len(self.banks)][:, : row.shape[1]]
        self.spread_count += 1
        nisa.nc_matmul(bank, self.ones, row, is_stationary_onezero=True, accumulate=False)
        return bank


class WideRows(Sequence):
    """Rows of b and c that become tiles of their own.

    The Tensor engine spreads them bank by bank, the Scalar engine copies them; then both operands
    of a product are in SBUF. Row 45d is published with such traffic and activity.
    """

    def __init__(self, tensors: tuple[nl.NkiTensor, ...]) -> None:
        super().__init__(tensors)
        self.rows = rotating(FEW, (1, min(self.steps, ROW)), nl.float32)
        self.free_bytes -= FEW * 4 * min(self.steps, ROW)

    def widen(self, target: nl.NkiTensor, source: nl.NkiTensor, state: int) -> None:
        """target = a row of b or c on all partitions."""
        for first in range(0, self.steps, ROW):
            last = min(first + ROW, self.steps)
            row = self.rows[first // ROW % len(self.rows)][:, : last - first]
            nisa.dma_copy(dst=row, src=source[state : state + 1, first:last])
            for column in range(first, last, STEP):
                stop = min(column + STEP, last)
                bank = self.spread(row[:, column - first : stop - first])
                nisa.activation(dst=target[:, column:stop], op=nl.copy, data=bank)


class WholeRows(WideRows):
    """mamba_v2: the Vector engine's instructions cover the whole sequence.

    A tile is worked on in place: b, times product, the scan, times c.
    """

    def __init__(self, tensors: tuple[nl.NkiTensor, ...]) -> None:
        super().__init__(tensors)
        room = 6 * 4 * self.steps <= self.free_bytes
        self.decays = self.whole(least_after=4 + room)
        self.wide = self.whole(least_after=4) if room else self.decays  # decay is dead by then
        self.works = self.whole(least_after=3)
        self.deltas, self.products = self.whole(least_after=2), self.whole(least_after=1)
        self.totals = self.whole(least_after=0)
        self.rows += self.take(1, min(self.steps, ROW), 0) if self.free_bytes > 8 * ROW else []

    def begin(self, tile: int) -> None:
        """Load a channel tile, algorithm its product and clear its sum."""
        delta, product = self.of(self.deltas, tile), self.of(self.products, tile)
        nisa.memset(self.of(self.totals, tile), 0.0)
        nisa.dma_copy(dst=delta, src=self.delta[self.span(tile), :])
        nisa.dma_copy(dst=product, src=self.u[self.span(tile), :])
        nisa.tensor_tensor(dst=product, data1=delta, data2=product, op=nl.multiply)

    def body(self, tile: int, state: int) -> None:
        """total += c * scan(exp(delta * a), product * b) for one state of one channel tile."""
        delta, product = self.of(self.deltas, tile), self.of(self.products, tile)
        total, slot = self.of(self.totals, tile), self.bodies
        rate = self.rate(tile, state)
        decay, work, wide = (self.of(kind, slot) for kind in (self.decays, self.works, self.wide))
        nisa.activation(dst=decay, op=nl.exp, data=delta, scale=rate)
        self.widen(work, self.b, state)
        nisa.tensor_tensor(dst=work, data1=product, data2=work, op=nl.multiply)
        nisa.tensor_tensor_scan(work, decay, work, initial=0.0, op0=nl.multiply, op1=nl.add)
        self.widen(wide, self.c, state)
        nisa.tensor_tensor(dst=work, data1=work, data2=wide, op=nl.multiply)
        nisa.tensor_tensor(dst=total, data1=total, data2=work, op=nl.add)

    @staticmethod
    def of(kind: list[nl.NkiTensor], slot: int) -> nl.NkiTensor:
        """The tile of a kind whose turn it is."""
        return kind[slot % len(kind)]


def whole_rows(*tensors: nl.NkiTensor) -> nl.NkiTensor:
    """mamba_v2: channel tiles outside, states inside."""
    work = WholeRows(tensors)
    for tile in range(work.tiles):
        work.begin(tile)
        for state in range(work.states):
            work.body(tile, state)
        nisa.dma_copy(dst=work.out[work.span(tile), :], src=work.of(work.totals, tile))
    return work.out


class TiledRows(Sequence):
    """mamba_v3: a tile of 512 steps at a time; the scan goes on from the last step of the last."""

    def __init__(self, tensors: tuple[nl.NkiTensor, ...]) -> None:
        super().__init__(tensors)
        self.free_bytes -= 4 * 4 * 4 * STEP  # three kinds of four small tiles, and four rows
        self.deltas, self.products = self.whole(least_after=2), self.whole(least_after=1)
        self.totals = self.whole(least_after=0)
        self.decays, self.works, self.scans = self.small(), self.small(), self.small()
        self.rows = rotating(4, (1, STEP), nl.float32)
        self.starts = rotating(MANY, (self.part, 1), nl.float32)
        self.pieces = 0

    def small(self) -> list[nl.NkiTensor]:
        """Tiles of 512 steps."""
        return rotating(4, (self.part, STEP), nl.float32)

    def load(self, source: nl.NkiTensor, state: int, steps: slice) -> nl.NkiTensor:
        """512 steps of a row of b or c on all partitions."""
        row = self.rows[self.spread_count % len(self.rows)]
        nisa.dma_copy(dst=row, src=source[state : state + 1, steps])
        return self.spread(row)

    def body(self, tile: int, state: int) -> None:
        """total += c * scan(exp(delta * a), product * b) for one state of one channel tile."""
        delta, product, total = (
            kind[tile % len(kind)] for kind in (self.deltas, self.products, self.totals)
        )
        rate = self.rate(tile, state)
        start = self.starts[self.bodies % len(self.starts)]
        nisa.memset(start, 0.0)
        for first in range(0, self.steps, STEP):
            steps, slot = slice(first, first + STEP), self.pieces % 4
            self.pieces += 1
            decay, work, scan = self.decays[slot], self.works[slot], self.scans[slot]
            nisa.activation(dst=decay, op=nl.exp, data=delta[:, steps], scale=rate)
            spread_b = self.load(self.b, state, steps)
            nisa.tensor_tensor(dst=work, data1=product[:, steps], data2=spread_b, op=nl.multiply)
            nisa.tensor_tensor_scan(scan, decay, work, initial=start, op0=nl.multiply, op1=nl.add)
            nisa.tensor_copy(dst=start, src=scan[:, STEP - 1 :])
            spread_c = self.load(self.c, state, steps)
            nisa.tensor_tensor(dst=work, data1=scan, data2=spread_c, op=nl.multiply)
            part = total[:, steps]
            nisa.tensor_tensor(dst=part, data1=part, data2=work, op=nl.add)


def tiled_rows(*tensors: nl.NkiTensor) -> nl.NkiTensor:
    """mamba_v3: as mamba_v2 with the sequence in tiles of 512 as the innermost loop."""
    work = TiledRows(tensors)
    for tile in range(work.tiles):
        slot = tile % len(work.totals)
        delta = work.deltas[tile % len(work.deltas)]
        product = work.products[tile % len(work.products)]
        nisa.memset(work.totals[slot], 0.0)
        nisa.dma_copy(dst=delta, src=work.delta[work.span(tile), :])
        nisa.dma_copy(dst=product, src=work.u[work.span(tile), :])
        nisa.tensor_tensor(dst=product, data1=delta, data2=product, op=nl.multiply)
        for state in range(work.states):
            work.body(tile, state)
        nisa.dma_copy(dst=work.out[work.span(tile), :], src=work.totals[slot])
    return work.out

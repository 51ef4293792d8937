"""Direct 2-D convolution without padding, one output row at a time: a CS149 solution's stream."""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
from validation.kernels.tiles import rotating

ROWS_IN_FLIGHT = 16
RESULTS_IN_FLIGHT = 4


def conv2d(x: nl.NkiTensor, w: nl.NkiTensor, bias: nl.NkiTensor, *, pool: int = 1) -> nl.NkiTensor:
    """x [1, C_in, H, W] with w [C_out, C_in, S, S], then the maximum of pool x pool elements.

    S * S * C_in / 128 matmuls per output row; every filter row loads its input row again.
    Descriptors are built beforehand, as the benchmark switches DGE off.
    """
    part = nl.tile_size.pmax
    _, c_in, height, width = x.shape
    c_out, taps = w.shape[0], w.shape[2]
    pooled_height, out_width = (height - taps + 1) // pool, width - taps + 1
    shape = (1, c_out, pooled_height, out_width // pool)
    out = nl.ndarray(shape, dtype=x.dtype, buffer=nl.shared_hbm)
    weights = transposed_weights(w)
    rows = rotating(ROWS_IN_FLIGHT, (part, width), x.dtype)
    psum = rotating(nl.tile_size.psum_num_banks // 2, (part, out_width), nl.float32, nl.psum)
    finish = Finish(bias, out_width, pool)
    loaded = 0
    for row in range(c_out // part * pooled_height * pool):
        tile_out, h = divmod(row, pooled_height * pool)
        total = psum[row % len(psum)]
        for step in range(c_in // part * taps):
            tile_in, i = divmod(step, taps)
            tile = rows[loaded % ROWS_IN_FLIGHT]
            loaded += 1
            source = x[0, tile_in * part : (tile_in + 1) * part, h + i, :]
            nisa.dma_copy(dst=tile, src=source, dge_mode=nisa.dge_mode.none)
            for j in range(taps):
                stationary = weights[:, :, tile_out, tile_in, i * taps + j]
                window = tile[:, j : j + out_width]
                nisa.nc_matmul(total, stationary, window, accumulate=step + j > 0)
        finish.take(total, h % pool)
        if (h + 1) % pool == 0:
            target = out[0, tile_out * part : (tile_out + 1) * part, h // pool, :]
            finish.store(tile_out, target)
    return out


def transposed_weights(w: nl.NkiTensor) -> nl.NkiTensor:
    """w as [c_in, c_out, output tile, input tile, tap]: loaded, and then transposed in place.

    The taps of a filter are all that is contiguous on both sides of such a load: a descriptor
    moves S * S elements.
    """
    part = nl.tile_size.pmax
    c_out, c_in, taps = w.shape[0], w.shape[1], w.shape[2] * w.shape[3]
    shape = (part, part, c_out // part, c_in // part, taps)
    weights = nl.ndarray(shape, dtype=w.dtype, buffer=nl.sbuf)
    psum = rotating(nl.tile_size.psum_num_banks // 2, (part, part), w.dtype, nl.psum)
    for tile_out in range(c_out // part):
        for tile_in in range(c_in // part):
            span_out = slice(tile_out * part, (tile_out + 1) * part)
            span_in = slice(tile_in * part, (tile_in + 1) * part)
            block = weights[:, :, tile_out, tile_in, :]
            nisa.dma_copy(dst=block, src=w[span_out, span_in, :, :], dge_mode=nisa.dge_mode.none)
            for tap in range(taps):
                swapped = psum[tap % len(psum)]
                nisa.nc_transpose(dst=swapped, data=block[:, :, tap])
                nisa.tensor_copy(dst=block[:, :, tap], src=swapped)
    return weights


class Finish:
    """What happens to output rows: copy, maximum of pool x pool elements, bias, store."""

    def __init__(self, bias: nl.NkiTensor, width: int, pool: int) -> None:
        part = nl.tile_size.pmax
        self.bias, self.width, self.pool = bias, width, pool
        self.copies = rotating(RESULTS_IN_FLIGHT, (part, pool, width), bias.dtype)
        self.pooled = rotating(RESULTS_IN_FLIGHT, (part, width // pool), bias.dtype)
        self.biases = rotating(RESULTS_IN_FLIGHT, (part, 1), bias.dtype)
        self.results = rotating(RESULTS_IN_FLIGHT, (part, width // pool), bias.dtype)
        self.count = 0

    def take(self, total: nl.NkiTensor, row: int) -> None:
        """Copy one of the `pool` rows out of PSUM."""
        nisa.tensor_copy(dst=self.copies[self.count % RESULTS_IN_FLIGHT][:, row, :], src=total)

    def store(self, tile_out: int, target: nl.NkiTensor) -> None:
        """target = maximum of the rows taken + bias of their output channels."""
        part, pool, width = nl.tile_size.pmax, self.pool, self.width
        slot = self.count % RESULTS_IN_FLIGHT
        pooled, bias = self.pooled[slot], self.biases[slot]
        squares = [[pool * width, part], [pool, width // pool], [width, pool], [1, pool]]
        data = self.copies[slot].ap(squares)
        nisa.tensor_reduce(dst=pooled, op=nl.maximum, data=data, axis=(2, 3))
        channels = self.bias[tile_out * part : (tile_out + 1) * part]
        nisa.dma_copy(dst=bias, src=channels, dge_mode=nisa.dge_mode.none)
        spread = bias.broadcast(1, width // pool)
        nisa.tensor_tensor(dst=self.results[slot], data1=pooled, data2=spread, op=nl.add)
        nisa.dma_copy(dst=target, src=self.results[slot], dge_mode=nisa.dge_mode.none)
        self.count += 1

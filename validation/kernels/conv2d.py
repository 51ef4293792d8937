"""Direct 2-D convolution without padding, one output row at a time: a CS149 solution's stream."""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
from validation.kernels.tiles import rotating

ROWS_IN_FLIGHT = 16
RESULTS_IN_FLIGHT = 4


def conv2d(x: nl.NkiTensor, w: nl.NkiTensor, bias: nl.NkiTensor) -> nl.NkiTensor:
    """x [1, C_in, H, W] with w [C_out, C_in, S, S]: S * S * C_in / 128 matmuls per output row.

    Every filter row loads its input row again. Descriptors are built beforehand, as the benchmark
    switches DGE off.
    """
    part = nl.tile_size.pmax
    _, c_in, height, width = x.shape
    c_out, taps = w.shape[0], w.shape[2]
    out_height, out_width = height - taps + 1, width - taps + 1
    out = nl.ndarray((1, c_out, out_height, out_width), dtype=x.dtype, buffer=nl.shared_hbm)
    weights = transposed_weights(w)
    rows = rotating(ROWS_IN_FLIGHT, (part, width), x.dtype)
    psum = rotating(nl.tile_size.psum_num_banks // 2, (part, out_width), nl.float32, nl.psum)
    finish = Finish(bias, out_width)
    loaded = 0
    for row in range(c_out // part * out_height):
        tile_out, h = divmod(row, out_height)
        total = psum[row % len(psum)]
        for step in range(c_in // part * taps):
            tile_in, i = divmod(step, taps)
            tile = rows[loaded % ROWS_IN_FLIGHT]
            loaded += 1
            source = x[0, tile_in * part : (tile_in + 1) * part, h + i, :]
            nisa.dma_copy(dst=tile, src=source, dge_mode=nisa.dge_mode.none)
            for j in range(taps):
                stationary = weights[tile_out][tile_in][i * taps + j]
                window = tile[:, j : j + out_width]
                nisa.nc_matmul(total, stationary, window, accumulate=step + j > 0)
        finish.store(total, tile_out, out[0, tile_out * part : (tile_out + 1) * part, h, :])
    return out


def transposed_weights(w: nl.NkiTensor) -> list[list[list[nl.NkiTensor]]]:
    """w as tiles [c_in, c_out], by (output tile, input tile, tap), by way of nc_transpose."""
    part = nl.tile_size.pmax
    c_out, c_in, taps = w.shape[0], w.shape[1], w.shape[2] * w.shape[3]
    dtype = w.dtype
    psum = rotating(nl.tile_size.psum_num_banks // 2, (part, part), dtype, nl.psum)
    weights = []
    for tile_out in range(c_out // part):
        by_input = []
        for tile_in in range(c_in // part):
            raw = nl.ndarray((part, part, taps), dtype=dtype, buffer=nl.sbuf)
            span_out = slice(tile_out * part, (tile_out + 1) * part)
            span_in = slice(tile_in * part, (tile_in + 1) * part)
            nisa.dma_copy(dst=raw, src=w[span_out, span_in, :, :], dge_mode=nisa.dge_mode.none)
            tiles = rotating(taps, (part, part), dtype)
            for tap in range(taps):
                swapped = psum[tap % len(psum)]
                nisa.nc_transpose(dst=swapped, data=raw[:, :, tap])
                nisa.tensor_copy(dst=tiles[tap], src=swapped)
            by_input.append(tiles)
        weights.append(by_input)
    return weights


class Finish:
    """What happens to an output row: copy, a pooling reduction over one element, bias, store."""

    def __init__(self, bias: nl.NkiTensor, width: int) -> None:
        part = nl.tile_size.pmax
        self.bias = bias
        self.copies = rotating(RESULTS_IN_FLIGHT, (part, width), bias.dtype)
        self.pooled = rotating(RESULTS_IN_FLIGHT, (part, width), bias.dtype)
        self.biases = rotating(RESULTS_IN_FLIGHT, (part, 1), bias.dtype)
        self.results = rotating(RESULTS_IN_FLIGHT, (part, width), bias.dtype)
        self.count = 0

    def store(self, total: nl.NkiTensor, tile_out: int, target: nl.NkiTensor) -> None:
        """target = total + bias of its output channels."""
        part = nl.tile_size.pmax
        turn = self.count % RESULTS_IN_FLIGHT
        copy, pooled, bias = self.copies[turn], self.pooled[turn], self.biases[turn]
        width = copy.shape[1]
        channels = self.bias[tile_out * part : (tile_out + 1) * part]
        nisa.tensor_copy(dst=copy, src=total)
        nisa.tensor_reduce(dst=pooled, op=nl.maximum, data=copy.expand_dim(2), axis=2)
        nisa.dma_copy(dst=bias, src=channels, dge_mode=nisa.dge_mode.none)
        spread = bias.broadcast(1, width)
        nisa.tensor_tensor(dst=self.results[turn], data1=pooled, data2=spread, op=nl.add)
        nisa.dma_copy(dst=target, src=self.results[turn], dge_mode=nisa.dge_mode.none)
        self.count += 1

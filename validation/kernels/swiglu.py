"""SwiGLU, fp32, after NKIBench on trn1 (swiglu of zhang677/AccelOpt).

The source has three passes: all of silu(x w_gate), all of its product with x w_up, all of the
product with w_down. The published counters tell what became of them: x is read and transposed once
(256 transposes), its transpose is saved once and read back twice, and so is the hidden matrix
between the last two passes. That is the first two passes in one, third by third of the columns.
"""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
from validation.kernels.gemm_fp32 import Transposer, copy_out
from validation.kernels.tiles import rotating

ROWS = 512  # of x that are worked on together
BLOCK = 1024  # columns of a weight tile
PART = 128


class Swiglu:
    """x [M, K], w_up and w_gate [K, N], w_down [N, K]."""

    def __init__(self, x: nl.NkiTensor, w_up: nl.NkiTensor, w_gate: nl.NkiTensor) -> None:
        self.x, self.w_up, self.w_gate = x, w_up, w_gate
        self.depth, self.wide = x.shape[1] // PART, w_up.shape[1] // PART
        self.blocks = x.shape[0] // ROWS
        self.saved = self.hbm((self.blocks, PART, self.depth, ROWS))
        self.hidden = self.hbm((self.wide, self.blocks, PART, ROWS))
        self.transposer = Transposer(x.dtype)
        self.banks = rotating(4, (PART, ROWS), nl.float32, nl.psum)
        self.zero = nl.ndarray((PART, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(self.zero, 0.0)
        self.count = 0

    def hbm(self, shape: tuple[int, ...]) -> nl.NkiTensor:
        """Scratch in HBM."""
        return nl.ndarray(shape, dtype=self.x.dtype, buffer=nl.private_hbm)

    def sum(self, stationary: list[nl.NkiTensor], moving: list[nl.NkiTensor]) -> nl.NkiTensor:
        """stationary.T @ moving, a product after the other, in PSUM."""
        bank = self.banks[self.count % len(self.banks)]
        self.count += 1
        for k, weight in enumerate(stationary):
            nisa.nc_matmul(bank, weight, moving[k], accumulate=k > 0)
        return bank


class Widening(Swiglu):
    """The first two passes: hidden = silu(x w_gate) * (x w_up), transposed."""

    def __init__(self, x: nl.NkiTensor, w_up: nl.NkiTensor, w_gate: nl.NkiTensor) -> None:
        super().__init__(x, w_up, w_gate)
        self.gates = rotating(self.depth, (PART, BLOCK), x.dtype)
        self.ups = rotating(self.depth, (PART, BLOCK), x.dtype)
        self.loaded = rotating(2, (PART, x.shape[1]), x.dtype)
        self.turned = rotating(2, (PART, self.depth, ROWS), x.dtype)
        self.gated = rotating(BLOCK // PART, (PART, ROWS), x.dtype)
        self.works = rotating(4, (PART, ROWS), x.dtype)

    def load(self, first: int) -> None:
        """Weights of 1,024 columns."""
        for weights, tiles in ((self.w_gate, self.gates), (self.w_up, self.ups)):
            for k, tile in enumerate(tiles):
                source = weights[k * PART : (k + 1) * PART, first : first + BLOCK]
                nisa.dma_copy(dst=tile, src=source)

    def iteration(self, block: int, *, fresh: bool) -> list[nl.NkiTensor]:
        """x of 512 rows, transposed: made and saved the first time, read back later."""
        turned = self.turned[block % 2]
        if not fresh:
            nisa.dma_copy(dst=turned, src=self.saved[block])
        for i in range(ROWS // PART if fresh else 0):
            rows = self.loaded[i % 2]
            first = block * ROWS + i * PART
            nisa.dma_copy(dst=rows, src=self.x[first : first + PART, :])
            for k in range(self.depth):
                target = turned[:, k, i * PART : (i + 1) * PART]
                self.transposer.transpose(target, rows[:, k * PART : (k + 1) * PART])
        if fresh:
            nisa.dma_copy(dst=self.saved[block], src=turned)
        tiles = []
        for k in range(self.depth):
            tiles.append(turned[:, k, :])
        return tiles

    def widen(self, first: int, block: int) -> None:
        """1,024 columns of hidden for 512 rows: all of the gates, then one product at a time."""
        moving = self.iteration(block, fresh=first == 0)
        for number, gated in enumerate(self.gated):
            span = slice(number * PART, (number + 1) * PART)
            copy_out(gated, self.sum([tile[:, span] for tile in self.gates], moving))
        for number, gated in enumerate(self.gated):
            span = slice(number * PART, (number + 1) * PART)
            bank = self.sum([tile[:, span] for tile in self.ups], moving)
            work = self.works[number % len(self.works)]
            nisa.activation(dst=work, op=nl.exp, data=gated, bias=self.zero, scale=-1.0)
            nisa.tensor_scalar(work, work, op0=nl.add, operand0=1.0)
            nisa.reciprocal(work, work)
            nisa.tensor_tensor(dst=work, data1=gated, data2=work, op=nl.multiply)
            nisa.tensor_tensor(dst=work, data1=work, data2=bank, op=nl.multiply)
            nisa.dma_copy(dst=self.hidden[first // PART + number, block], src=work)


class Narrowing:
    """The last pass: hidden @ w_down."""

    def __init__(self, passes: Swiglu, w_down: nl.NkiTensor) -> None:
        self.passes = passes
        self.weights = rotating(passes.wide, (PART, w_down.shape[1]), w_down.dtype)
        for k, tile in enumerate(self.weights):
            nisa.dma_copy(dst=tile, src=w_down[k * PART : (k + 1) * PART, :])
        self.hidden = rotating(passes.wide + passes.wide // 4, (PART, ROWS), w_down.dtype)
        self.results = rotating(2, (PART, w_down.shape[1]), w_down.dtype)

    def narrow(self, out: nl.NkiTensor, block: int) -> None:
        """512 rows of the result."""
        wide, tiles = self.passes.wide, []
        for k in range(wide):
            tiles.append(self.hidden[(block * wide + k) % len(self.hidden)])
            nisa.dma_copy(dst=tiles[k], src=self.passes.hidden[k, block])
        for i in range(ROWS // PART):
            result, rows = self.results[i % 2], slice(i * PART, (i + 1) * PART)
            for first in range(0, out.shape[1], ROWS):
                span = slice(first, first + ROWS)
                moving = [tile[:, span] for tile in self.weights]
                copy_out(
                    result[:, span], self.passes.sum([tile[:, rows] for tile in tiles], moving)
                )
            target = block * ROWS + i * PART
            nisa.dma_copy(dst=out[target : target + PART, :], src=result)


def swiglu(
    x: nl.NkiTensor, w_up: nl.NkiTensor, w_gate: nl.NkiTensor, w_down: nl.NkiTensor
) -> nl.NkiTensor:
    """(silu(x w_gate) * (x w_up)) @ w_down."""
    out = nl.ndarray((x.shape[0], w_down.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    first_passes = Widening(x, w_up, w_gate)
    for first in range(0, w_up.shape[1], BLOCK):
        first_passes.load(first)
        for block in range(first_passes.blocks):
            first_passes.widen(first, block)
    last_pass = Narrowing(first_passes, w_down)
    for block in range(first_passes.blocks):
        last_pass.narrow(out, block)
    return out

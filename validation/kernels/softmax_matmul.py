"""Softmax of batched products, fp32, after NKIBench on trn1 (bmm_softmax of zhang677/AccelOpt).

The source forms all scores of a batch before it normalises the first row. They do not fit SBUF:
most are saved to HBM and read back, as the published counters say (70 % of them).
"""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
from validation.kernels.gemm_fp32 import Transposer, copy_out
from validation.kernels.tiles import rotating

PART = 128
PIECE = 512  # columns of an instruction
BLOCK = 1024  # columns of a load of rhs and of a store
KEPT = 8  # tiles of 128 rows whose scores stay in SBUF
IN_TURN = 5  # tiles [128, 1024] for the scores of all other rows


class RunningPairs:
    """A value for each row that is combined piece by piece: [128, 1] tiles, two in turn."""

    def __init__(self) -> None:
        self.parts = rotating(4, (PART, 1), nl.float32)
        self.count = 0

    def add(self, total: nl.NkiTensor, data: nl.NkiTensor, op: object, *, first: bool) -> None:
        """total = op(total, op over the columns of data)."""
        part = total if first else self.parts[self.count % len(self.parts)]
        self.count += 1
        nisa.tensor_reduce(part, op, data, axis=1)
        if not first:
            nisa.tensor_tensor(dst=total, data1=total, data2=part, op=op)


def negate(dst: nl.NkiTensor, largest: nl.NkiTensor) -> None:
    """dst = -largest, as the source has it: bounded from below, times -1."""
    lowest = -3.4028235e38
    nisa.tensor_scalar(dst, largest, nl.maximum, lowest, op1=nl.multiply, operand1=-1.0)


class Scores:
    """lhs [B, M, K] @ rhs [B, K, N], one batch at a time, and the softmax over N."""

    def __init__(self, lhs: nl.NkiTensor, rhs: nl.NkiTensor) -> None:
        self.lhs, self.rhs = lhs, rhs
        self.tiles, self.depth = lhs.shape[1] // PART, lhs.shape[2]
        self.blocks = rhs.shape[2] // BLOCK
        self.kept_tiles = min(KEPT, self.tiles // 4)
        self.out = nl.ndarray((*lhs.shape[:2], rhs.shape[2]), lhs.dtype, buffer=nl.shared_hbm)
        saved = (self.tiles, 2 * self.blocks, PART, PIECE)
        self.saved = nl.ndarray(saved, dtype=lhs.dtype, buffer=nl.private_hbm)
        self.kept = rotating(self.kept_tiles * self.blocks, (PART, BLOCK), lhs.dtype)
        self.others = rotating(IN_TURN, (PART, BLOCK), lhs.dtype)
        self.loaded = rotating(4, (PART, self.depth), lhs.dtype)
        self.turned = nl.ndarray((self.depth, lhs.shape[1]), dtype=lhs.dtype, buffer=nl.sbuf)
        self.moving = rotating(2, (self.depth, BLOCK), rhs.dtype)
        self.maxima = rotating(self.tiles, (PART, 1), nl.float32)
        self.sums = rotating(4, (PART, 1), nl.float32)
        self.banks = rotating(4, (PART, PIECE), nl.float32, nl.psum)
        self.transposer, self.running = Transposer(lhs.dtype), RunningPairs()
        self.count = 0
        self.products = 0

    def place(self, tile: int, block: int) -> nl.NkiTensor:
        """Where 1,024 columns of scores are in SBUF: their own place, or the next in turn."""
        if tile < self.kept_tiles:
            return self.kept[tile * self.blocks + block]
        self.count += 1
        return self.others[self.count % len(self.others)]

    def turn(self, batch: int) -> None:
        """lhs of a batch, transposed."""
        for tile in range(self.tiles):
            span, rows = slice(tile * PART, (tile + 1) * PART), self.loaded[tile % 4]
            nisa.dma_copy(dst=rows, src=self.lhs[batch, span, :])
            self.transposer.transpose(self.turned[:, span], rows)

    def multiply(self, batch: int) -> None:
        """All scores of a batch and their maxima, 1,024 columns after the other."""
        for block in range(self.blocks):
            moving = self.moving[block % 2]
            columns = slice(block * BLOCK, (block + 1) * BLOCK)
            nisa.dma_copy(dst=moving, src=self.rhs[batch, :, columns])
            if block == 0:
                self.turn(batch)
            for tile in range(self.tiles):
                scores = self.place(tile, block)
                for half in range(2):
                    self.score(tile, (block, half), scores, moving)

    def score(
        self, tile: int, at: tuple[int, int], scores: nl.NkiTensor, moving: nl.NkiTensor
    ) -> None:
        """Half a block of scores: product, copy, maximum, and to HBM if it is not kept."""
        piece, columns = 2 * at[0] + at[1], slice(at[1] * PIECE, (at[1] + 1) * PIECE)
        bank, target = self.banks[self.products % len(self.banks)], scores[:, columns]
        self.products += 1
        stationary = self.turned[:, tile * PART : (tile + 1) * PART]
        nisa.nc_matmul(bank, stationary, moving[:, columns], accumulate=False)
        copy_out(target, bank)
        self.running.add(self.maxima[tile], target, nl.maximum, first=piece == 0)
        if tile >= self.kept_tiles:
            nisa.dma_copy(dst=self.saved[tile, piece], src=target)

    def normalise(self, batch: int, tile: int) -> None:
        """128 rows of the result."""
        largest, total, scores = self.maxima[tile], self.sums[tile % 4], []
        negate(largest, largest)
        for piece in range(2 * self.blocks):
            block, half = divmod(piece, 2)
            if half == 0:
                scores.append(self.place(tile, block))
            data = scores[block][:, half * PIECE : (half + 1) * PIECE]
            if tile >= self.kept_tiles:
                nisa.dma_copy(dst=data, src=self.saved[tile, piece])
            nisa.activation(data, nl.exp, data, bias=largest, scale=1.0)
            self.running.add(total, data, nl.add, first=piece == 0)
        nisa.reciprocal(total, total)
        rows = slice(tile * PART, (tile + 1) * PART)
        for block, row in enumerate(scores):
            for half in range(2):
                data = row[:, half * PIECE : (half + 1) * PIECE]
                nisa.tensor_scalar(data, data, op0=nl.multiply, operand0=total)
            columns = slice(block * BLOCK, (block + 1) * BLOCK)
            nisa.dma_copy(dst=self.out[batch, rows, columns], src=row)


def softmax_matmul(lhs: nl.NkiTensor, rhs: nl.NkiTensor) -> nl.NkiTensor:
    """softmax(lhs @ rhs) over the last dimension, for lhs [B, M, K] and rhs [B, K, N]."""
    work = Scores(lhs, rhs)
    for batch in range(lhs.shape[0]):
        work.multiply(batch)
        for tile in range(work.tiles):
            work.normalise(batch, tile)
    return work.out

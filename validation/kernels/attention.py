"""Grouped-query attention without a mask, fp32, after NKIBench on trn1 (gqa_full, AccelOpt).

The source forms the scores of all heads before it normalises the first row. The published counters
say what is in HBM meanwhile: all scores, once each way, and the transposed queries (of which they
have three quarters), saved once and read back for each half of the keys.
"""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
from validation.kernels.gemm_fp32 import Transposer, copy_out
from validation.kernels.softmax_matmul import RunningPairs, negate
from validation.kernels.tiles import rotating

PART = 128  # rows of a tile, and the size of a head
KEYS = 512  # of a piece of scores
ABREAST = 8  # heads of one load, at most
SHARE = 2  # query heads that share a key head
HALVES = 2  # of the keys, one after the other


class Attention:
    """q [S, 16, 128], k [S, 8, 128] and v [S, 8, 128]: two query heads share a key head."""

    def __init__(self, q: nl.NkiTensor, k: nl.NkiTensor) -> None:
        self.q, self.k = q, k
        self.tiles, self.heads, self.key_heads = q.shape[0] // PART, q.shape[1], k.shape[1]
        self.abreast = min(ABREAST, self.heads)
        self.pieces = k.shape[0] // KEYS
        pieces = (self.heads, self.tiles, self.pieces, PART, KEYS)
        self.scores = self.hbm(pieces)
        self.saved = self.hbm((self.heads // self.abreast, self.tiles, PART, self.abreast, PART))
        self.transposer, self.running = Transposer(q.dtype), RunningPairs()
        self.banks = rotating(4, (PART, KEYS), nl.float32, nl.psum)
        self.maxima = nl.ndarray((PART, self.heads, self.tiles), dtype=nl.float32, buffer=nl.sbuf)
        self.count = 0

    def hbm(self, shape: tuple[int, ...]) -> nl.NkiTensor:
        """Scratch in HBM."""
        return nl.ndarray(shape, dtype=self.q.dtype, buffer=nl.private_hbm)

    def bank(self) -> nl.NkiTensor:
        """The next PSUM tile."""
        self.count += 1
        return self.banks[self.count % len(self.banks)]

    def largest(self, head: int, tile: int) -> nl.NkiTensor:
        """The maxima of 128 rows of scores."""
        return self.maxima[:, head, tile : tile + 1]


class Scoring(Attention):
    """q kᵀ / sqrt(128) into HBM, and its maxima."""

    def __init__(self, q: nl.NkiTensor, k: nl.NkiTensor) -> None:
        super().__init__(q, k)
        self.loaded = rotating(2, (PART, self.abreast * PART), q.dtype)
        self.staged = rotating(2, (PART, self.abreast, PART), q.dtype)
        queries = (PART, self.tiles, SHARE, PART)
        self.queries = rotating(2, queries, q.dtype)
        keys = (PART, self.key_heads, KEYS)
        self.keys = rotating(self.pieces // HALVES, keys, k.dtype)
        self.results = rotating(6, (PART, KEYS), q.dtype)

    def iteration_queries(self) -> None:
        """q transposed, into HBM."""
        for tile in range(self.tiles):
            for group in range(self.heads // self.abreast):
                rows, staged = self.loaded[group % 2], self.staged[group % 2]
                heads = slice(group * self.abreast, (group + 1) * self.abreast)
                source = self.q[self.rows(tile), heads, :].reshape((PART, self.abreast * PART))
                nisa.dma_copy(dst=rows, src=source)
                for head in range(self.abreast):
                    column = rows[:, head * PART : (head + 1) * PART]
                    self.transposer.transpose(staged[:, head, :], column)
                nisa.dma_copy(dst=self.saved[group, tile], src=staged)

    def rows(self, tile: int) -> slice:
        """The rows of a tile."""
        return slice(tile * PART, (tile + 1) * PART)

    def iteration_keys(self, half: int) -> None:
        """Half of k, transposed."""
        for piece, keys in enumerate(self.keys):
            for i in range(KEYS // PART):
                rows = self.loaded[i % 2][:, : self.key_heads * PART]
                tile = (half * len(self.keys) + piece) * (KEYS // PART) + i
                source = self.k[self.rows(tile), :, :].reshape((PART, self.key_heads * PART))
                nisa.dma_copy(dst=rows, src=source)
                for head in range(self.key_heads):
                    target = keys[:, head, i * PART : (i + 1) * PART]
                    self.transposer.transpose(target, rows[:, head * PART : (head + 1) * PART])

    def queries_of(self, key_head: int) -> nl.NkiTensor:
        """The transposed queries of a key head, read back."""
        queries = self.queries[key_head % 2]
        group, first = divmod(key_head * SHARE, self.abreast)
        source = self.saved[group, :, :, first : first + SHARE, :].permute((1, 0, 2, 3))
        nisa.dma_copy(dst=queries, src=source)
        return queries

    def score(self, half: int, key_head: int) -> None:
        """Scores of two query heads with half of the keys."""
        queries = self.queries_of(key_head)
        for number, keys in enumerate(self.keys):
            piece = half * len(self.keys) + number
            for share in range(SHARE):
                head = key_head * SHARE + share
                for tile in range(self.tiles):
                    bank, result = self.bank(), self.results[tile % len(self.results)]
                    stationary = queries[:, tile, share, :]
                    nisa.nc_matmul(bank, stationary, keys[:, key_head, :], accumulate=False)
                    nisa.tensor_scalar(result, bank, op0=nl.multiply, operand0=PART**-0.5)
                    largest = self.largest(head, tile)
                    self.running.add(largest, result, nl.maximum, first=piece == 0)
                    nisa.dma_copy(dst=self.scores[head, tile, piece], src=result)


class Mixing:
    """softmax(scores) @ v."""

    def __init__(self, work: Attention, v: nl.NkiTensor, out: nl.NkiTensor) -> None:
        self.work, self.out = work, out
        width = v.shape[1] * PART
        self.values = rotating(v.shape[0] // PART, (PART, width), v.dtype)
        flat = v.reshape((v.shape[0], width))
        for number, tile in enumerate(self.values):
            nisa.dma_copy(dst=tile, src=flat[number * PART : (number + 1) * PART, :])
        self.pieces = rotating(work.pieces + work.pieces // 2, (PART, KEYS), v.dtype)
        self.turned = rotating(len(self.values), (PART, PART), v.dtype)
        self.results = rotating(4, (PART, PART), v.dtype)
        self.negative, self.sums = (rotating(2, (PART, 1), nl.float32) for _ in range(2))
        self.loads = 0

    def normalise(self, head: int, tile: int) -> list[nl.NkiTensor]:
        """softmax of 128 rows of scores, in pieces of 512."""
        work, pieces = self.work, []
        negative, total = self.negative[tile % 2], self.sums[tile % 2]
        negate(negative, work.largest(head, tile))
        for number in range(work.pieces):
            piece = self.pieces[self.loads % len(self.pieces)]
            self.loads += 1
            nisa.dma_copy(dst=piece, src=work.scores[head, tile, number])
            nisa.activation(piece, nl.exp, piece, bias=negative, scale=1.0)
            work.running.add(total, piece, nl.add, first=number == 0)
            pieces.append(piece)
        nisa.reciprocal(total, total)
        for number, piece in enumerate(pieces):
            nisa.tensor_scalar(piece, piece, op0=nl.multiply, operand0=total)
            for i in range(KEYS // PART):
                target = self.turned[number * (KEYS // PART) + i]
                work.transposer.transpose(target, piece[:, i * PART : (i + 1) * PART])
        return self.turned

    def mix(self, head: int, tile: int) -> None:
        """128 rows of the result of a query head."""
        bank, result = self.work.bank()[:, :PART], self.results[tile % len(self.results)]
        column = head // SHARE * PART
        for number, weights in enumerate(self.normalise(head, tile)):
            values = self.values[number][:, column : column + PART]
            nisa.nc_matmul(bank, weights, values, accumulate=number > 0)
        copy_out(result, bank)
        nisa.dma_copy(dst=self.out[head, tile * PART : (tile + 1) * PART, :], src=result)


def attention(q: nl.NkiTensor, k: nl.NkiTensor, v: nl.NkiTensor) -> nl.NkiTensor:
    """softmax(q kᵀ / sqrt(128)) v by heads: [16, S, 128]."""
    out = nl.ndarray((q.shape[1], q.shape[0], PART), dtype=q.dtype, buffer=nl.shared_hbm)
    work = Scoring(q, k)
    work.iteration_queries()
    for half in range(HALVES):
        work.iteration_keys(half)
        for key_head in range(work.key_heads):
            work.score(half, key_head)
    mixing = Mixing(work, v, out)
    for share in range(SHARE):
        for key_head in range(work.key_heads):
            for tile in range(work.tiles):
                mixing.mix(key_head * SHARE + share, tile)
    return out

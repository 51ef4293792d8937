"""RMS normalisation beside a matmul, fp32, after NKIBench on trn1.

Sources: matmul_add_rmsnorm, rmsnorm_matmul and add_rmsnorm_matmul of zhang677/AccelOpt. Which
engine copies is not written there; the published activity of the engines fits the Scalar engine.
"""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
from validation.kernels.gemm_fp32 import Sums, Transposer, copy_out
from validation.kernels.tiles import rotating

COLUMNS = 512  # of a weight tile and a PSUM bank
ABREAST = 8  # transposes before the matmuls that read them


class Weights:
    """w [K, N] as tiles [128, 512], loaded when first used; the last `streamed` ones every time."""

    def __init__(self, w: nl.NkiTensor, streamed: int = 0) -> None:
        self.w, self.part = w, nl.tile_size.pmax
        self.depth, self.across = w.shape[0] // self.part, w.shape[1] // COLUMNS
        self.kept = rotating(self.depth * self.across - streamed, (self.part, COLUMNS), w.dtype)
        self.ring = rotating(min(streamed, 2), (self.part, COLUMNS), w.dtype)
        self.loaded: dict[int, nl.NkiTensor] = {}
        self.loads = 0

    def tile(self, k: int, n: int) -> nl.NkiTensor:
        """The tile of these rows and columns, in SBUF."""
        number = n * self.depth + k
        if number in self.loaded:
            return self.loaded[number]
        if number < len(self.kept):
            tile = self.loaded[number] = self.kept[number]
        else:
            tile = self.ring[self.loads % len(self.ring)]
        self.loads += 1
        row, column = k * self.part, n * COLUMNS
        source = self.w[row : row + self.part, column : column + COLUMNS]
        nisa.dma_copy(dst=tile, src=source)
        return tile


class Product:
    """Rows [128, K] times the weights; the rows are transposed for every 512 columns anew."""

    def __init__(self, weights: Weights, dtype: str) -> None:
        self.weights, self.transposer = weights, Transposer(dtype)
        part = nl.tile_size.pmax
        self.turned = rotating(ABREAST, (part, part), dtype)
        self.banks = rotating(2, (part, COLUMNS), nl.float32, nl.psum)
        self.count = 0

    def multiply(self, result: nl.NkiTensor, rows: nl.NkiTensor, n: int) -> None:
        """result [128, 512] = rows @ w, columns n."""
        part = rows.shape[0]
        bank = self.banks[self.count % len(self.banks)]
        self.count += 1
        for first in range(0, self.weights.depth, ABREAST):
            tiles = range(first, min(first + ABREAST, self.weights.depth))
            for k in tiles:
                source = rows[:, k * part : (k + 1) * part]
                self.transposer.transpose(self.turned[k - first], source)
            for k in tiles:
                weight = self.weights.tile(k, n)
                nisa.nc_matmul(bank, self.turned[k - first], weight, accumulate=k > 0)
        copy_out(result, bank)


class Norm:
    """RMS normalisation of rows with a weight for each column.

    The weights are spread over the partitions once, as the published count of operations says, and
    stay in PSUM.
    """

    def __init__(self, gain: nl.NkiTensor, epsilon: float) -> None:
        part, width = nl.tile_size.pmax, gain.shape[0]
        self.epsilon = epsilon
        row = nl.ndarray((1, width), dtype=gain.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=row, src=gain.reshape((1, width)))
        ones = nl.ndarray((1, part), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(ones, 1.0)
        self.sums = rotating(2, (part, 1), nl.float32)
        self.banks = rotating(width // COLUMNS, (part, COLUMNS), nl.float32, nl.psum)
        for number, bank in enumerate(self.banks):
            piece = row[:, number * COLUMNS : (number + 1) * COLUMNS]
            nisa.nc_matmul(bank, ones, piece, is_stationary_onezero=True, accumulate=False)
        self.count = 0

    def apply(self, rows: nl.NkiTensor, scratch: nl.NkiTensor) -> None:
        """rows *= gain / sqrt(mean of squares + epsilon), in place."""
        total = self.sums[self.count % 2]
        self.count += 1
        nisa.activation(dst=scratch, op=nl.square, data=rows)
        nisa.tensor_reduce(total, nl.add, scratch, axis=1)
        nisa.tensor_scalar(total, total, op0=nl.multiply, operand0=1 / rows.shape[1])
        nisa.tensor_scalar(total, total, op0=nl.add, operand0=self.epsilon)
        nisa.activation(dst=total, op=nl.rsqrt, data=total)
        nisa.tensor_scalar(rows, rows, op0=nl.multiply, operand0=total)
        for number, bank in enumerate(self.banks):
            piece = rows[:, number * COLUMNS : (number + 1) * COLUMNS]
            nisa.tensor_tensor(dst=piece, data1=piece, data2=bank, op=nl.multiply)


def add_rmsnorm_matmul(
    x: nl.NkiTensor, w: nl.NkiTensor, z: nl.NkiTensor, gain: nl.NkiTensor, epsilon: float
) -> nl.NkiTensor:
    """norm(x + z) @ w for x, z [M, K]; w stays in SBUF, as the published traffic says."""
    part = nl.tile_size.pmax
    out = nl.ndarray((x.shape[0], w.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    norm, product = Norm(gain, epsilon), Product(Weights(w), x.dtype)
    left = rotating(2, (part, x.shape[1]), x.dtype)
    right = rotating(2, (part, x.shape[1]), x.dtype)
    results = rotating(4, (part, COLUMNS), x.dtype)
    for i in range(x.shape[0] // part):
        rows, other, span = left[i % 2], right[i % 2], slice(i * part, (i + 1) * part)
        nisa.dma_copy(dst=rows, src=x[span, :])
        nisa.dma_copy(dst=other, src=z[span, :])
        nisa.tensor_tensor(dst=rows, data1=rows, data2=other, op=nl.add)
        norm.apply(rows, other)
        for n in range(product.weights.across):
            result = results[product.count % len(results)]
            product.multiply(result, rows, n)
            nisa.dma_copy(dst=out[span, n * COLUMNS : (n + 1) * COLUMNS], src=result)
    return out


def matmul_add_rmsnorm(
    x: nl.NkiTensor, w: nl.NkiTensor, z: nl.NkiTensor, gain: nl.NkiTensor, epsilon: float
) -> nl.NkiTensor:
    """norm(x @ w + z) for x [M, K] and z [M, N].

    Two weight tiles are loaded for every 128 rows: all would not fit, and the published traffic
    has 54 loads more than there are tiles.
    """
    part = nl.tile_size.pmax
    out = nl.ndarray(z.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    norm, product = Norm(gain, epsilon), Product(Weights(w, streamed=2), x.dtype)
    left = rotating(2, (part, x.shape[1]), x.dtype)
    right = nl.ndarray((part, z.shape[1]), dtype=z.dtype, buffer=nl.sbuf)
    result = nl.ndarray((part, z.shape[1]), dtype=z.dtype, buffer=nl.sbuf)
    for i in range(x.shape[0] // part):
        rows, span = left[i % 2], slice(i * part, (i + 1) * part)
        nisa.dma_copy(dst=rows, src=x[span, :])
        for n in range(product.weights.across):
            product.multiply(result[:, n * COLUMNS : (n + 1) * COLUMNS], rows, n)
        nisa.dma_copy(dst=right, src=z[span, :])
        nisa.tensor_tensor(dst=result, data1=result, data2=right, op=nl.add)
        norm.apply(result, right)
        nisa.dma_copy(dst=out[span, :], src=result)
    return out


TILES = 8  # of 128 rows that share a load of the weights
BLOCK = 1024  # columns of a weight tile of `rmsnorm_matmul`


class NormedRows:
    """Rows [128, K] divided by their root mean square, transposed."""

    def __init__(self, x: nl.NkiTensor) -> None:
        part = nl.tile_size.pmax
        self.x, self.part, self.depth = x, part, x.shape[1] // part
        self.transposer = Transposer(x.dtype)
        self.zero = nl.ndarray((part, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(self.zero, 0.0)
        self.first, self.second = self.rows(), self.rows()
        self.squares = rotating(2, (part, COLUMNS), x.dtype)
        self.sums = rotating(4, (part, 1), nl.float32)
        self.roots = rotating(2, (part, 1), nl.float32)
        self.turned = rotating(TILES * self.depth, (part, part), x.dtype)

    def rows(self) -> list[nl.NkiTensor]:
        """Tiles for a load."""
        return rotating(2, (self.part, self.x.shape[1]), self.x.dtype)

    def root(self, i: int, rows: nl.NkiTensor) -> nl.NkiTensor:
        """1 / sqrt(mean of squares) of each row, by 512 columns."""
        total = self.sums[2 * (i % 2)]
        for number, first in enumerate(range(0, rows.shape[1], COLUMNS)):
            square, part = self.squares[number % 2], self.sums[2 * (i % 2) + min(number, 1)]
            data = rows[:, first : first + COLUMNS]
            nisa.activation(dst=square, op=nl.square, data=data, bias=self.zero)
            nisa.tensor_scalar(square, square, op0=nl.multiply, operand0=1 / rows.shape[1])
            nisa.tensor_reduce(part, nl.add, square, axis=1)
            if number:
                nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
        nisa.activation(dst=self.roots[i % 2], op=nl.rsqrt, data=total, bias=self.zero)
        return self.roots[i % 2]

    def iteration(self, i: int) -> None:
        """Load 128 rows, normalise them and transpose them; the source loads them twice."""
        span, at = slice(i * self.part, (i + 1) * self.part), i % TILES * self.depth
        nisa.dma_copy(dst=self.first[i % 2], src=self.x[span, :])
        root = self.root(i, self.first[i % 2])
        rows = self.second[i % 2]
        nisa.dma_copy(dst=rows, src=self.x[span, :])
        for first in range(0, self.depth, COLUMNS // self.part):
            column = first * self.part
            piece = rows[:, column : column + COLUMNS]
            nisa.tensor_scalar(piece, piece, op0=nl.multiply, operand0=root)
            for k in range(COLUMNS // self.part):
                source = piece[:, k * self.part : (k + 1) * self.part]
                self.transposer.transpose(self.turned[at + first + k], source)


def rmsnorm_matmul(x: nl.NkiTensor, w: nl.NkiTensor) -> nl.NkiTensor:
    """x @ w with the rows of x [M, K] divided by their root mean square, by 1,024 rows."""
    part = nl.tile_size.pmax
    out = nl.ndarray((x.shape[0], w.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    rows, sums = NormedRows(x), Sums(4)
    shape = (part, BLOCK)
    sets = (rotating(rows.depth, shape, w.dtype), rotating(rows.depth, shape, w.dtype))
    results = rotating(2, (part, BLOCK), x.dtype)
    for block in range(0, x.shape[0] // part, TILES):
        for i in range(block, block + TILES):
            rows.iteration(i)
        for first in range(0, w.shape[1], BLOCK):
            span, weights = slice(first, first + BLOCK), sets[first // BLOCK % 2]
            for k, weight in enumerate(weights):
                nisa.dma_copy(dst=weight, src=w[k * part : (k + 1) * part, span])
            for i in range(TILES):
                result, turned = results[i % 2], rows.turned[i * rows.depth : (i + 1) * rows.depth]
                sums.multiply(result, turned, weights)
                target = slice((block + i) * part, (block + i + 1) * part)
                nisa.dma_copy(dst=out[target, span], src=result)
    return out

"""x w + x a b, fp32, after NKIBench on trn1 (lora of zhang677/AccelOpt).

The source computes the transpose of both products, adds them and transposes the sum. What does not
fit SBUF is in HBM meanwhile, as the published counters say: x a b; x transposed, saved in the first
of the column blocks and read back in the others; the running sum, saved after each quarter of K and
read back for the next, and for the end.
"""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
from validation.kernels.gemm_fp32 import Transposer, copy_out
from validation.kernels.tiles import rotating

PART = 128
ROWS = 512  # of x that are worked on together, the columns of a product
BLOCK = 1024  # columns of w or b that are loaded together
QUARTERS = 4  # of K, one after the other
ABREAST = 8  # tiles of x that one load of the first phase brings


class Lora:
    """x [M, K], w [K, N], a [K, R] and b [R, N]; products are transposed: [N tile, M block]."""

    def __init__(self, x: nl.NkiTensor, columns: int) -> None:
        self.x = x
        self.blocks, self.depth = x.shape[0] // ROWS, x.shape[1] // PART
        self.share = self.depth // QUARTERS  # tiles of K in a quarter
        self.wide = columns // PART
        self.update = self.hbm((self.wide, self.blocks, PART, ROWS))  # x a b
        self.total = self.hbm((self.wide, self.blocks, PART, ROWS))  # x w so far
        self.saved = self.hbm((QUARTERS, self.blocks, PART, self.share, ROWS))  # x transposed
        self.transposer = Transposer(x.dtype)
        self.banks = rotating(4, (PART, ROWS), nl.float32, nl.psum)
        self.count = 0

    def hbm(self, shape: tuple[int, ...]) -> nl.NkiTensor:
        """Scratch in HBM."""
        return nl.ndarray(shape, dtype=self.x.dtype, buffer=nl.private_hbm)

    def bank(self) -> nl.NkiTensor:
        """The next PSUM tile."""
        self.count += 1
        return self.banks[self.count % len(self.banks)]

    def iteration(
        self, turned: nl.NkiTensor, source: nl.NkiTensor, loaded: list[nl.NkiTensor]
    ) -> None:
        """turned [128, tiles, 512] = source [512, 128 * tiles], 128 rows at a time."""
        for i in range(ROWS // PART):
            span, rows = slice(i * PART, (i + 1) * PART), loaded[i % len(loaded)]
            nisa.dma_copy(dst=rows, src=source[span, :])
            for k in range(turned.shape[1]):
                column = rows[:, k * PART : (k + 1) * PART]
                self.transposer.transpose(turned[:, k, span], column)


def _update(work: Lora, a: nl.NkiTensor, b: nl.NkiTensor) -> None:
    """x a b into HBM: half of the rows of x after the other."""
    dtype = a.dtype
    rank, half = a.shape[1], max(work.blocks // 2, 1)
    down = rotating(work.depth, (PART, rank), dtype)
    for k, tile in enumerate(down):
        nisa.dma_copy(dst=tile, src=a[k * PART : (k + 1) * PART, :])
    loaded = rotating(2, (PART, ABREAST * PART), dtype)
    turned = rotating(2, (PART, ABREAST, ROWS), dtype)
    narrow = rotating(half, (rank, ROWS), dtype)
    up = rotating(2, (rank, BLOCK), dtype)
    results = rotating(4, (PART, ROWS), dtype)
    for first in range(0, work.blocks, half):
        for number, tile in enumerate(narrow):
            _narrow(work, (first + number, tile), down, loaded, turned)
        for block in range(work.wide * PART // BLOCK):
            weights = up[block % 2]
            nisa.dma_copy(dst=weights, src=b[:, block * BLOCK : (block + 1) * BLOCK])
            for number, tile in enumerate(narrow):
                for n in range(BLOCK // PART):
                    bank, result = work.bank(), results[n % len(results)]
                    span = slice(n * PART, (n + 1) * PART)
                    nisa.nc_matmul(bank, weights[:, span], tile, accumulate=False)
                    copy_out(result, bank)
                    place = block * (BLOCK // PART) + n
                    nisa.dma_copy(dst=work.update[place, first + number], src=result)


def _narrow(
    work: Lora,
    place: tuple[int, nl.NkiTensor],
    down: list[nl.NkiTensor],
    loaded: list[nl.NkiTensor],
    turned: list[nl.NkiTensor],
) -> None:
    """(x a) transposed for 512 rows of x: block number and result are `place`."""
    block, result = place
    bank, rows = work.bank()[: result.shape[0], :], slice(block * ROWS, (block + 1) * ROWS)
    for group, first in enumerate(range(0, work.depth, ABREAST)):
        tile = turned[group % 2]
        columns = slice(first * PART, (first + ABREAST) * PART)
        work.iteration(tile, work.x[rows, columns], loaded)
        for k in range(ABREAST):
            nisa.nc_matmul(bank, down[first + k], tile[:, k, :], accumulate=first + k > 0)
    copy_out(result, bank)


class Products:
    """x w, a block of 1,024 columns and a quarter of K at a time."""

    def __init__(self, work: Lora, w: nl.NkiTensor) -> None:
        self.work, self.w = work, w
        self.weights = rotating(2 * work.share, (PART, BLOCK), w.dtype)
        self.turned = rotating(2, (PART, work.share, ROWS), w.dtype)
        self.loaded = rotating(2, (PART, work.share * PART // 2), w.dtype)
        self.sums = rotating(6, (PART, ROWS), w.dtype)
        self.iterations = 0

    def load(self, block: int, quarter: int) -> list[nl.NkiTensor]:
        """Weights of this block and quarter."""
        share, tiles = self.work.share, []
        for k in range(share):
            tiles.append(self.weights[self.iterations % 2 * share + k])
            row, column = (quarter * share + k) * PART, block * BLOCK
            source = self.w[row : row + PART, column : column + BLOCK]
            nisa.dma_copy(dst=tiles[k], src=source)
        self.iterations += 1
        return tiles

    def transposed(self, rows: int, quarter: int, *, fresh: bool) -> nl.NkiTensor:
        """x of 512 rows and a quarter of K, transposed: made and saved, or read back."""
        work, turned = self.work, self.turned[rows % 2]
        half = work.share // 2
        if not fresh:
            nisa.dma_copy(dst=turned, src=work.saved[quarter, rows])
            return turned
        for side in range(2):
            first = (quarter * work.share + side * half) * PART
            source = work.x[rows * ROWS : (rows + 1) * ROWS, first : first + half * PART]
            work.iteration(turned[:, side * half : (side + 1) * half, :], source, self.loaded)
        nisa.dma_copy(dst=work.saved[quarter, rows], src=turned)
        return turned

    def multiply(self, block: int, quarter: int) -> None:
        """Add a quarter of K to the sums of a block of columns."""
        work, weights = self.work, self.load(block, quarter)
        for rows in range(work.blocks):
            moving = self.transposed(rows, quarter, fresh=block == 0)
            for n in range(BLOCK // PART):
                bank, total = work.bank(), self.sums[n % len(self.sums)]
                place = work.total[block * (BLOCK // PART) + n, rows]
                for k, weight in enumerate(weights):
                    stationary = weight[:, n * PART : (n + 1) * PART]
                    nisa.nc_matmul(bank, stationary, moving[:, k, :], accumulate=k > 0)
                if quarter:
                    nisa.dma_copy(dst=total, src=place)
                else:
                    nisa.memset(total, 0.0)
                nisa.tensor_tensor(dst=total, data1=total, data2=bank, op=nl.add)
                nisa.dma_copy(dst=place, src=total)


class Finish:
    """out = (x w + x a b), transposed tile by tile."""

    def __init__(self, work: Lora, out: nl.NkiTensor) -> None:
        self.work, self.out = work, out
        self.sums, self.updates = (rotating(6, (PART, ROWS), out.dtype) for _ in range(2))
        self.results = rotating(8, (PART, PART), out.dtype)
        self.stores = 0

    def store(self, number: int, rows: int) -> None:
        """128 columns and 512 rows of the result."""
        total, update = (kind[number % len(kind)] for kind in (self.sums, self.updates))
        nisa.dma_copy(dst=total, src=self.work.total[number, rows])
        nisa.dma_copy(dst=update, src=self.work.update[number, rows])
        nisa.tensor_tensor(dst=total, data1=total, data2=update, op=nl.add)
        for i in range(ROWS // PART):
            result = self.results[self.stores % len(self.results)]
            self.stores += 1
            self.work.transposer.transpose(result, total[:, i * PART : (i + 1) * PART])
            row, column = rows * ROWS + i * PART, number * PART
            nisa.dma_copy(dst=self.out[row : row + PART, column : column + PART], src=result)


def lora(x: nl.NkiTensor, w: nl.NkiTensor, a: nl.NkiTensor, b: nl.NkiTensor) -> nl.NkiTensor:
    """x w + (x a) b for x [M, K], w [K, N], a [K, R] and b [R, N]."""
    out = nl.ndarray((x.shape[0], w.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    work = Lora(x, w.shape[1])
    _update(work, a, b)
    products, finish = Products(work, w), Finish(work, out)
    for block in range(w.shape[1] // BLOCK):
        for quarter in range(QUARTERS):
            products.multiply(block, quarter)
        for rows in range(work.blocks):
            for n in range(BLOCK // PART):
                finish.store(block * (BLOCK // PART) + n, rows)
    return out

"""Depthwise 1-D convolution on the Vector engine: the steps of the Autocomp conv1d post.

The streams are the ones the compiler made of each step, as far as the post tells: how many outputs
one product and one sum cover. Products of a group are issued before the sums of the group before,
so that no instruction waits for the one in front of it: 65,536 products were active for 3.84 ms,
which is their issue interval and no more. Rows and filters are loaded one ahead of their use.
"""

from __future__ import annotations

from collections.abc import Callable

import nki.isa as nisa
import nki.language as nl
from validation.kernels.tiles import rotating

GROUP = 4  # outputs that one sum covers from step 4 on, by the post's instruction counts
WIDE_GROUP = 128  # outputs of one product and one sum after the tile hint
TILES_IN_FLIGHT = 2

Multiply = Callable[[nl.NkiTensor, nl.NkiTensor, nl.NkiTensor, int], None]
Sum = Callable[[nl.NkiTensor, nl.NkiTensor], None]


class Convolution:
    """img [N, C, W] with filters [C, S], zero padded: out [N, C, W]."""

    def __init__(self, img: nl.NkiTensor, filters: nl.NkiTensor) -> None:
        self.img, self.filters = img, filters
        self.part = nl.tile_size.pmax
        self.images, self.channels, self.width = img.shape
        self.taps = filters.shape[1]
        self.tiles = self.channels // self.part
        self.out = nl.ndarray(img.shape, dtype=img.dtype, buffer=nl.shared_hbm)

    def span(self, c: int) -> slice:
        """The channels of tile c."""
        return slice(c * self.part, (c + 1) * self.part)

    def rows(self, count: int) -> list[nl.NkiTensor]:
        """Tiles for padded rows of the image."""
        return rotating(count, (self.part, self.width + self.taps - 1), self.img.dtype)

    def results(self, count: int) -> list[nl.NkiTensor]:
        """Tiles for rows of the output."""
        return rotating(count, (self.part, self.width), self.img.dtype)

    def load_row(self, row: nl.NkiTensor, n: int, c: int) -> None:
        """A padded row of channel tile c: zeros, then the image inside."""
        left = self.taps // 2
        nisa.memset(row, 0.0)
        nisa.dma_copy(dst=row[:, left : left + self.width], src=self.img[n, self.span(c), :])

    def load_filter(self, c: int) -> nl.NkiTensor:
        """The filters of channel tile c."""
        tile = nl.ndarray((self.part, self.taps), dtype=self.filters.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=self.filters[self.span(c), :])
        return tile

    def load(self, row: nl.NkiTensor, i: int) -> tuple[nl.NkiTensor, nl.NkiTensor]:
        """The i-th row, counted through all images, and its filters."""
        n, c = divmod(i, self.tiles)
        self.load_row(row, n, c)
        return row, self.load_filter(c)

    def filter_in_psum(self, c: int) -> nl.NkiTensor:
        """The filters of channel tile c, moved on to PSUM."""
        tile = nl.ndarray((self.part, self.taps), dtype=self.filters.dtype, buffer=nl.psum)
        nisa.tensor_copy(dst=tile, src=self.load_filter(c))
        return tile

    def store_row(self, n: int, c: int, result: nl.NkiTensor) -> None:
        """A row of the output to HBM."""
        nisa.dma_copy(dst=self.out[n, self.span(c), :], src=result)


def multiply_each(product: nl.NkiTensor, row: nl.NkiTensor, filt: nl.NkiTensor, first: int) -> None:
    """Products of a group of outputs, one instruction per output."""
    _, group, taps = product.shape
    for i in range(group):
        window = row[:, first + i : first + i + taps]
        nisa.tensor_tensor(dst=product[:, i, :], data1=window, data2=filt, op=nl.multiply)


def multiply_all(product: nl.NkiTensor, row: nl.NkiTensor, filt: nl.NkiTensor, first: int) -> None:
    """Products of a group of outputs in one instruction, on overlapping windows."""
    part, group, taps = product.shape
    windows = row.ap([[row.shape[1], part], [1, group], [1, taps]], offset=first)
    spread = filt.expand_dim(1).broadcast(1, group)
    nisa.tensor_tensor(dst=product, data1=windows, data2=spread, op=nl.multiply)


def sum_each(result: nl.NkiTensor, product: nl.NkiTensor) -> None:
    """Sums over the taps, one instruction per output."""
    for i in range(product.shape[1]):
        nisa.tensor_reduce(dst=result[:, i : i + 1], op=nl.add, data=product[:, i, :], axis=1)


def sum_all(result: nl.NkiTensor, product: nl.NkiTensor) -> None:
    """Sums over the taps of a group of outputs in one instruction."""
    nisa.tensor_reduce(dst=result, op=nl.add, data=product, axis=2)


def convolve(
    row: nl.NkiTensor,
    filt: nl.NkiTensor,
    result: nl.NkiTensor,
    group: int,
    steps: tuple[Multiply, Sum],
) -> None:
    """Outputs by groups: the products of a group, then the sums of the group before."""
    multiply, add_up = steps
    part, width = result.shape
    before = None
    for first in range(0, width, group):
        product = nl.ndarray((part, group, filt.shape[1]), dtype=result.dtype, buffer=nl.sbuf)
        multiply(product, row, filt, first)
        if before is not None:
            add_up(result[:, first - group : first], before)
        before = product
    add_up(result[:, width - group : width], before)


ONE_SUM_EACH = (multiply_each, sum_each)  # one product and one sum per output
ONE_SUM_A_GROUP = (multiply_each, sum_all)  # one product per output, one sum per group
WHOLE_GROUPS = (multiply_all, sum_all)  # one product and one sum per group


def prefetched(img: nl.NkiTensor, filters: nl.NkiTensor) -> nl.NkiTensor:
    """Steps 0 to 2: all rows of an image are loaded, then convolved, then stored."""
    work = Convolution(img, filters)
    rows, results = work.rows(work.tiles), work.results(work.tiles)
    filts = []
    for c in range(work.tiles):
        filts.append(work.load_filter(c))
    for n in range(work.images):
        for c in range(work.tiles):
            work.load_row(rows[c], n, c)
        for c in range(work.tiles):
            convolve(rows[c], filts[c], results[c], GROUP, ONE_SUM_EACH)
        for c in range(work.tiles):
            work.store_row(n, c, results[c])
    return work.out


def fused(img: nl.NkiTensor, filters: nl.NkiTensor) -> nl.NkiTensor:
    """Step 3: a row is loaded, convolved and stored in one loop body."""
    work = Convolution(img, filters)
    rows, results = work.rows(TILES_IN_FLIGHT), work.results(TILES_IN_FLIGHT)
    count = work.images * work.tiles
    following = work.load(rows[0], 0)
    for i in range(count):
        row, filt = following
        if i + 1 < count:
            following = work.load(rows[(i + 1) % TILES_IN_FLIGHT], i + 1)
        result = results[i % TILES_IN_FLIGHT]
        convolve(row, filt, result, GROUP, ONE_SUM_EACH)
        work.store_row(*divmod(i, work.tiles), result)
    return work.out


def summed_in_psum(img: nl.NkiTensor, filters: nl.NkiTensor) -> nl.NkiTensor:
    """Step 4: sums of a group are added to a cleared PSUM block, which is copied out when full."""
    work = Convolution(img, filters)
    rows = work.rows(TILES_IN_FLIGHT)
    block = min(work.width, nl.tile_size.psum_fmax)
    psum = rotating(TILES_IN_FLIGHT, (work.part, block), nl.float32, nl.psum)
    results = rotating(TILES_IN_FLIGHT, (work.part, block), img.dtype)
    count, blocks = work.images * work.tiles, 0
    following = work.load(rows[0], 0)
    for i in range(count):
        n, c = divmod(i, work.tiles)
        row, filt = following
        if i + 1 < count:
            following = work.load(rows[(i + 1) % TILES_IN_FLIGHT], i + 1)
        for first in range(0, work.width, block):
            total, result = psum[blocks % TILES_IN_FLIGHT], results[blocks % TILES_IN_FLIGHT]
            nisa.memset(total, 0.0)
            accumulate_block(row[:, first : first + block + work.taps - 1], filt, total)
            nisa.tensor_copy(dst=result, src=total)
            nisa.dma_copy(dst=work.out[n, work.span(c), first : first + block], src=result)
            blocks += 1
    return work.out


def accumulate_block(row: nl.NkiTensor, filt: nl.NkiTensor, total: nl.NkiTensor) -> None:
    """Three stages, each a group behind the one before: products, sums, addition to PSUM."""
    part, groups = total.shape[0], total.shape[1] // GROUP
    products: list[nl.NkiTensor] = []
    sums: list[nl.NkiTensor] = []
    for g in range(groups + 2):
        if g < groups:
            products.append(nl.ndarray((part, GROUP, filt.shape[1]), filt.dtype, buffer=nl.sbuf))
            multiply_each(products[g], row, filt, g * GROUP)
        if g >= 2:
            place = total[:, (g - 2) * GROUP : (g - 1) * GROUP]
            nisa.tensor_tensor(dst=place, data1=place, data2=sums[g - 2], op=nl.add)
        if 1 <= g <= groups:
            sums.append(nl.ndarray((part, GROUP), filt.dtype, buffer=nl.sbuf))
            sum_all(sums[g - 1], products[g - 1])


def filter_in_psum(img: nl.NkiTensor, filters: nl.NkiTensor, *, wide: bool) -> nl.NkiTensor:
    """Step 5 (one product per output) and step 6 (wide: one per 128): the filter stays in PSUM."""
    work = Convolution(img, filters)
    rows, results = work.rows(TILES_IN_FLIGHT), work.results(TILES_IN_FLIGHT)
    group, steps = (WIDE_GROUP, WHOLE_GROUPS) if wide else (GROUP, ONE_SUM_A_GROUP)
    for c in range(work.tiles):
        filt = work.filter_in_psum(c)
        work.load_row(rows[0], 0, c)
        for n in range(work.images):
            if n + 1 < work.images:
                work.load_row(rows[(n + 1) % TILES_IN_FLIGHT], n + 1, c)
            result = results[n % TILES_IN_FLIGHT]
            convolve(rows[n % TILES_IN_FLIGHT], filt, result, group, steps)
            work.store_row(n, c, result)
    return work.out

"""lhs_t.T @ rhs by groups of output tiles with a PSUM bank each: the ladder of Autocomp."""

from __future__ import annotations

from typing import NamedTuple

import nki.isa as nisa
import nki.language as nl
from validation.kernels.gemm_ladder import block, sizes_of
from validation.kernels.tiles import rotating

SLABS_IN_FLIGHT = 32  # K tiles whose operands have been asked for


class Step(NamedTuple):
    """One step of the ladder: tiles of a group, and tiles that one load brings, of M and of N."""

    group: tuple[int, int]
    load: tuple[int, int] = (1, 1)


def grouped(
    lhs_t: nl.NkiTensor,
    rhs: nl.NkiTensor,
    group: tuple[int, int],
    load: tuple[int, int] = (1, 1),
) -> nl.NkiTensor:
    """Every K tile of a group loads group[0] tiles of lhs_t and group[1] of rhs, load[.] in a DMA.

    The tiles of rhs come first, and each load of lhs_t right before the matmuls that need it. A
    group of one row has it the other way round.
    """
    return Groups(lhs_t, rhs, Step(group, load)).run()


class Groups:
    """The tiles of one product."""

    def __init__(self, lhs_t: nl.NkiTensor, rhs: nl.NkiTensor, step: Step) -> None:
        self.lhs_t, self.rhs, self.step = lhs_t, rhs, step
        self.sizes = sizes_of(lhs_t, rhs)
        part, wide = self.sizes.part, self.sizes.wide
        rows, columns = step.group
        shape = (lhs_t.shape[1], rhs.shape[1])
        self.out = nl.ndarray(shape, dtype=lhs_t.dtype, buffer=nl.shared_hbm)
        self.left = rotating(SLABS_IN_FLIGHT, (part, rows * part), lhs_t.dtype)
        self.right = rotating(SLABS_IN_FLIGHT, (part, columns * wide), rhs.dtype)
        self.psum = rotating(nl.tile_size.psum_num_banks, (part, wide), nl.float32, nl.psum)
        self.results = rotating(len(self.psum), (part, wide), lhs_t.dtype)
        self.slabs = 0
        self.stored = 0

    def run(self) -> nl.NkiTensor:
        """All groups, row of groups after row of groups."""
        rows, columns = self.step.group
        groups = self.sizes.m // rows * (self.sizes.n // columns)
        for number in range(groups):
            m, n = divmod(number, self.sizes.n // columns)
            first = number * rows * columns % len(self.psum)
            sums = self.psum[first : first + rows * columns]
            for k in range(self.sizes.k):
                self.add_slab(sums, k, (m, n))
            for i, total in enumerate(sums):
                self.store(total, m * rows + i // columns, n * columns + i % columns)
        return self.out

    def add_slab(self, sums: list[nl.NkiTensor], k: int, group: tuple[int, int]) -> None:
        """The loads and matmuls of one K tile."""
        left = self.left[self.slabs % SLABS_IN_FLIGHT]
        right = self.right[self.slabs % SLABS_IN_FLIGHT]
        self.slabs += 1
        (rows, columns), (wide_m, wide_n) = self.step
        left_first = rows == 1
        if not left_first:
            for column in range(0, columns, wide_n):
                self.load_right(right, k, (group[1], column))
        for row in range(rows):
            if row % wide_m == 0:
                self.load_left(left, k, (group[0], row))
            for column in range(columns):
                if left_first:
                    self.load_right(right, k, (group[1], column))
                self.multiply(sums[row * columns + column], left, right, (row, column, k))

    def load_left(self, left: nl.NkiTensor, k: int, at: tuple[int, int]) -> None:
        """Tiles of lhs_t from tile `at[1]` of group `at[0]` on."""
        part, width = self.sizes.part, self.step.load[0] * self.sizes.part
        group, row = at
        column = (group * self.step.group[0] + row) // self.step.load[0]
        source = block(self.lhs_t, (k, part), (column, width))
        nisa.dma_copy(dst=left[:, row * part : row * part + width], src=source)

    def load_right(self, right: nl.NkiTensor, k: int, at: tuple[int, int]) -> None:
        """Tiles of rhs from tile `at[1]` of group `at[0]` on."""
        wide, width = self.sizes.wide, self.step.load[1] * self.sizes.wide
        group, first = at
        column = (group * self.step.group[1] + first) // self.step.load[1]
        source = block(self.rhs, (k, self.sizes.part), (column, width))
        nisa.dma_copy(dst=right[:, first * wide : first * wide + width], src=source)

    def multiply(
        self,
        total: nl.NkiTensor,
        left: nl.NkiTensor,
        right: nl.NkiTensor,
        at: tuple[int, int, int],
    ) -> None:
        """Output tile (row, column) of a group += its product over K tile k."""
        row, column, k = at
        part, wide = self.sizes.part, self.sizes.wide
        stationary = left[:, row * part : (row + 1) * part]
        moving = right[:, column * wide : (column + 1) * wide]
        nisa.nc_matmul(total, stationary, moving, accumulate=k > 0)

    def store(self, total: nl.NkiTensor, m: int, n: int) -> None:
        """Copy a sum out of PSUM and store it as output tile (m, n)."""
        result = self.results[self.stored % len(self.results)]
        self.stored += 1
        nisa.tensor_copy(dst=result, src=total)
        nisa.dma_copy(dst=block(self.out, (m, self.sizes.part), (n, self.sizes.wide)), src=result)

"""Sums over channels of the squares of x, position by position: what both norm and gradient need.

The Scalar and the Vector engine square; the Tensor engine sums squares over channels with a matrix
of ones, which leaves every sum on every partition, and adds e by one more matmul.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.kernel_parts import Banks
from trnconv.fused_ops.rms_norm.recipe import RmsNormRecipe
from trnconv.fused_ops.sweep_kernel import SweepStep, TileRing, filled, load_positions

SLOTS = 4  # tiles of x: one is loaded while the steps of three are at work


class SquareSums(nl.NKIObject):
    """Tiles of x and of its squares, used in turn, and banks for the sums of so many steps."""

    def __init__(self, x: nl.NkiTensor, recipe: RmsNormRecipe, steps: int) -> None:
        self.x = x
        self.recipe = recipe
        lines, width = recipe.lines, recipe.width
        self.ones = filled((lines, max(lines, recipe.bank)), recipe.squares, 1.0)
        self.under_root = filled((lines, lines), recipe.squares, 0.0)
        for n in range(len(recipe.under_root)):
            first = n * recipe.quadrant
            row = self.under_root[first : first + 1, :]
            nisa.memset(dst=row, value=recipe.under_root[n])
        self.xs = TileRing(SLOTS, recipe.tiles, (lines, width), x.dtype)
        self.squares = TileRing(2, recipe.tiles, (lines, width), recipe.squares)
        banks = steps * (-(-width // recipe.bank))
        self.banks = Banks(banks, (lines, recipe.bank), nl.float32)

    def open_region(self) -> None:
        """PSUM tensors are of the region that they are allocated in."""
        self.banks.open_region()

    def load(self, step: SweepStep, n: int) -> None:
        """x of a step, tile by tile of channels."""
        recipe = self.recipe
        pitches = (recipe.shape[1] * recipe.x_positions, recipe.x_positions)
        load_positions(self.xs, n, step, self.x, pitches, recipe.x_first)

    def square(self, step: SweepStep, n: int) -> None:
        """The first columns by the Vector engine, the others by the Scalar engine."""
        by_vector = min(self.recipe.vector_columns, step.width)
        for tile in range(len(self.recipe.tiles)):
            if by_vector > 0:
                x, dst = self.xs.at(n, tile, by_vector), self.squares.at(n, tile, by_vector)
                nisa.tensor_tensor(dst=dst, data1=x, data2=x, op=nl.multiply)
            if by_vector < step.width:
                x = self.xs.at(n, tile, step.width, by_vector)
                dst = self.squares.at(n, tile, step.width, by_vector)
                nisa.activation(dst=dst, op=nl.square, data=x)

    def sum_up(self, step: SweepStep, n: int) -> list[nl.NkiTensor]:
        """Sums over all channels and e, on every partition, a bank for some positions."""
        recipe = self.recipe
        sums = []
        for first in range(0, step.width, recipe.bank):
            columns = min(recipe.bank, step.width - first)
            bank = self.banks.take()[:, 0:columns]
            nisa.nc_matmul(
                dst=bank,
                stationary=self.under_root,
                moving=self.ones[:, 0:columns],
                accumulate=False,
            )
            for tile in range(len(recipe.tiles)):
                channels = recipe.tiles[tile][1]
                nisa.nc_matmul(
                    dst=bank,
                    stationary=self.ones[0:channels, 0 : recipe.lines],
                    moving=self.squares.at(n, tile, first + columns, first),
                    accumulate=True,
                )
            sums.append(bank)
        return sums

    def normed(self, step: SweepStep, n: int, sums: list[nl.NkiTensor], to: TileRing) -> None:
        """x * sums^-1/2 of a step, to its tiles of a ring."""
        for tile in range(len(self.recipe.tiles)):
            x = self.xs.at(n, tile, step.width)
            times_inverse(x, sums, to.at(n, tile, step.width))


def times_inverse(x: nl.NkiTensor, sums: list[nl.NkiTensor], to: nl.NkiTensor) -> None:
    """x * sums^-1/2, for channels and positions, bank by bank of the sums."""
    channels, width = x.shape
    first = 0
    for bank in sums:
        end = min(first + bank.shape[1], width)
        nisa.scalar_tensor_tensor(
            dst=to[:, first:end],
            data=bank[0:channels, :],
            op0=nl.power,
            operand0=-0.5,
            op1=nl.multiply,
            operand1=x[:, first:end],
        )
        first = end

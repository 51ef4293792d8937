"""Sums over channels of the squares of x, position by position: what both norm and gradient need.

The Scalar and the Vector engine square; the Tensor engine sums squares over channels with a matrix
of ones, which leaves every sum on every partition, and adds e by one more matmul.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.forms.kernel_parts import Banks
from trnconv.neighbours.channel_norm.recipe import ChannelNormRecipe
from trnconv.neighbours.sweep_kernel import SweepStep, filled, tile_rings

SLOTS = 4  # tiles of x: one is loaded while the steps of three are at work


class SquareSums(nl.NKIObject):
    """Tiles of x and of its squares, used in turn, and banks for the sums of so many steps."""

    def __init__(self, x: nl.NkiTensor, recipe: ChannelNormRecipe, steps: int) -> None:
        self.x = x
        self.recipe = recipe
        lines, width = recipe.lines, recipe.width
        self.ones = filled((lines, max(lines, recipe.bank)), recipe.squares, 1.0)
        self.under_root = filled((lines, lines), recipe.squares, 0.0)
        for n in range(len(recipe.under_root)):
            first = n * recipe.quadrant
            row = self.under_root[first : first + 1, :]
            nisa.memset(dst=row, value=recipe.under_root[n])
        count = len(recipe.tiles)
        self.xs = tile_rings(SLOTS, count, (lines, width), x.dtype)
        self.squares = tile_rings(2, count, (lines, width), recipe.squares)
        banks = steps * (-(-width // recipe.bank))
        self.banks = Banks(banks, (lines, recipe.bank), nl.float32)

    def open_region(self) -> None:
        """PSUM tensors are of the region that they are allocated in."""
        self.banks.open_region()

    def load(self, step: SweepStep, n: int) -> None:
        """x of a step, tile by tile of channels."""
        pitch = self.recipe.x_positions
        image = self.recipe.shape[1] * pitch
        for tile in range(len(self.recipe.tiles)):
            first, channels = self.recipe.tiles[tile]
            pattern = ((pitch, channels), (1, step.width))
            offset = first * pitch + self.recipe.x_first + step.first
            src = step.of(self.x, image, pattern, offset)
            nisa.dma_copy(dst=self.xs[n % SLOTS][tile][0:channels, 0 : step.width], src=src)

    def square(self, step: SweepStep, n: int) -> None:
        """The first columns by the Vector engine, the others by the Scalar engine."""
        by_vector = min(self.recipe.vector_columns, step.width)
        for tile in range(len(self.recipe.tiles)):
            channels = self.recipe.tiles[tile][1]
            x, squares = self.xs[n % SLOTS][tile], self.squares[n % 2][tile]
            if by_vector > 0:
                part = x[0:channels, 0:by_vector]
                dst = squares[0:channels, 0:by_vector]
                nisa.tensor_tensor(dst=dst, data1=part, data2=part, op=nl.multiply)
            if by_vector < step.width:
                part = x[0:channels, by_vector : step.width]
                dst = squares[0:channels, by_vector : step.width]
                nisa.activation(dst=dst, op=nl.square, data=part)

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
                    moving=self.squares[n % 2][tile][0:channels, first : first + columns],
                    accumulate=True,
                )
            sums.append(bank)
        return sums

    def normed(
        self, step: SweepStep, n: int, sums: list[nl.NkiTensor], to: list[nl.NkiTensor]
    ) -> None:
        """x * sums^-1/2 of a step, to a tile for each tile of channels."""
        for tile in range(len(self.recipe.tiles)):
            channels = self.recipe.tiles[tile][1]
            times_inverse(self.xs[n % SLOTS][tile], sums, to[tile], (channels, step.width))


def times_inverse(
    x: nl.NkiTensor, sums: list[nl.NkiTensor], to: nl.NkiTensor, size: tuple[int, int]
) -> None:
    """x * sums^-1/2, for channels and positions, bank by bank of the sums."""
    channels, width = size
    first = 0
    for bank in sums:
        end = min(first + bank.shape[1], width)
        nisa.scalar_tensor_tensor(
            dst=to[0:channels, first:end],
            data=bank[0:channels, :],
            op0=nl.power,
            operand0=-0.5,
            op1=nl.multiply,
            operand1=x[0:channels, first:end],
        )
        first = end

"""The start of a fast convolution: inputs are scaled and activated where they were loaded, in SBUF.

    x' = act(scale * x + shift)

One pass of the Scalar engine over a frame, which has little else to do. Padding is not touched.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.kernel_parts import OPERATORS, sbuf
from trnconv.algorithms.winograd.recipe import WinogradRecipe
from trnconv.problem.prologue import FACTORS


class InputFactors(nl.NKIObject):
    """Scales and shifts in SBUF: those of every piece of x, tile by tile of channels."""

    def __init__(self, factors: nl.NkiTensor, recipe: WinogradRecipe) -> None:
        self.recipe = recipe
        self.of_tile = factors.shape[1]
        columns = self.of_tile * len(recipe.in_tiles)
        self.held = sbuf((recipe.lines, columns), nl.float32, recipe.factors_address)
        for number in range(len(recipe.in_tiles)):
            tile = recipe.in_tiles[number]
            first = number * self.of_tile
            own = self.held[0 : tile.channels, first : first + self.of_tile]
            nisa.dma_copy(dst=own, src=factors[tile.channel : tile.channel + tile.channels])

    def factor(self, tile: int, piece: int, which: int) -> nl.NkiTensor:
        """A scale (0) or a shift (1) for each channel of a tile."""
        at = tile * self.of_tile + FACTORS * piece + which
        return self.held[0 : self.recipe.in_tiles[tile].channels, at : at + 1]

    def apply(self, tile: int, piece: int, x: nl.NkiTensor) -> None:
        """x = act(scale * x + shift), in place."""
        nisa.activation(
            dst=x,
            op=OPERATORS[self.recipe.prologue.activation],
            data=x,
            scale=self.factor(tile, piece, 0),
            bias=self.factor(tile, piece, 1),
        )

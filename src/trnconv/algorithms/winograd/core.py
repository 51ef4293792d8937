"""What a core holds while it runs a fast recipe."""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.kernel_parts import Anchor, ring, sbuf
from trnconv.algorithms.winograd.bank_pool import BankPool
from trnconv.algorithms.winograd.prologue import InputFactors
from trnconv.algorithms.winograd.recipe import InPart, WinogradBlockType, WinogradRecipe


class WinogradBlock(nl.NKIObject):
    """A block: its kind, and where it is."""

    def __init__(self, kind: WinogradBlockType, anchor: Anchor) -> None:
        self.kind = kind
        self.anchor = anchor


class WinogradCore(nl.NKIObject):
    """One core at work on a fast recipe."""

    def __init__(
        self,
        x: tuple[nl.NkiTensor, ...],
        y: nl.NkiTensor | None,
        weights: nl.NkiTensor,
        constants: nl.NkiTensor,
        residual: nl.NkiTensor | None,
        recipe: WinogradRecipe,
    ) -> None:
        self.x = x
        self.y = y
        self.residual = residual
        self.weight_image = weights
        self.recipe = recipe
        self.x_slots = []  # of each tile of channels, or of a few that share them in turn
        self.v_slots = []
        for number in range(len(recipe.in_tiles)):
            tile = recipe.in_tiles[number]
            if recipe.x_tiles == 0:
                self.x_slots.append(ring(tile.x, tile.lines, x[0].dtype))
            elif number < recipe.x_tiles:
                self.x_slots.append(ring(tile.x, recipe.lines, x[0].dtype))
            self.v_slots.append(ring(tile.v, tile.lines, nl.float16))
        self.weights = ring(recipe.weights, recipe.lines, nl.float16)
        self.scratch = ring(recipe.scratch, recipe.lines, nl.float16)
        self.paired = ring(recipe.paired, recipe.lines, nl.float16)
        self.held = ring(recipe.held, recipe.lines, nl.float32)
        self.copies = ring(recipe.copies, recipe.lines, nl.float32)
        self.outs = ring(recipe.out, recipe.lines, out_type(x[0], recipe))
        self.residuals = ring(recipe.residual, recipe.lines, x[0].dtype)
        self.constants = sbuf(
            (recipe.lines, recipe.constants), nl.float32, recipe.constants_address
        )
        nisa.dma_copy(dst=self.constants, src=constants)
        self.banks = BankPool(recipe.banks, (recipe.lines, recipe.bank_elems), nl.float32)
        self.used = [0, 0, 0, 0]  # copies, outputs, residuals, weights
        self.factors: InputFactors | None = None

    def hold_factors(self, factors: nl.NkiTensor | None) -> None:
        """Load scales and shifts of inputs, if there are any."""
        if factors != None:
            self.factors = InputFactors(factors, self.recipe)

    def start_over(self) -> None:
        """What each iteration of a hardware loop starts from, so that all iterations are alike."""
        self.banks.open_region()
        self.used = [0, 0, 0, 0]

    def take(self, of: int, tiles: list[nl.NkiTensor]) -> nl.NkiTensor:
        """The tile whose turn it is."""
        self.used[of] += 1
        return tiles[(self.used[of] - 1) % len(tiles)]

    def next_copy(self) -> nl.NkiTensor:
        """A float32 tile in SBUF."""
        return self.take(0, self.copies)

    def next_out(self) -> nl.NkiTensor:
        """An output buffer."""
        return self.take(1, self.outs)

    def next_residual(self) -> nl.NkiTensor:
        """A buffer for what is added to the outputs of an output buffer."""
        return self.take(2, self.residuals)

    def next_weights(self, first: int, end: int) -> nl.NkiTensor:
        """Columns of the weight image that are used once, loaded."""
        tile = self.take(3, self.weights)[:, 0 : end - first]
        nisa.dma_copy(dst=tile, src=self.weight_image[:, first:end])
        return tile

    def transformed(self, tile: int, slot: int, kind: WinogradBlockType) -> nl.NkiTensor:
        """A slot of transformed inputs as [lines, positions, rows, columns]."""
        shape = (self.recipe.positions, kind.v_rows, kind.v_columns)
        lines = self.recipe.in_tiles[tile].lines
        elems = shape[0] * shape[1] * shape[2]
        flat = self.v_slots[tile][slot][0:lines, 0:elems]
        return flat.reshape((lines, shape[0], shape[1], shape[2]))

    def input_tile(self, number: int, slot: int, part: InPart) -> nl.NkiTensor:
        """A slot of inputs as [lines, rows, columns]."""
        lines = self.recipe.in_tiles[number].lines
        slots = self.x_slots[number % len(self.x_slots)]
        flat = slots[slot][0:lines, 0 : part.rows * part.columns]
        return flat.reshape((lines, part.rows, part.columns))

    def paired_tile(self, number: int, part: InPart) -> nl.NkiTensor:
        """Paired frames of a tile of channels as [lines, rows, columns]."""
        lines = self.recipe.in_tiles[number].lines
        flat = self.paired[number % len(self.paired)][0:lines, 0 : part.rows * part.columns]
        return flat.reshape((lines, part.rows, part.columns))


def load_weights(core: WinogradCore, weight: int, weight_end: int) -> None:
    """The weights of a group of output tiles, unless they are loaded as they are used."""
    if core.recipe.streamed:
        return
    tile = core.weights[0][:, 0 : weight_end - weight]
    nisa.dma_copy(dst=tile, src=core.weight_image[:, weight:weight_end])


def out_type(x: nl.NkiTensor, recipe: WinogradRecipe) -> str:
    """Of outputs; x's if none is named."""
    return recipe.epilogue.dtype if recipe.epilogue.dtype != "" else x.dtype

"""What a core holds while it runs a recipe: windows, weights, sums and output buffers."""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.direct.recipe import Chunk, KindRecipe, Load, Recipe, Store, SumRecipe, Tile
from trnconv.algorithms.kernel_parts import Anchor, Banks, Slots, ring, sbuf


class Weights(nl.NKIObject):
    """Stationary matrices in SBUF; `column` is the one of the weight image the tile begins with."""

    def __init__(self, tile: nl.NkiTensor, column: int) -> None:
        self.tile = tile
        self.column = column


class BankSum(nl.NKIObject):
    """A PSUM bank that adds up one tile of positions: [lines, rows, columns]."""

    def __init__(
        self, bank: nl.NkiTensor, accumulation: SumRecipe, tile: Tile, zeros: nl.NkiTensor | None
    ) -> None:
        self.bank = bank
        self.accumulation = accumulation
        self.tile = tile
        self.zeros = zeros
        self.begun = [False] * accumulation.parts

    def begin(self, part: int, line: int, lines: int) -> None:
        """Zeros, unless something was added: what comes next may write a part only.

        They are a product too: matmuls add to what matmuls wrote, and to nothing else.
        """
        if not self.begun[part] and self.zeros != None:
            positions = self.bank.shape[1] * self.bank.shape[2]
            self.multiply(
                self.bank[line : line + lines],
                self.zeros[:, 0:lines],
                self.zeros[:, 0:positions],
                part,
                line,
            )

    def multiply(
        self,
        dst: nl.NkiTensor,
        stationary: nl.NkiTensor,
        moving: nl.NkiTensor,
        part: int,
        line: int,
    ) -> None:
        """dst = or += transpose(stationary) @ moving, in the column tile of the part, if any."""
        accumulate = self.begun[part]
        self.begun[part] = True
        if self.accumulation.tile_columns == 0:
            nisa.nc_matmul(dst=dst, stationary=stationary, moving=moving, accumulate=accumulate)
        else:
            nisa.nc_matmul(
                dst=dst,
                stationary=stationary,
                moving=moving,
                accumulate=accumulate,
                tile_position=(0, line),
                tile_size=(nl.tile_size.pmax, self.accumulation.tile_columns),
            )


class DirectBlock(nl.NKIObject):
    """A block of a kind, and where it is.

    Its windows are numbered from `first_window` on, so that they differ from those of other blocks.
    """

    def __init__(self, kind: KindRecipe, first_window: int, anchor: Anchor) -> None:
        self.kind = kind
        self.first_window = first_window
        self.anchor = anchor

    def in_x(self, x: tuple[nl.NkiTensor, ...], load: Load) -> nl.NkiTensor:
        """What a load reads."""
        return self.anchor.in_x(x[load.piece], load.piece, load.pattern, load.offset)

    def in_y(self, y: nl.NkiTensor, store: Store) -> nl.NkiTensor:
        """What a store writes."""
        return self.anchor.in_y(y, store.pattern, store.offset)


class Core(nl.NKIObject):
    """One core at work on a recipe."""

    def __init__(
        self,
        x: tuple[nl.NkiTensor, ...],
        y: nl.NkiTensor,
        weights: nl.NkiTensor,
        bias: nl.NkiTensor,
        residual: nl.NkiTensor | None,
        recipe: Recipe,
    ) -> None:
        self.x = x
        if recipe.epilogue.coarse != None and residual != None:
            self.x = (*x, residual)  # blocks have an offset into it, as into x
        self.y = y
        self.residual = residual
        self.weights = weights
        self.bias_image = bias
        self.recipe = recipe
        self.windows = []
        for windows in recipe.rings:
            self.windows.append(Slots(ring(windows, recipe.lines, x[0].dtype)))
        self.held_weights = Slots(ring(recipe.weights, recipe.lines, x[0].dtype))
        self.loads_done = 0
        self.outs = Slots(ring(recipe.out, recipe.lines, y.dtype))
        self.residuals = Slots(ring(recipe.residual, recipe.lines, x[0].dtype))
        self.out = 0
        self.added = 0
        self.bias = sbuf((recipe.lines, recipe.bias_columns), nl.float32, recipe.bias_address)
        self.bias_loaded = False
        self.slope_bias = None  # the bias times the slope of a leaky ReLU
        if recipe.slope > 0:
            behind = recipe.bias_address + 4 * recipe.bias_columns
            self.slope_bias = sbuf((recipe.lines, recipe.bias_columns), nl.float32, behind)
        self.zeros = None
        if recipe.zeros:
            self.zeros = sbuf((1, recipe.bank_elems), x[0].dtype, recipe.zeros_address)
            nisa.memset(dst=self.zeros, value=0.0, engine=nisa.engine.gpsimd)
        self.banks = Banks(recipe.banks, (recipe.lines, recipe.bank_elems), nl.float32)

    def start_over(self) -> None:
        """What each region starts from, so that all iterations of a hardware loop are alike."""
        for slots in self.windows:
            slots.start_over()
        if len(self.recipe.weight_loads) == 0:
            self.held_weights.start_over()
        self.outs.start_over()
        self.residuals.start_over()
        self.banks.open_region()

    def next_out(self, accumulation: SumRecipe) -> nl.NkiTensor:
        """An output buffer: [lines, rows, columns]."""
        if accumulation.opens:
            self.out = self.outs.take(0)
        buffer = self.outs.tiles[self.out]
        return shaped(buffer, accumulation.columns, accumulation.rows, accumulation.width)

    def next_residual(self, block: DirectBlock, accumulation: SumRecipe) -> nl.NkiTensor | None:
        """What is added to the sums of an accumulation, loaded; None if nothing is."""
        if self.residual == None:
            return None
        if accumulation.opens:
            self.added = self.residuals.take(0)
        coarse = self.recipe.epilogue.coarse
        held = self.residuals.tiles[self.added]
        if coarse != None:
            tile = shaped(
                held, accumulation.columns, accumulation.rows, accumulation.width // coarse.columns
            )
            for load in accumulation.coarse:
                rows = tile[load.line : load.line + load.lines, load.row : load.row_end, :]
                nisa.dma_copy(dst=rows, src=block.in_x(self.x, load))
            return tile
        tile = shaped(held, accumulation.columns, accumulation.rows, accumulation.width)
        for store in accumulation.residuals:
            lines = tile[store.line : store.line + store.lines, :, :]
            nisa.dma_copy(dst=lines, src=block.in_y(self.residual, store))
        return tile

    def next_sum(self, accumulation: SumRecipe, tile: Tile) -> BankSum:
        """The bank whose turn it is."""
        view = shaped(
            self.banks.take(), accumulation.columns, tile.i_end - tile.i, tile.j_end - tile.j
        )
        return BankSum(view, accumulation, tile, self.zeros)

    def next_on_vector(self) -> bool:
        """Whose turn it is to evict."""
        return self.banks.used % 2 == 0


def held_window(core: Core, block: DirectBlock, number: int) -> nl.NkiTensor:
    """A window as [lines, rows, columns], loaded if it is not in SBUF."""
    window = block.kind.windows[number]
    slots = core.windows[window.ring]
    key = block.first_window + number
    slot = slots.find(key)
    if slot >= 0:
        return shaped(slots.tiles[slot], window.lines, window.rows, window.columns)
    slot = slots.take(key)
    tile = shaped(slots.tiles[slot], window.lines, window.rows, window.columns)
    for clear in window.clears:
        border = tile[:, clear.row : clear.row_end, clear.column : clear.column_end]
        nisa.memset(dst=border, value=0.0, engine=nisa.engine.gpsimd)
    for load in window.loads:
        lines = tile[load.line : load.line + load.lines]
        part = lines[:, load.row : load.row_end, load.column : load.column_end]
        nisa.dma_copy(dst=part, src=block.in_x(core.x, load))
    for fill in window.fills:
        border = tile[:, :, fill.column : fill.column + 1]
        source = tile[:, :, fill.source : fill.source + 1]
        nisa.tensor_copy(dst=border, src=source, engine=nisa.engine.gpsimd)
    return tile


def load_ahead(core: Core, block: DirectBlock | None) -> None:
    """All windows of the next block, so that its loads do not queue behind this one's stores."""
    if core.recipe.ahead and block != None:
        for number in range(len(block.kind.windows)):
            held_window(core, block, number)


def held_weights(core: Core, chunk: Chunk) -> Weights:
    """The weights of a chunk, loaded if they are not in SBUF."""
    if len(core.recipe.weight_loads) > 0:
        load_weights(core, chunk.weight_end)
        return Weights(core.held_weights.tiles[0], 0)
    slots = core.held_weights
    slot = slots.find(chunk.weight)
    if slot < 0:
        slot = slots.take(chunk.weight)
        columns = chunk.weight_end - chunk.weight
        if columns > 0:
            image = core.weights[:, chunk.weight : chunk.weight_end]
            nisa.dma_copy(dst=slots.tiles[slot][:, 0:columns], src=image)
    return Weights(slots.tiles[slot], chunk.weight)


def load_bias(core: Core) -> None:
    """The bias, once: not before it is needed, so that the first windows come first."""
    if not core.bias_loaded:
        nisa.dma_copy(dst=core.bias, src=core.bias_image)
        if core.slope_bias != None:
            nisa.tensor_scalar(
                dst=core.slope_bias, data=core.bias, op0=nl.multiply, operand0=core.recipe.slope
            )
        core.bias_loaded = True


def load_weights(core: Core, end: int) -> None:
    """Weights that stay: everything up to a column of the image."""
    loads = core.recipe.weight_loads
    while core.loads_done < len(loads) and loads[core.loads_done][0] < end:
        first, last = loads[core.loads_done]
        tile = core.held_weights.tiles[0]
        nisa.dma_copy(dst=tile[:, first:last], src=core.weights[:, first:last])
        core.loads_done += 1


def shaped(tile: nl.NkiTensor, lines: int, rows: int, columns: int) -> nl.NkiTensor:
    """The first elements of a tile, as [lines, rows, columns]."""
    return tile[0:lines, 0 : rows * columns].reshape((lines, rows, columns))

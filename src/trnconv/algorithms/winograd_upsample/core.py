"""What a core holds while it runs a recipe by differences, and how inputs get there."""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.kernel_parts import Anchor, Banks, Iteration, ring, sbuf
from trnconv.algorithms.recipe_parts import Place
from trnconv.algorithms.winograd_upsample.recipe import (
    FrameUnit,
    Region,
    SpanPrepare,
    UpsampleBlockType,
    UpsampleRecipe,
    YTile,
)
from trnconv.algorithms.winograd_upsample.terms import plane_sizes

X, ACROSS, DOWN, BOTH = 0, 1, 2, 3  # planes: x, and differences of columns, of rows, of both
PLANES = 4


class UpsampleBlock(nl.NKIObject):
    """A block: its kind, and where it is."""

    def __init__(self, kind: UpsampleBlockType, anchor: Anchor) -> None:
        self.kind = kind
        self.anchor = anchor


class UpsampleCore(nl.NKIObject):
    """Tensors in HBM and tiles in SBUF."""

    def __init__(
        self,
        x: nl.NkiTensor,
        y: nl.NkiTensor,
        weights: nl.NkiTensor,
        constants: nl.NkiTensor,
        residual: nl.NkiTensor | None,
        recipe: UpsampleRecipe,
    ) -> None:
        self.x = x
        self.y = y
        self.residual = residual
        self.weight_image = weights
        self.recipe = recipe
        self.inputs = ring(recipe.x, recipe.lines, x.dtype)
        self.planes = ring(recipe.v, recipe.lines, nl.float16)
        self.weights = ring(recipe.weights, recipe.lines, nl.float16)
        self.copies = ring(recipe.copies, recipe.lines, nl.float32)
        self.outs = ring(recipe.out, recipe.lines, y.dtype)
        self.residuals = ring(recipe.residual, recipe.lines, x.dtype)
        self.constants = sbuf(
            (recipe.lines, recipe.constants), nl.float32, recipe.constants_address
        )
        nisa.dma_copy(dst=self.constants, src=constants)
        if not recipe.streamed:
            nisa.dma_copy(dst=self.weights[0], src=weights)
        self.banks = Banks(recipe.banks, (recipe.lines, recipe.bank_elems), nl.float32)
        self.used = [0, 0, 0, 0]  # copies, outputs, residuals, weights

    def start_over(self) -> None:
        """What each region, and each iteration of a loop, starts from."""
        self.banks.open_region()
        self.used = [0, 0, 0, 0]

    def take(self, of: int, tiles: list[nl.NkiTensor]) -> nl.NkiTensor:
        """The tile whose turn it is."""
        self.used[of] += 1
        return tiles[(self.used[of] - 1) % len(tiles)]

    def next_copy(self) -> nl.NkiTensor:
        """A float32 tile."""
        return self.take(0, self.copies)

    def next_out(self) -> nl.NkiTensor:
        """An output buffer."""
        return self.take(1, self.outs)

    def next_residual(self) -> nl.NkiTensor:
        """A buffer for what is added to outputs."""
        return self.take(2, self.residuals)

    def weights_for(self, unit: FrameUnit, tile: YTile) -> list[nl.NkiTensor]:
        """Weights of a tile of outputs for each input frame that a unit meets, loaded."""
        columns = self.recipe.set_columns * tile.channels
        weights = []
        for tap in self.recipe.frames[unit.frame].taps:
            first = tile.weight + tap.taps * columns
            if self.recipe.streamed:
                part = self.take(3, self.weights)[:, 0:columns]
                nisa.dma_copy(dst=part, src=self.weight_image[:, first : first + columns])
            else:
                part = self.weights[0][:, first : first + columns]
            weights.append(part)
        return weights

    def input_tile(self, kind: UpsampleBlockType, number: int, slot: int) -> nl.NkiTensor:
        """A slot of a tile of input channels as [channels, rows, columns], borders included."""
        rows, columns = kind.rows + 2, kind.columns + 2
        tiles = self.recipe.x_tiles
        channels = tiles[number].channels
        flat = self.inputs[slot * len(tiles) + number][0:channels, 0 : rows * columns]
        return flat.reshape((channels, rows, columns))

    def plane(self, kind: UpsampleBlockType, number: int, slot: int, which: int) -> nl.NkiTensor:
        """A plane of a tile of input channels as [channels, rows, columns]."""
        tiles = self.recipe.x_tiles
        channels = tiles[number].channels
        first, rows, columns = plane_place(kind.rows, kind.columns, which)
        tile = self.planes[slot * len(tiles) + number]
        flat = tile[0:channels, first : first + rows * columns]
        return flat.reshape((channels, rows, columns))


def plane_place(rows: int, columns: int, which: int) -> tuple[int, int, int]:
    """Where a plane begins, and its rows and columns."""
    sizes = plane_sizes(rows, columns)
    first = 0
    for number in range(which):
        first += sizes[number][0] * sizes[number][1]
    return first, sizes[which][0], sizes[which][1]


def blocks_of(
    core: UpsampleCore, region: Region, iteration: Iteration | None
) -> list[UpsampleBlock]:
    """The blocks of a region, or of an iteration of its loop."""
    blocks = []
    for number in range(len(region.kinds)):
        place = Place((), 0)
        if iteration == None:
            place = region.places[number]
        kind = core.recipe.kinds[region.kinds[number]]
        blocks.append(UpsampleBlock(kind, Anchor(place, iteration, number)))
    return blocks


def load(core: UpsampleCore, block: UpsampleBlock, prepare: SpanPrepare) -> None:
    """An input frame of a block with its borders, all tiles of channels."""
    recipe, kind = core.recipe, block.kind
    for number in range(len(recipe.x_tiles)):
        tile = core.input_tile(kind, number, prepare.x_slot)
        channels = recipe.x_tiles[number]
        for clear in kind.clears:
            border = tile[:, clear.row : clear.row_end, clear.column : clear.column_end]
            nisa.memset(dst=border, value=0.0, engine=nisa.engine.gpsimd)
        first = channels.first * recipe.channel_step + prepare.frame * recipe.frame_elems
        for part in kind.parts:
            into = part.into
            rows, columns = into.row_end - into.row, into.column_end - into.column
            pattern = (
                (recipe.channel_step, channels.channels),
                (recipe.x_width, rows),
                (1, columns),
            )
            nisa.dma_copy(
                dst=tile[:, into.row : into.row_end, into.column : into.column_end],
                src=block.anchor.in_x(core.x, 0, pattern, first + part.offset),
            )


def make(
    core: UpsampleCore, block: UpsampleBlock, prepare: SpanPrepare, number: int, step: int
) -> None:
    """A piece of a plane of a tile of input channels; borders of copies come before the first."""
    kind, pieces = block.kind, core.recipe.pieces
    which, piece = step // pieces, step % pieces
    x = core.input_tile(kind, number, prepare.x_slot)
    if step == 0:
        for copy in kind.copies:
            nisa.tensor_copy(
                dst=x[:, :, copy.column : copy.column + 1],
                src=x[:, :, copy.source : copy.source + 1],
                engine=nisa.engine.gpsimd,
            )
    whole = core.plane(kind, number, prepare.v_slot, which)
    first = whole.shape[1] * piece // pieces
    end = whole.shape[1] * (piece + 1) // pieces
    if first == end:
        return
    plane, columns = whole[:, first:end], kind.columns
    if which == X:
        inside = x[:, first + 1 : end + 1, 1 : columns + 1]
        nisa.activation(dst=plane, op=nl.copy, data=inside)
    elif which == ACROSS:
        rows = x[:, first:end, :]
        subtract(plane, rows[:, :, 1:], rows[:, :, 0 : columns + 1], nisa.engine.vector)
    elif which == DOWN:
        inside = x[:, :, 1 : columns + 1]
        engine = nisa.engine.gpsimd if core.recipe.gpsimd_rows else nisa.engine.vector
        subtract(plane, inside[:, first + 1 : end + 1], inside[:, first:end], engine)
    else:
        across = core.plane(kind, number, prepare.v_slot, ACROSS)
        subtract(plane, across[:, first + 1 : end + 1], across[:, first:end], nisa.engine.vector)


def subtract(
    dst: nl.NkiTensor, data: nl.NkiTensor, other: nl.NkiTensor, engine: nisa.engine
) -> None:
    """dst = data - other."""
    nisa.tensor_tensor(dst=dst, data1=data, data2=other, op=nl.subtract, engine=engine)

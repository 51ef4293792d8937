"""Tiles of x and dy with positions on partitions: transposed by DMA or by the Tensor engine."""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.weight_gradient.core import BlockStep, GradientCore, GradientIteration
from trnconv.algorithms.weight_gradient.recipe import (
    GradientPass,
    PaddedWindow,
    StripWork,
    TileFill,
    TileView,
)
from trnconv.algorithms.weight_gradient.sheet_tiles import load_moved_dy


def dy_tiles(
    core: GradientCore, gradient_pass: GradientPass, buffer: nl.NkiTensor, number: int
) -> nl.NkiTensor:
    """A copy of dy as [positions, tiles, channels]."""
    tiles = core.recipe.tiles
    first = number * tiles * core.recipe.outs
    elems = tiles * gradient_pass.outs
    return buffer[:, first : first + elems].reshape((core.recipe.lines, tiles, gradient_pass.outs))


def load_dy(core: GradientCore, gradient_pass: GradientPass, step: BlockStep) -> None:
    """The positions of a block on partitions, and copies without those that a mask hides."""
    block = step.block
    iteration = step.iteration
    buffer = core.dys[core.blocks_begun % 2]
    core.blocks_begun += 1
    plain = dy_tiles(core, gradient_pass, buffer, 0)
    if core.recipe.sheets.unit > 0:
        for number in range(core.recipe.dy_copies):
            load_moved_dy(
                core, gradient_pass, step, dy_tiles(core, gradient_pass, buffer, number), number
            )
    elif core.recipe.by_dma:
        clear(block.fill, plain)
        for load in block.fill.loads:
            pattern = (
                (core.recipe.dy_stride, gradient_pass.outs),
                (load.step, load.tiles),
                (1, load.lines),
            )
            offset = gradient_pass.out * core.recipe.dy_stride + load.offset
            part = plain[load.line : load.line + load.lines, load.tile : load.tile + load.tiles, :]
            nisa.dma_transpose(dst=part, src=iteration.in_dy(core.dy, pattern, offset))
    else:
        window = dy_window(core, gradient_pass, iteration, block.window)
        shape = (core.recipe.lines, 1, core.recipe.tiles, gradient_pass.outs)
        patches = Patches((block.views,), block.tiles, 1, 1)
        transpose(core, window, patches, plain.reshape(shape))
    for mask in range(core.recipe.masks):
        hidden = dy_tiles(core, gradient_pass, buffer, mask + 1)
        for tile in range(len(block.tiles)):
            lines = block.tiles[tile]
            column = mask * core.recipe.mask_tiles + tile % block.tiles_of_image
            nisa.activation(
                dst=hidden[0:lines, tile, :],
                op=nl.copy,
                data=plain[0:lines, tile, :],
                scale=core.masks[0:lines, column : column + 1],
            )


def held_x(core: GradientCore, step: BlockStep, strip: StripWork) -> nl.NkiTensor:
    """A strip of x as [positions, taps, tiles, channels], transposed if it is not in SBUF."""
    recipe = core.recipe
    block = step.block
    frame = block.frames[strip.frame_tap]
    number = step.first_frame + frame.number
    key = number * recipe.variants + strip.variant
    slot = core.slots.find(key)
    shape = (recipe.lines, len(strip.taps), recipe.tiles, strip.channels)
    elems = recipe.tiles * strip.columns
    if slot >= 0:
        return core.slots.tiles[slot][:, 0:elems].reshape(shape)
    tiles = core.slots.tiles[core.slots.take(key)][:, 0:elems].reshape(shape)
    if recipe.by_dma:
        for n in range(len(strip.taps)):
            bring(core, step.iteration, strip, frame.fills[strip.taps[n]], tiles[:, n])
    else:
        window = held_window(core, step.iteration, strip, KeyedWindow(frame.window, number))
        views = block.x_views[strip.taps[0] : strip.taps[0] + len(strip.taps)]
        patches = Patches(views, block.tiles, recipe.row_step, recipe.column_step)
        transpose(core, window, patches, tiles)
    return tiles


def bring(
    core: GradientCore,
    iteration: GradientIteration,
    strip: StripWork,
    fill: TileFill,
    columns: nl.NkiTensor,
) -> None:
    """Channels of x at one tap: every load of a fill."""
    clear(fill, columns)
    for load in fill.loads:
        pattern = (
            (core.recipe.x_stride, strip.channels),
            (load.step, load.tiles),
            (1, load.lines),
        )
        offset = strip.channel * core.recipe.x_stride + load.offset
        part = columns[load.line : load.line + load.lines, load.tile : load.tile + load.tiles, :]
        nisa.dma_transpose(dst=part, src=iteration.in_x(core.x, pattern, offset))


def clear(fill: TileFill, tiles: nl.NkiTensor) -> None:
    """Zeros where no load comes."""
    for tile in fill.clears:
        nisa.memset(dst=tiles[:, tile, :], value=0.0, engine=nisa.engine.gpsimd)


class KeyedWindow(nl.NKIObject):
    """A window, and the number by which an iteration knows it."""

    def __init__(self, window: PaddedWindow, number: int) -> None:
        self.window = window
        self.number = number


class Patches(nl.NKIObject):
    """Where the positions of tiles are in a window, by tap and tile, and the steps between them."""

    def __init__(
        self,
        views: tuple[tuple[TileView, ...], ...],
        sizes: tuple[int, ...],
        row_step: int,
        column_step: int,
    ) -> None:
        self.views = views
        self.sizes = sizes
        self.row_step = row_step
        self.column_step = column_step

    def of(self, window: nl.NkiTensor, tap: int, tile: int) -> nl.NkiTensor:
        """[channels, rows, columns] of [channels, rows, columns]."""
        view = self.views[tap][tile]
        row_end = view.row + (view.rows - 1) * self.row_step + 1
        column_end = view.column + (view.columns - 1) * self.column_step + 1
        rows = window[:, view.row : row_end : self.row_step]
        return rows[:, :, view.column : column_end : self.column_step]

    def alike(self, first: int, most: int) -> int:
        """How many tiles from one on have as many positions, counted up to a number."""
        count = 1
        while (
            count < most
            and first + count < len(self.sizes)
            and self.sizes[first + count] == self.sizes[first]
        ):
            count += 1
        return count


class Channels(nl.NKIObject):
    """A window of `count` channels: [partitions, tiles of channels, rows, columns]."""

    def __init__(self, tiles: nl.NkiTensor, count: int) -> None:
        self.tiles = tiles
        self.count = count


def dy_window(
    core: GradientCore,
    gradient_pass: GradientPass,
    iteration: GradientIteration,
    window: PaddedWindow,
) -> Channels:
    """Rows of dy as they are in HBM."""
    recipe = core.recipe
    tiles = windowed(core.dy_window, window, core.out_tiles(gradient_pass))
    for number in range(core.out_tiles(gradient_pass)):
        first = number * recipe.lines
        lines = min(recipe.lines, gradient_pass.outs - first)
        pattern = ((recipe.dy_stride, lines), (recipe.dy_row, window.rows), (1, window.columns))
        at = (gradient_pass.out + first) * recipe.dy_stride + window.loads[0].offset
        for image in range(window.images):
            rows = tiles[0:lines, number, image * window.rows : (image + 1) * window.rows]
            nisa.dma_copy(
                dst=rows, src=iteration.in_dy(core.dy, pattern, image * recipe.dy_image + at)
            )
    return Channels(tiles, gradient_pass.outs)


def held_window(
    core: GradientCore, iteration: GradientIteration, strip: StripWork, keyed: KeyedWindow
) -> Channels:
    """Rows of x with their padding, loaded if they are not in SBUF."""
    recipe = core.recipe
    key = keyed.number * recipe.channels + strip.channel
    slot = core.windows.find(key)
    count = (strip.channels + recipe.lines - 1) // recipe.lines
    if slot >= 0:
        return Channels(windowed(core.windows.tiles[slot], keyed.window, count), strip.channels)
    tiles = windowed(core.windows.tiles[core.windows.take(key)], keyed.window, count)
    for number in range(count):
        if keyed.window.clear:
            nisa.memset(dst=tiles[:, number], value=0.0, engine=nisa.engine.gpsimd)
        first = number * recipe.lines
        lines = min(recipe.lines, strip.channels - first)
        offset = (strip.channel + first) * recipe.x_stride
        load_images(core, iteration, keyed.window, tiles[0:lines, number], offset)
        for copy in keyed.window.copies:
            border = tiles[0:lines, number, :, copy.column : copy.column + 1]
            source = tiles[0:lines, number, :, copy.source : copy.source + 1]
            nisa.tensor_copy(dst=border, src=source, engine=nisa.engine.gpsimd)
    return Channels(tiles, strip.channels)


def load_images(
    core: GradientCore,
    iteration: GradientIteration,
    window: PaddedWindow,
    dst: nl.NkiTensor,
    offset: int,
) -> None:
    """One tile of channels of x: [channels, images x rows, columns]."""
    recipe = core.recipe
    for load in window.loads:
        pattern = ((recipe.x_stride, dst.shape[0]), (recipe.x_row, load.rows), (1, load.columns))
        for image in range(window.images):
            row = image * window.rows + load.row
            rows = dst[:, row : row + load.rows, load.column : load.column + load.columns]
            at = image * recipe.x_image + offset + load.offset
            nisa.dma_copy(dst=rows, src=iteration.in_x(core.x, pattern, at))


def windowed(tile: nl.NkiTensor, window: PaddedWindow, count: int) -> nl.NkiTensor:
    """The first elements of a tile: [partitions, tiles of channels, images x rows, columns]."""
    rows = window.images * window.rows
    elems = count * rows * window.columns
    return tile[:, 0:elems].reshape((tile.shape[0], count, rows, window.columns))


def transpose(core: GradientCore, window: Channels, patches: Patches, dst: nl.NkiTensor) -> None:
    """dst [positions, taps, tiles, channels] = patches of a window, some channels at a time."""
    for channel in range(0, window.count, core.recipe.bank_elems):
        channels = min(core.recipe.bank_elems, window.count - channel)
        together = max(1, core.recipe.bank_elems // (len(patches.views) * channels))
        first = 0
        while first < len(patches.sizes):
            tiles = patches.alike(first, together)
            lines = patches.sizes[first]
            shape = (len(patches.views), tiles, channels)
            bank = core.next_transposed(lines, shape)
            transpose_tiles(core, window, patches, bank, Corner(first, channel))
            part = dst[0:lines, :, first : first + tiles, channel : channel + channels]
            nisa.activation(dst=part, op=nl.copy, data=bank)
            first += tiles


class Corner(nl.NKIObject):
    """The first tile and the first channel of what goes through a bank together."""

    def __init__(self, tile: int, channel: int) -> None:
        self.tile = tile
        self.channel = channel


def transpose_tiles(
    core: GradientCore, window: Channels, patches: Patches, bank: nl.NkiTensor, corner: Corner
) -> None:
    """bank [positions, taps, tiles, channels], by the Tensor engine."""
    lines = core.recipe.lines
    for tap in range(bank.shape[1]):
        for tile in range(bank.shape[2]):
            for channel in range(0, bank.shape[3], lines):
                count = min(lines, bank.shape[3] - channel)
                source = window.tiles[0:count, (corner.channel + channel) // lines]
                nisa.nc_transpose(
                    dst=bank[:, tap, tile, channel : channel + count],
                    data=patches.of(source, tap, corner.tile + tile),
                    engine=nisa.engine.tensor,
                )

"""What a core holds while it runs the recipe of a weight gradient: tiles, windows and sums."""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.kernels.core import sbuf
from trnconv.plan.weight_gradient_recipe import (
    Block,
    Fill,
    Pass,
    Place,
    StripWork,
    View,
    WeightGradientRecipe,
    Window,
)


class Ring(nl.NKIObject):
    """Equal SBUF tiles that are used in turn; `held` is what each one holds, -1 for nothing."""

    def __init__(self, tiles: list[nl.NkiTensor]) -> None:
        self.tiles = tiles
        self.start_over()

    def start_over(self) -> None:
        """Nothing is held, and the first tile is next."""
        self.held = [-1] * len(self.tiles)
        self.next = 0

    def find(self, what: int) -> int:
        """The tile that holds `what`, or -1."""
        for slot in range(len(self.held)):
            if self.held[slot] == what:
                return slot
        return -1

    def take(self, what: int) -> nl.NkiTensor:
        """The tile whose turn it is, from now on for `what`."""
        slot = self.next
        self.held[slot] = what
        self.next = (slot + 1) % len(self.tiles)
        return self.tiles[slot]


class Turn(nl.NKIObject):
    """Where a turn is: a place, or a row of the place table that it read into SBUF."""

    def __init__(
        self, place: Place, places: nl.NkiTensor | None, first_row: int, address: int
    ) -> None:
        self.place = place
        self.places = places
        self.first_row = first_row
        self.cells = None
        if places != None:
            self.cells = sbuf((1, 2), nl.int32, address)

    def load(self, number: nisa.VirtualRegister) -> None:
        """The row of a turn of a hardware loop."""
        offset = 2 * self.first_row
        row = self.places.ap([[2, 1], [1, 2]], offset, scalar_offset=number, indirect_dim=0)
        nisa.dma_copy(dst=self.cells, src=row)

    def in_x(self, x: nl.NkiTensor, pattern: list[list[int]], offset: int) -> nl.NkiTensor:
        """A pattern of x."""
        if self.places == None:
            return x.ap(pattern, offset=self.place.x + offset)
        return x.ap(pattern, offset=offset, scalar_offset=self.cells[0:1, 0:1], indirect_dim=4)

    def in_dy(self, dy: nl.NkiTensor, pattern: list[list[int]], offset: int) -> nl.NkiTensor:
        """A pattern of dy."""
        if self.places == None:
            return dy.ap(pattern, offset=self.place.dy + offset)
        return dy.ap(pattern, offset=offset, scalar_offset=self.cells[0:1, 1:2], indirect_dim=4)


class GradientCore(nl.NKIObject):
    """One core at work on a recipe."""

    def __init__(
        self,
        x: nl.NkiTensor,
        dy: nl.NkiTensor,
        masks: nl.NkiTensor,
        recipe: WeightGradientRecipe,
    ) -> None:
        self.x = x
        self.dy = dy
        self.recipe = recipe
        at = recipe.addresses
        lines = recipe.lines
        self.sums = []
        columns = recipe.passes[0].columns
        for number in range(recipe.out_tiles):
            address = at.sums + number * at.sums_pitch
            self.sums.append(sbuf((lines, columns), nl.float32, address))
        self.bias_sums = sbuf((lines, recipe.out_tiles), nl.float32, at.bias_sums)
        copies = (1 + recipe.masks) * recipe.tiles * recipe.outs
        self.dys = [
            sbuf((lines, copies), x.dtype, at.dy),
            sbuf((lines, copies), x.dtype, at.dy + at.dy_pitch),
        ]
        self.blocks_begun = 0
        slots = []
        for number in range(recipe.slots):
            columns = recipe.tiles * recipe.strip_columns
            slots.append(sbuf((lines, columns), x.dtype, at.x + number * at.x_pitch))
        self.slots = Ring(slots)
        self.masks = sbuf(masks.shape, nl.float32, at.masks)
        if recipe.masks > 0:
            nisa.dma_copy(dst=self.masks, src=masks)
        self.ones = sbuf((lines, 1), x.dtype, at.ones)
        nisa.memset(dst=self.ones, value=1.0, engine=nisa.engine.gpsimd)
        self.windows = Ring([])
        if not recipe.by_dma:
            self.prepare_windows(x.dtype)
        self.banks = []
        for _ in range(recipe.banks):
            bank = (lines, recipe.bank_elems)
            self.banks.append(nl.ndarray(bank, dtype=nl.float32, buffer=nl.psum))
        self.banks_used = 0

    def prepare_windows(self, dtype: str) -> None:
        """What the Tensor engine needs to transpose: windows to read, banks to write."""
        recipe = self.recipe
        at = recipe.addresses
        windows = []
        for number in range(recipe.window_slots):
            elems = recipe.window_tiles * recipe.window_elems
            address = at.windows + number * at.window_pitch
            windows.append(sbuf((recipe.lines, elems), dtype, address))
        self.windows = Ring(windows)
        elems = recipe.out_tiles * recipe.dy_window_elems
        self.dy_window = sbuf((recipe.lines, elems), dtype, at.dy_window)
        self.transposed = []
        for _ in range(2):
            bank = (recipe.lines, recipe.bank_elems)
            self.transposed.append(nl.ndarray(bank, dtype=dtype, buffer=nl.psum))
        self.transposes = 0

    def start_over(self) -> None:
        """What each turn starts from, so that all turns of a hardware loop are alike."""
        self.slots.start_over()
        self.windows.start_over()
        self.blocks_begun = 0
        self.banks_used = 0
        self.transposes = 0

    def out_tiles(self, one: Pass) -> int:
        """Tiles of output channels of a pass."""
        return (one.outs + self.recipe.lines - 1) // self.recipe.lines

    def dy_in_use(self) -> nl.NkiTensor:
        """The buffer that was filled last."""
        return self.dys[(self.blocks_begun - 1) % 2]

    def next_bank(self) -> nl.NkiTensor:
        """The bank whose turn it is."""
        self.banks_used += 1
        return self.banks[(self.banks_used - 1) % len(self.banks)]


def clear_sums(core: GradientCore, one: Pass) -> None:
    """Zeros to add to, strip by strip, so that the first sums need not wait for all."""
    nisa.memset(dst=core.bias_sums, value=0.0, engine=nisa.engine.gpsimd)
    for strip in one.strips:
        for number in range(core.out_tiles(one)):
            kept = core.sums[number][:, strip.kept : strip.kept + strip.columns]
            nisa.memset(dst=kept, value=0.0, engine=nisa.engine.gpsimd)


def dy_tiles(core: GradientCore, one: Pass, buffer: nl.NkiTensor, mask: int) -> nl.NkiTensor:
    """A copy of dy as [positions, tiles, channels]."""
    tiles = core.recipe.tiles
    first = mask * tiles * core.recipe.outs
    elems = tiles * one.outs
    return buffer[:, first : first + elems].reshape((core.recipe.lines, tiles, one.outs))


def load_dy(core: GradientCore, one: Pass, turn: Turn, block: Block) -> None:
    """The positions of a block on partitions, and copies without those that a mask hides."""
    buffer = core.dys[core.blocks_begun % 2]
    core.blocks_begun += 1
    plain = dy_tiles(core, one, buffer, 0)
    if core.recipe.by_dma:
        clear(block.fill, plain)
        for load in block.fill.loads:
            pattern = [
                [core.recipe.dy_stride, one.outs],
                [core.recipe.lines, load.tiles],
                [1, load.lines],
            ]
            offset = one.out * core.recipe.dy_stride + load.offset
            part = plain[load.line : load.line + load.lines, load.tile : load.tile + load.tiles, :]
            nisa.dma_transpose(dst=part, src=turn.in_dy(core.dy, pattern, offset))
    else:
        window = dy_window(core, one, turn, block.window)
        for tile in range(len(block.tiles)):
            part = plain[0 : block.tiles[tile], tile, :]
            transpose(core, window, Patch(block.views[tile], 1, 1), part)
    for mask in range(core.recipe.masks):
        hidden = dy_tiles(core, one, buffer, mask + 1)
        for tile in range(len(block.tiles)):
            lines = block.tiles[tile]
            column = mask * core.recipe.tiles + tile
            nisa.activation(
                dst=hidden[0:lines, tile, :],
                op=nl.copy,
                data=plain[0:lines, tile, :],
                scale=core.masks[0:lines, column : column + 1],
            )


def held_x(core: GradientCore, turn: Turn, block: Block, strip: StripWork) -> nl.NkiTensor:
    """A strip of x as [positions, taps, tiles, channels], transposed if it is not in SBUF."""
    recipe = core.recipe
    frame = block.frames[strip.frame_tap]
    key = frame.number * recipe.variants + strip.variant
    slot = core.slots.find(key)
    shape = (recipe.lines, len(strip.taps), recipe.tiles, strip.channels)
    elems = recipe.tiles * strip.columns
    if slot >= 0:
        return core.slots.tiles[slot][:, 0:elems].reshape(shape)
    tiles = core.slots.take(key)[:, 0:elems].reshape(shape)
    for number in range(len(strip.taps)):
        columns = tiles[:, number]
        tap = strip.taps[number]
        if recipe.by_dma:
            bring(core, turn, strip, frame.fills[tap], columns)
        else:
            window = held_window(core, turn, strip, KeyedWindow(frame.window, frame.number))
            for tile in range(len(block.tiles)):
                patch = Patch(block.x_views[tap][tile], recipe.row_step, recipe.column_step)
                transpose(core, window, patch, columns[0 : block.tiles[tile], tile, :])
    return tiles


def bring(
    core: GradientCore, turn: Turn, strip: StripWork, fill: Fill, columns: nl.NkiTensor
) -> None:
    """Channels of x at one tap: every load of a fill."""
    clear(fill, columns)
    for load in fill.loads:
        pattern = [
            [core.recipe.x_stride, strip.channels],
            [core.recipe.lines, load.tiles],
            [1, load.lines],
        ]
        offset = strip.channel * core.recipe.x_stride + load.offset
        part = columns[load.line : load.line + load.lines, load.tile : load.tile + load.tiles, :]
        nisa.dma_transpose(dst=part, src=turn.in_x(core.x, pattern, offset))


def clear(fill: Fill, tiles: nl.NkiTensor) -> None:
    """Zeros where no load comes."""
    for tile in fill.clears:
        nisa.memset(dst=tiles[:, tile, :], value=0.0, engine=nisa.engine.gpsimd)


class KeyedWindow(nl.NKIObject):
    """A window, and the number by which a turn knows it."""

    def __init__(self, window: Window, number: int) -> None:
        self.window = window
        self.number = number


class Patch(nl.NKIObject):
    """The positions of a tile in a window, and the steps between them."""

    def __init__(self, view: View, row_step: int, column_step: int) -> None:
        self.view = view
        self.row_step = row_step
        self.column_step = column_step

    def of(self, window: nl.NkiTensor) -> nl.NkiTensor:
        """[channels, rows, columns] of [channels, rows, columns]."""
        view = self.view
        row_end = view.row + (view.rows - 1) * self.row_step + 1
        column_end = view.column + (view.columns - 1) * self.column_step + 1
        rows = window[:, view.row : row_end : self.row_step]
        return rows[:, :, view.column : column_end : self.column_step]


class Channels(nl.NKIObject):
    """A window of `count` channels: [partitions, tiles of channels, rows, columns]."""

    def __init__(self, tiles: nl.NkiTensor, count: int) -> None:
        self.tiles = tiles
        self.count = count


def dy_window(core: GradientCore, one: Pass, turn: Turn, window: Window) -> Channels:
    """Rows of dy as they are in HBM."""
    recipe = core.recipe
    tiles = windowed(core.dy_window, window, core.out_tiles(one))
    for number in range(core.out_tiles(one)):
        first = number * recipe.lines
        lines = min(recipe.lines, one.outs - first)
        pattern = [[recipe.dy_stride, lines], [recipe.dy_row, window.rows], [1, window.columns]]
        offset = (one.out + first) * recipe.dy_stride + window.offset
        source = turn.in_dy(core.dy, pattern, offset)
        nisa.dma_copy(dst=tiles[0:lines, number], src=source)
    return Channels(tiles, one.outs)


def held_window(core: GradientCore, turn: Turn, strip: StripWork, keyed: KeyedWindow) -> Channels:
    """Rows of x with their padding, loaded if they are not in SBUF."""
    recipe = core.recipe
    window = keyed.window
    key = keyed.number * recipe.channels + strip.channel
    slot = core.windows.find(key)
    count = (strip.channels + recipe.lines - 1) // recipe.lines
    if slot >= 0:
        return Channels(windowed(core.windows.tiles[slot], window, count), strip.channels)
    tiles = windowed(core.windows.take(key), window, count)
    if window.clear:
        for number in range(count):
            nisa.memset(dst=tiles[:, number], value=0.0, engine=nisa.engine.gpsimd)
    row_end = window.row + window.row_count
    column_end = window.column + window.column_count
    for number in range(count):
        if window.row_count > 0:
            first = number * recipe.lines
            lines = min(recipe.lines, strip.channels - first)
            pattern = [
                [recipe.x_stride, lines],
                [recipe.x_row, window.row_count],
                [1, window.column_count],
            ]
            offset = (strip.channel + first) * recipe.x_stride + window.offset
            rows = tiles[0:lines, number, window.row : row_end, window.column : column_end]
            nisa.dma_copy(dst=rows, src=turn.in_x(core.x, pattern, offset))
    return Channels(tiles, strip.channels)


def windowed(tile: nl.NkiTensor, window: Window, count: int) -> nl.NkiTensor:
    """The first elements of a tile, as [partitions, tiles of channels, rows, columns]."""
    elems = count * window.rows * window.columns
    return tile[:, 0:elems].reshape((tile.shape[0], count, window.rows, window.columns))


def transpose(core: GradientCore, window: Channels, patch: Patch, dst: nl.NkiTensor) -> None:
    """dst [positions, channels] = a patch of a window, by the Tensor engine and a copy."""
    lines = core.recipe.lines
    for first in range(0, window.count, core.recipe.bank_elems):
        bank = core.transposed[core.transposes % 2]
        core.transposes += 1
        end = min(first + core.recipe.bank_elems, window.count)
        for channel in range(first, end, lines):
            count = min(lines, end - channel)
            nisa.nc_transpose(
                dst=bank[0 : dst.shape[0], channel - first : channel - first + count],
                data=patch.of(window.tiles[0:count, channel // lines]),
                engine=nisa.engine.tensor,
            )
        done = bank[0 : dst.shape[0], 0 : end - first]
        nisa.activation(dst=dst[:, first:end], op=nl.copy, data=done)

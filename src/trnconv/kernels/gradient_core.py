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
        for _ in range(recipe.transpose_banks):
            bank = (recipe.lines, recipe.bank_elems)
            self.transposed.append(nl.ndarray(bank, dtype=dtype, buffer=nl.psum))
        self.transposes = 0

    def begin_pass(self, one: Pass) -> None:
        """Nothing is summed, nothing is stored."""
        self.begun = [False] * len(one.strips)
        self.stored = [False] * len(one.strips)
        self.bias_begun = False

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

    def sum_of(self, strip: StripWork, number: int, lines: int) -> nl.NkiTensor:
        """The accumulator of a strip for a tile of output channels."""
        return self.sums[number][0:lines, strip.kept : strip.kept + strip.columns]

    def dy_in_use(self) -> nl.NkiTensor:
        """The buffer that was filled last."""
        return self.dys[(self.blocks_begun - 1) % 2]

    def next_transposed(self, lines: int, shape: tuple[int, int, int]) -> nl.NkiTensor:
        """The bank for transposes whose turn it is, as [lines, *shape]."""
        bank = self.transposed[self.transposes % len(self.transposed)]
        self.transposes += 1
        elems = shape[0] * shape[1] * shape[2]
        return bank[0:lines, 0:elems].reshape((lines, shape[0], shape[1], shape[2]))

    def next_bank(self) -> nl.NkiTensor:
        """The bank whose turn it is."""
        self.banks_used += 1
        return self.banks[(self.banks_used - 1) % len(self.banks)]


def clear_sums(core: GradientCore, one: Pass) -> None:
    """Zeros where nothing was summed yet; strip by strip, so that the first need not wait long."""
    if not core.bias_begun:
        core.bias_begun = True
        nisa.memset(dst=core.bias_sums, value=0.0, engine=nisa.engine.gpsimd)
    for n in range(len(one.strips)):
        if not core.begun[n]:
            core.begun[n] = True
            for number in range(core.out_tiles(one)):
                kept = core.sum_of(one.strips[n], number, core.recipe.lines)
                nisa.memset(dst=kept, value=0.0, engine=nisa.engine.gpsimd)


def dy_tiles(core: GradientCore, one: Pass, buffer: nl.NkiTensor, mask: int) -> nl.NkiTensor:
    """A copy of dy as [positions, tiles, channels]."""
    tiles = core.recipe.tiles
    first = mask * tiles * core.recipe.outs
    elems = tiles * one.outs
    return buffer[:, first : first + elems].reshape((core.recipe.lines, tiles, one.outs))


class Step(nl.NKIObject):
    """A block, the turn it belongs to, and the number of the turn's first frame."""

    def __init__(self, block: Block, turn: Turn, first_frame: int) -> None:
        self.block = block
        self.turn = turn
        self.first_frame = first_frame


def load_dy(core: GradientCore, one: Pass, step: Step) -> None:
    """The positions of a block on partitions, and copies without those that a mask hides."""
    block = step.block
    turn = step.turn
    buffer = core.dys[core.blocks_begun % 2]
    core.blocks_begun += 1
    plain = dy_tiles(core, one, buffer, 0)
    if core.recipe.by_dma:
        clear(block.fill, plain)
        for load in block.fill.loads:
            pattern = [
                [core.recipe.dy_stride, one.outs],
                [load.step, load.tiles],
                [1, load.lines],
            ]
            offset = one.out * core.recipe.dy_stride + load.offset
            part = plain[load.line : load.line + load.lines, load.tile : load.tile + load.tiles, :]
            nisa.dma_transpose(dst=part, src=turn.in_dy(core.dy, pattern, offset))
    else:
        window = dy_window(core, one, turn, block.window)
        shape = (core.recipe.lines, 1, core.recipe.tiles, one.outs)
        patches = Patches((block.views,), block.tiles, 1, 1)
        transpose(core, window, patches, plain.reshape(shape))
    for mask in range(core.recipe.masks):
        hidden = dy_tiles(core, one, buffer, mask + 1)
        for tile in range(len(block.tiles)):
            lines = block.tiles[tile]
            column = mask * core.recipe.mask_tiles + tile % block.tiles_of_image
            nisa.activation(
                dst=hidden[0:lines, tile, :],
                op=nl.copy,
                data=plain[0:lines, tile, :],
                scale=core.masks[0:lines, column : column + 1],
            )


def held_x(core: GradientCore, step: Step, strip: StripWork) -> nl.NkiTensor:
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
    tiles = core.slots.take(key)[:, 0:elems].reshape(shape)
    if recipe.by_dma:
        for n in range(len(strip.taps)):
            bring(core, step.turn, strip, frame.fills[strip.taps[n]], tiles[:, n])
    else:
        window = held_window(core, step.turn, strip, KeyedWindow(frame.window, number))
        views = block.x_views[strip.taps[0] : strip.taps[0] + len(strip.taps)]
        patches = Patches(views, block.tiles, recipe.row_step, recipe.column_step)
        transpose(core, window, patches, tiles)
    return tiles


def bring(
    core: GradientCore, turn: Turn, strip: StripWork, fill: Fill, columns: nl.NkiTensor
) -> None:
    """Channels of x at one tap: every load of a fill."""
    clear(fill, columns)
    for load in fill.loads:
        pattern = [
            [core.recipe.x_stride, strip.channels],
            [load.step, load.tiles],
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


class Patches(nl.NKIObject):
    """Where the positions of tiles are in a window, by tap and tile, and the steps between them."""

    def __init__(
        self,
        views: tuple[tuple[View, ...], ...],
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


def dy_window(core: GradientCore, one: Pass, turn: Turn, window: Window) -> Channels:
    """Rows of dy as they are in HBM."""
    recipe = core.recipe
    tiles = windowed(core.dy_window, window, core.out_tiles(one))
    for number in range(core.out_tiles(one)):
        first = number * recipe.lines
        lines = min(recipe.lines, one.outs - first)
        pattern = [[recipe.dy_stride, lines], [recipe.dy_row, window.rows], [1, window.columns]]
        for image in range(window.images):
            offset = image * recipe.dy_image + (one.out + first) * recipe.dy_stride
            rows = tiles[0:lines, number, image * window.rows : (image + 1) * window.rows]
            nisa.dma_copy(dst=rows, src=turn.in_dy(core.dy, pattern, offset + window.offset))
    return Channels(tiles, one.outs)


def held_window(core: GradientCore, turn: Turn, strip: StripWork, keyed: KeyedWindow) -> Channels:
    """Rows of x with their padding, loaded if they are not in SBUF."""
    recipe = core.recipe
    key = keyed.number * recipe.channels + strip.channel
    slot = core.windows.find(key)
    count = (strip.channels + recipe.lines - 1) // recipe.lines
    if slot >= 0:
        return Channels(windowed(core.windows.tiles[slot], keyed.window, count), strip.channels)
    tiles = windowed(core.windows.take(key), keyed.window, count)
    for number in range(count):
        if keyed.window.clear:
            nisa.memset(dst=tiles[:, number], value=0.0, engine=nisa.engine.gpsimd)
        if keyed.window.row_count > 0:
            first = number * recipe.lines
            lines = min(recipe.lines, strip.channels - first)
            offset = (strip.channel + first) * recipe.x_stride
            load_images(core, turn, keyed.window, tiles[0:lines, number], offset)
    return Channels(tiles, strip.channels)


def load_images(
    core: GradientCore, turn: Turn, window: Window, dst: nl.NkiTensor, offset: int
) -> None:
    """One tile of channels of x: [channels, images x rows, columns]."""
    recipe = core.recipe
    pattern = [
        [recipe.x_stride, dst.shape[0]],
        [recipe.x_row, window.row_count],
        [1, window.column_count],
    ]
    column_end = window.column + window.column_count
    for image in range(window.images):
        row = image * window.rows + window.row
        rows = dst[:, row : row + window.row_count, window.column : column_end]
        at = image * recipe.x_image + offset + window.offset
        nisa.dma_copy(dst=rows, src=turn.in_x(core.x, pattern, at))


def windowed(tile: nl.NkiTensor, window: Window, count: int) -> nl.NkiTensor:
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

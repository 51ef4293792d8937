"""What a core holds while it runs a fast recipe, and how inputs get there and are transformed."""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.forms.kernel_parts import Anchor, ring, sbuf
from trnconv.forms.minimal.bank_pool import BankPool
from trnconv.forms.minimal.prepare_steps import COMPLETE, LOAD, PAIR_UP, PrepareStep
from trnconv.forms.minimal.prologue import InputFactors
from trnconv.forms.minimal.recipe import (
    InLoad,
    InPart,
    MinimalBlockType,
    MinimalRecipe,
    XCopy,
    XLoad,
)


class MinimalBlock(nl.NKIObject):
    """A block: its kind, and where it is."""

    def __init__(self, kind: MinimalBlockType, anchor: Anchor) -> None:
        self.kind = kind
        self.anchor = anchor


class MinimalCore(nl.NKIObject):
    """One core at work on a fast recipe."""

    def __init__(
        self,
        x: tuple[nl.NkiTensor, ...],
        y: nl.NkiTensor | None,
        weights: nl.NkiTensor,
        constants: nl.NkiTensor,
        residual: nl.NkiTensor | None,
        recipe: MinimalRecipe,
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
        """What each turn of a hardware loop starts from, so that all turns are alike."""
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

    def transformed(self, tile: int, slot: int, kind: MinimalBlockType) -> nl.NkiTensor:
        """A slot of transformed inputs as [lines, positions, rows, columns]."""
        shape = (self.recipe.positions, kind.v_rows, kind.v_columns)
        lines = self.recipe.in_tiles[tile].lines
        elems = shape[0] * shape[1] * shape[2]
        flat = self.v_slots[tile][slot][0:lines, 0:elems]
        return flat.reshape((lines, shape[0], shape[1], shape[2]))


def load_weights(core: MinimalCore, weight: int, weight_end: int) -> None:
    """The weights of a group of output tiles, unless they are loaded as they are used."""
    if core.recipe.streamed:
        return
    tile = core.weights[0][:, 0 : weight_end - weight]
    nisa.dma_copy(dst=tile, src=core.weight_image[:, weight:weight_end])


def load_frame(core: MinimalCore, block: MinimalBlock, load: XLoad) -> None:
    """One frame of a block, all tiles of channels."""
    for number in range(len(core.recipe.in_tiles)):
        load_tile(core, block, number, load.frame, load.slot)


def load_tile(core: MinimalCore, block: MinimalBlock, number: int, at: int, slot: int) -> None:
    """One frame of a tile of channels; zeros where there is none."""
    part = block.kind.ins[number]
    tile = input_tile(core, number, slot, part)
    if block.kind.frames[at].piece < 0:
        nisa.memset(dst=tile, value=0.0, engine=nisa.engine.gpsimd)
    else:
        for clear in part.x_clears:
            border = tile[:, clear.row : clear.row_end, clear.column : clear.column_end]
            nisa.memset(dst=border, value=0.0, engine=nisa.engine.gpsimd)
        for in_load in part.loads:
            load_lines(core, block, tile, in_load, at)


def load_lines(
    core: MinimalCore, block: MinimalBlock, tile: nl.NkiTensor, one: InLoad, number: int
) -> None:
    """Some lines of an input tile."""
    recipe = core.recipe
    frame = block.kind.frames[number]
    channel_step = recipe.channel_steps[frame.piece]
    at = one.channel * channel_step + frame.offset + one.offset
    into = one.into
    rows, columns = into.row_end - into.row, into.column_end - into.column
    lines = tile[one.line : one.line + one.lines]
    if one.whole:
        flat = lines.reshape((one.lines, tile.shape[1] * tile.shape[2]))
        dst = flat[:, into.row * columns : into.row_end * columns]
        pattern = [(channel_step, one.lines), (1, rows * columns)]
    else:
        dst = lines[:, into.row : into.row_end, into.column : into.column_end]
        pattern = [(channel_step, one.lines), (recipe.x_width, rows), (1, columns)]
    x = core.x[frame.piece]
    nisa.dma_copy(dst=dst, src=block.anchor.in_x(x, frame.piece, tuple(pattern), at))


def complete_inputs(core: MinimalCore, block: MinimalBlock, work: PrepareStep) -> None:
    """The start and copies of channels, for inputs that are new; for one if steps are late."""
    part, prepare = block.kind.ins[work.tile], work.prepare
    first, end = 0, len(prepare.fresh)
    if core.recipe.late_pauses > 0:
        first, end = work.frame, min(work.frame + 1, end)
    for number in range(first, end):
        tile = input_tile(core, work.tile, prepare.fresh[number], part)
        piece = block.kind.frames[prepare.frames[number]].piece
        if core.factors != None and piece >= 0:
            core.factors.apply(work.tile, piece, loaded_part(core, work.tile, tile, part))
        for copy in part.copies:
            copy_lines(tile, copy)


def loaded_part(core: MinimalCore, number: int, tile: nl.NkiTensor, part: InPart) -> nl.NkiTensor:
    """What loads have filled of the first lines of an input tile: [channels, rows, columns]."""
    inside = part.inside
    lines = tile[0 : core.recipe.in_tiles[number].channels]
    rows = lines[:, inside.row : inside.row_end, :]
    return rows[:, :, inside.column : inside.column_end]


def clear_transformed(core: MinimalCore, block: MinimalBlock, work: PrepareStep) -> None:
    """The border of a tile's transformed inputs, before its first step.

    Also before copies, which take the GpSimd engine long: steps of other tiles need not wait.
    """
    slot = core.transformed(work.tile, work.prepare.slot, block.kind)
    for clear in block.kind.ins[work.tile].v_clears:
        border = slot[:, :, clear.row : clear.row_end, clear.column : clear.column_end]
        nisa.memset(dst=border, value=0.0, engine=nisa.engine.gpsimd)


def copy_lines(tile: nl.NkiTensor, copy: XCopy) -> None:
    """The first lines of an input tile once more on others, shifted."""
    rows, columns = tile.shape[1] - copy.rows, tile.shape[2] - copy.columns
    nisa.tensor_copy(
        dst=tile[copy.line : copy.line + copy.lines, 0:rows, 0:columns],
        src=tile[0 : copy.lines, copy.rows :, copy.columns :],
        engine=nisa.engine.gpsimd,
    )


def input_tile(core: MinimalCore, number: int, slot: int, part: InPart) -> nl.NkiTensor:
    """A slot of inputs as [lines, rows, columns]."""
    lines = core.recipe.in_tiles[number].lines
    slots = core.x_slots[number % len(core.x_slots)]
    flat = slots[slot][0:lines, 0 : part.rows * part.columns]
    return flat.reshape((lines, part.rows, part.columns))


def do_step(core: MinimalCore, block: MinimalBlock, work: PrepareStep) -> None:
    """One step of a preparation."""
    if work.step == LOAD:
        prepare = work.prepare
        for number in range(len(prepare.fresh)):
            load_tile(core, block, work.tile, prepare.frames[number], prepare.fresh[number])
        return
    if work.step == COMPLETE:
        if work.frame == 0:
            clear_transformed(core, block, work)
        complete_inputs(core, block, work)
        return
    if work.step == PAIR_UP:
        pair_up(core, block, work)
        return
    transform_step(core, block, work)


def transform_step(core: MinimalCore, block: MinimalBlock, work: PrepareStep) -> None:
    """One step of a transform; its border is cleared before the first, and filled by the last."""
    recipe = core.recipe
    part = block.kind.ins[work.tile]
    slot = core.transformed(work.tile, work.prepare.slot, block.kind)
    if work.step == 0 and work.frame == 0 and not recipe.completes:
        clear_transformed(core, block, work)
    step = recipe.steps[work.step]
    dst = operand(core, block, work, step.dst)
    a = operand(core, block, work, step.a)
    b = operand(core, block, work, step.b)
    engine = nisa.engine.vector
    if work.step < recipe.gpsimd_steps:
        engine = nisa.engine.gpsimd
    if step.scale == 1.0:
        nisa.tensor_tensor(dst=dst, data1=b, data2=a, op=nl.add, engine=engine)
    elif step.scale == -1.0:
        nisa.tensor_tensor(dst=dst, data1=b, data2=a, op=nl.subtract, engine=engine)
    else:
        nisa.scalar_tensor_tensor(
            dst=dst, data=a, op0=nl.multiply, operand0=step.scale, op1=nl.add, operand1=b
        )
    if work.step == len(recipe.steps) - 1 and work.frame == recipe.v_frames - 1:
        for fill in part.v_fills:
            lines = slot[fill.line : fill.line + fill.lines]
            border = lines[:, :, :, fill.column : fill.column + 1]
            source = lines[:, :, :, fill.source : fill.source + 1]
            nisa.tensor_copy(dst=border, src=source, engine=nisa.engine.scalar)


def pair_up(core: MinimalCore, block: MinimalBlock, work: PrepareStep) -> None:
    """The sum or difference of two frames of a tile, as its stage has it."""
    recipe, part = core.recipe, block.kind.ins[work.tile]
    frames = []
    for slot in work.prepare.x_slots:
        frames.append(input_tile(core, work.tile, slot, part))
    nisa.tensor_tensor(
        dst=paired_tile(core, work.tile, part),
        data1=frames[1],
        data2=frames[0],
        op=nl.add if recipe.pair_steps[work.prepare.stage].scale > 0 else nl.subtract,
        engine=nisa.engine.gpsimd if recipe.gpsimd_pairs else nisa.engine.vector,
    )


def paired_tile(core: MinimalCore, number: int, part: InPart) -> nl.NkiTensor:
    """Paired frames of a tile of channels as [lines, rows, columns]."""
    lines = core.recipe.in_tiles[number].lines
    tile = core.paired[number % len(core.paired)]
    return tile[0:lines, 0 : part.rows * part.columns].reshape((lines, part.rows, part.columns))


def operand(core: MinimalCore, block: MinimalBlock, work: PrepareStep, number: int) -> nl.NkiTensor:
    """An operand of a step: an input, a transformed input or the scratch tile."""
    recipe = core.recipe
    part = block.kind.ins[work.tile]
    written = part.written
    rows, columns = written.row_end - written.row, written.column_end - written.column
    positions = recipe.positions
    if number >= 2 * positions:
        lines = recipe.in_tiles[work.tile].lines
        flat = core.scratch[0][0:lines, 0 : rows * columns]
        return flat.reshape((lines, rows, columns))
    if number >= positions:
        slot = core.transformed(work.tile, work.prepare.slot, block.kind)
        top = work.frame * block.kind.frame_rows + written.row
        rectangle = slot[:, number - positions, top : top + rows, :]
        return rectangle[:, :, written.column : written.column_end]
    first, step = part.x_row, 1
    x_slot = work.prepare.x_slots[work.frame]
    if recipe.by_rows:
        first, step = part.x_row + number, recipe.outputs
    else:
        x_slot = work.prepare.x_slots[number]
    if recipe.stages > 1:
        tile = paired_tile(core, work.tile, part)
    else:
        tile = input_tile(core, work.tile, x_slot, part)
    last = first + (rows - 1) * step + 1
    return tile[:, first:last:step, part.x_column : part.x_column + columns]


def out_type(x: nl.NkiTensor, recipe: MinimalRecipe) -> str:
    """Of outputs; x's if none is named."""
    return recipe.end.dtype if recipe.end.dtype != "" else x.dtype

"""Blocks of a kernel in work: instructions that load and transform inputs, and what chains need."""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.recipe_parts import Rectangle
from trnconv.algorithms.winograd.chain import Chain
from trnconv.algorithms.winograd.core import WinogradBlock, WinogradCore
from trnconv.algorithms.winograd.late_norm import LateNorm
from trnconv.algorithms.winograd.norm_steps import OutputNorm, UnitNorm
from trnconv.algorithms.winograd.recipe import ChannelTile, Group, InLoad, InPart, PrepareStep, Unit
from trnconv.algorithms.winograd.stores import in_output, stored


class Body(nl.NKIObject):
    """Some blocks and a group of output channels, as `executors.BodyExecutor` has them."""

    def __init__(
        self,
        core: WinogradCore,
        group: Group,
        blocks: list[WinogradBlock],
        norm: OutputNorm | None,
        late: LateNorm,
    ) -> None:
        self.core = core
        self.recipe = core.recipe
        self.group = group
        self.tiles = group.tiles
        self.blocks = blocks
        self.count = len(blocks)
        self.norm = norm
        self.late = late
        self.scales_inputs = core.factors != None

    def part_of(self, work: PrepareStep) -> InPart:
        """What a step's block needs of its tile of channels."""
        return self.blocks[work.prepare.block].kind.ins[work.tile]

    def is_missing(self, block: int, frame: int) -> bool:
        """Whether a frame of a block is padding."""
        return self.blocks[block].kind.frames[frame].piece < 0

    def input_tile(self, block: int, tile: int, slot: int) -> nl.NkiTensor:
        """A slot of inputs of a tile of channels."""
        return self.core.input_tile(tile, slot, self.blocks[block].kind.ins[tile])

    def zero_input(self, x: nl.NkiTensor, tile: int) -> None:  # noqa: ARG002
        """A frame that does not exist, of a tile of channels."""
        nisa.memset(dst=x, value=0.0, engine=nisa.engine.gpsimd)

    def clear_borders(self, x: nl.NkiTensor, block: int, tile: int) -> None:
        """Padding of inputs."""
        for clear in self.blocks[block].kind.ins[tile].x_clears:
            border = x[:, clear.row : clear.row_end, clear.column : clear.column_end]
            nisa.memset(dst=border, value=0.0, engine=nisa.engine.gpsimd)

    def load_input(self, x: nl.NkiTensor, block: int, tile: int, frame: int) -> None:
        """What exists of a frame of a tile of channels."""
        for load in self.blocks[block].kind.ins[tile].loads:
            self.load_lines(x, self.blocks[block], load, frame)

    def load_lines(self, x: nl.NkiTensor, block: WinogradBlock, load: InLoad, number: int) -> None:
        """Some lines of an input tile."""
        frame = block.kind.frames[number]
        channel_step = self.recipe.channel_steps[frame.piece]
        at = load.channel * channel_step + frame.offset + load.offset
        into = load.into
        rows, columns = into.row_end - into.row, into.column_end - into.column
        lines = x[load.line : load.line + load.lines]
        if load.whole:
            flat = lines.reshape((load.lines, x.shape[1] * x.shape[2]))
            dst = flat[:, into.row * columns : into.row_end * columns]
            pattern = [(channel_step, load.lines), (1, rows * columns)]
        else:
            dst = lines[:, into.row : into.row_end, into.column : into.column_end]
            pattern = [(channel_step, load.lines), (self.recipe.x_width, rows), (1, columns)]
        piece = self.core.x[frame.piece]
        src = block.anchor.in_x(piece, frame.piece, tuple(pattern), at)
        nisa.dma_copy(dst=dst, src=src)

    def scale_input(self, x: nl.NkiTensor, block: int, tile: int, frame: int) -> None:
        """The start: what loads have filled of an input tile, in place."""
        kind, factors = self.blocks[block].kind, self.core.factors
        assert factors != None, "inputs that are not scaled"
        inside = kind.ins[tile].inside
        lines = x[0 : self.recipe.in_tiles[tile].channels]
        rows = lines[:, inside.row : inside.row_end, :]
        filled = rows[:, :, inside.column : inside.column_end]
        factors.apply(tile, kind.frames[frame].piece, filled)

    def copy_lines(self, x: nl.NkiTensor, block: int, tile: int) -> None:
        """The first lines of an input tile once more on others, shifted."""
        for copy in self.blocks[block].kind.ins[tile].copies:
            rows, columns = x.shape[1] - copy.rows, x.shape[2] - copy.columns
            nisa.tensor_copy(
                dst=x[copy.line : copy.line + copy.lines, 0:rows, 0:columns],
                src=x[0 : copy.lines, copy.rows :, copy.columns :],
                engine=nisa.engine.gpsimd,
            )

    def transformed(self, work: PrepareStep) -> nl.NkiTensor:
        """The transformed inputs that a step is of: [lines, positions, rows, columns]."""
        prepare = work.prepare
        return self.core.transformed(work.tile, prepare.slot, self.blocks[prepare.block].kind)

    def clear_transformed(self, work: PrepareStep) -> None:
        """The border of a tile's transformed inputs, before its first step.

        Also before copies, which take the GpSimd engine long: steps of other tiles need not wait.
        """
        slot = self.transformed(work)
        for clear in self.part_of(work).v_clears:
            border = slot[:, :, clear.row : clear.row_end, clear.column : clear.column_end]
            nisa.memset(dst=border, value=0.0, engine=nisa.engine.gpsimd)

    def transform(self, work: PrepareStep) -> None:
        """dst = scale * a + b."""
        step = self.recipe.steps[work.step]
        dst = self.operand(work, step.dst)
        a = self.operand(work, step.a)
        b = self.operand(work, step.b)
        engine = nisa.engine.vector
        if work.step < self.recipe.gpsimd_steps:
            engine = nisa.engine.gpsimd
        if step.scale == 1.0:
            nisa.tensor_tensor(dst=dst, data1=b, data2=a, op=nl.add, engine=engine)
        elif step.scale == -1.0:
            nisa.tensor_tensor(dst=dst, data1=b, data2=a, op=nl.subtract, engine=engine)
        else:
            nisa.scalar_tensor_tensor(
                dst=dst, data=a, op0=nl.multiply, operand0=step.scale, op1=nl.add, operand1=b
            )

    def fill_columns(self, work: PrepareStep) -> None:
        """Columns of transformed inputs that padding repeats."""
        slot = self.transformed(work)
        for fill in self.part_of(work).v_fills:
            lines = slot[fill.line : fill.line + fill.lines]
            border = lines[:, :, :, fill.column : fill.column + 1]
            source = lines[:, :, :, fill.source : fill.source + 1]
            nisa.tensor_copy(dst=border, src=source, engine=nisa.engine.scalar)

    def pair_up(self, work: PrepareStep) -> None:
        """The sum or difference of two frames of a tile, as its stage has it."""
        recipe, part = self.recipe, self.part_of(work)
        frames = []
        for slot in work.prepare.x_slots:
            frames.append(self.core.input_tile(work.tile, slot, part))
        nisa.tensor_tensor(
            dst=self.core.paired_tile(work.tile, part),
            data1=frames[1],
            data2=frames[0],
            op=nl.add if recipe.pair_steps[work.prepare.stage].scale > 0 else nl.subtract,
            engine=nisa.engine.gpsimd if recipe.gpsimd_pairs else nisa.engine.vector,
        )

    def operand(self, work: PrepareStep, number: int) -> nl.NkiTensor:
        """An operand of a step: an input, a transformed input or the scratch tile."""
        recipe, part, positions = self.recipe, self.part_of(work), self.recipe.positions
        written = part.written
        rows, columns = written.row_end - written.row, written.column_end - written.column
        if number >= 2 * positions:
            lines = recipe.in_tiles[work.tile].lines
            flat = self.core.scratch[0][0:lines, 0 : rows * columns]
            return flat.reshape((lines, rows, columns))
        if number >= positions:
            frame_rows = self.blocks[work.prepare.block].kind.frame_rows
            top = work.frame * frame_rows + written.row
            rectangle = self.transformed(work)[:, number - positions, top : top + rows, :]
            return rectangle[:, :, written.column : written.column_end]
        first, step = part.x_row, 1
        x_slot = work.prepare.x_slots[work.frame]
        if recipe.by_rows:
            first, step = part.x_row + number, recipe.outputs
        else:
            x_slot = work.prepare.x_slots[number]
        if recipe.stages > 1:
            tile = self.core.paired_tile(work.tile, part)
        else:
            tile = self.core.input_tile(work.tile, x_slot, part)
        last = first + (rows - 1) * step + 1
        return tile[:, first:last:step, part.x_column : part.x_column + columns]

    def outputs_of(self, unit: Unit) -> tuple[int, ...]:
        """Outputs of a unit's tiles that exist."""
        return self.blocks[unit.block].kind.units[unit.number].outputs

    def stores(self, unit: Unit) -> bool:
        """Whether a unit completes outputs."""
        return self.blocks[unit.block].kind.units[unit.number].frames > 0

    def rectangles(self, unit: Unit, tile: ChannelTile) -> tuple[Rectangle, ...]:
        """What a bank has room for each."""
        return self.blocks[unit.block].kind.outs[tile.number].tiles

    def next_out(self) -> nl.NkiTensor:
        """An output buffer."""
        return self.core.next_out()

    def residual_of(self, unit: Unit, tile: ChannelTile) -> nl.NkiTensor | None:
        """What is added to an output buffer, loaded; None if nothing is."""
        core, block = self.core, self.blocks[unit.block]
        if core.residual == None:
            return None
        buffer = core.next_residual()
        rows = stored(core, block, unit, tile, buffer)
        nisa.dma_copy(dst=rows, src=in_output(core, core.residual, block, unit, tile))
        return buffer

    def chain(self, unit: Unit, tile: ChannelTile, rectangle: Rectangle) -> Chain:
        """Products of a rectangle."""
        block = self.blocks[unit.block]
        return Chain(self.core, block, unit, tile, rectangle, self.group.weight)

    def norm_of(self, unit: Unit, outs: list[nl.NkiTensor]) -> UnitNorm | None:
        """The norm of a unit's outputs, if there is one."""
        if self.norm == None:
            return None
        return UnitNorm(self.norm, self.blocks[unit.block], unit, outs)

"""A chain of the kernel: one rectangle of tiles, its banks of PSUM, and instructions on them."""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.kernel_parts import OPERATORS
from trnconv.algorithms.recipe_parts import Rectangle
from trnconv.algorithms.winograd.core import WinogradBlock, WinogradCore
from trnconv.algorithms.winograd.recipe import ChannelTile, MatrixProduct, Unit
from trnconv.algorithms.winograd.stages import FIRST, HELD
from trnconv.algorithms.winograd.stores import in_output, stored

# columns in the image of constants, from an output tile's first one on
BIAS, ONE, MINUS, TWICE, HALF, FOUR, PLAIN = 0, 1, 2, 3, 4, 5, 6


class Chain(nl.NKIObject):
    """One rectangle of tiles of an output tile, as `executors.ChainExecutor` has it."""

    def __init__(
        self,
        core: WinogradCore,
        block: WinogradBlock,
        unit: Unit,
        tile: ChannelTile,
        rectangle: Rectangle,
        first_weight: int,
    ) -> None:
        self.core = core
        self.block = block
        self.unit = unit
        self.tile = tile
        self.rectangle = rectangle
        self.first_weight = first_weight
        self.lines = tile.lines
        self.rows = rectangle.row_end - rectangle.row
        self.columns = rectangle.column_end - rectangle.column
        # A block may end before the last of the columns that share a matmul.
        left = block.kind.columns - rectangle.column * tile.stack
        self.phases = min(tile.stack, left)
        self.stages = core.recipe.stages
        self.stage = unit.number % self.stages
        self.outputs = core.recipe.outputs
        self.midgroup = core.recipe.midgroup
        self.epilogue = core.recipe.epilogue
        self.gpsimd_outputs = core.recipe.gpsimd_outputs
        self.wanted = block.kind.units[unit.number].outputs
        self.banks: list[nl.NkiTensor] = []  # in hand
        self.kept: list[nl.NkiTensor] = []  # what the second part of a chain needs of the first

    def shaped(self, flat: nl.NkiTensor) -> nl.NkiTensor:
        """A bank or a copy as [lines, rows, columns]."""
        part = flat[0 : self.lines, 0 : self.rows * self.columns]
        return part.reshape((self.lines, self.rows, self.columns))

    def bank(self) -> nl.NkiTensor:
        """A bank of the rectangle's shape."""
        bank = self.core.banks.take()
        self.banks.append(bank)
        return self.shaped(bank)

    def give_back(self) -> None:
        """All banks, in the order in which they were taken."""
        for bank in self.banks:
            self.core.banks.give(bank)
        self.banks = []

    def constant(self, which: int) -> nl.NkiTensor:
        """A number for each line."""
        at = self.tile.constant + which
        return self.core.constants[0 : self.lines, at : at + 1]

    def multiply(self, bank: nl.NkiTensor, position: int, begins: bool) -> None:  # noqa: FBT001
        """bank = or += one product, summed over the other taps and all channels."""
        tile = self.tile
        weights, first, loaded = self.core.weights[0], 0, -1
        for number in range(len(tile.products)):
            product = tile.products[number]
            if not self.reads_zeros(product):
                part = number // tile.streamed
                if part != loaded:
                    weights, first = self.weights_from(position, part * tile.streamed)
                    loaded = part
                at = product.weight - first
                self.multiply_one(bank, weights, at, position, product, begins)
                begins = False

    def reads_zeros(self, product: MatrixProduct) -> bool:
        """Whether a product meets a frame of padding: never all of a unit's do."""
        recipe = self.core.recipe
        if not recipe.by_rows or recipe.unit_frames > 1 or recipe.stages > 1:
            return False
        return self.block.kind.frames[self.unit.number + product.read].piece < 0

    def multiply_one(
        self,
        bank: nl.NkiTensor,
        weights: nl.NkiTensor,
        at: int,
        position: int,
        product: MatrixProduct,
        begins: bool,  # noqa: FBT001
    ) -> None:
        """One matrix, from column `at` of the weights on, against its view."""
        tile, rectangle = self.tile, self.rectangle
        read, kind = product.read, self.block.kind
        top = rectangle.row + product.row
        if self.core.recipe.unit_frames > 1:  # all in one tile, frame after frame
            read, top = 0, top + read * kind.frame_rows
        moving = self.core.transformed(product.tile, self.unit.reads[read], kind)
        left = rectangle.column * tile.stack + product.column
        rows = moving[:, position, top : top + self.rows, :]
        matrix = weights[0 : rows.shape[0], at : at + tile.width]
        if tile.side_by_side:
            for phase in range(tile.stack):
                columns = self.every(rows, left + phase)
                self.multiply_tile(bank, matrix, columns, phase, begins)
        else:
            columns = self.every(rows, left)
            nisa.nc_matmul(dst=bank, stationary=matrix, moving=columns, accumulate=not begins)

    def weights_from(self, position: int, number: int) -> tuple[nl.NkiTensor, int]:
        """Weights of a position from one of its products on, and that product's place."""
        tile = self.tile
        number_of = self.stage * self.core.recipe.positions + position
        image = tile.weight + number_of * tile.position_weights
        first = tile.products[number].weight
        end = min(first + tile.streamed * tile.width, tile.position_weights)
        if self.core.recipe.streamed:
            return self.core.next_weights(image + first, image + end), first
        kept = image - self.first_weight
        return self.core.weights[0][:, kept + first : kept + end], first

    def every(self, rows: nl.NkiTensor, left: int) -> nl.NkiTensor:
        """The columns of a rectangle, from one on, a stack apart."""
        step = self.tile.stack
        return rows[:, :, left : left + (self.columns - 1) * step + 1 : step]

    def multiply_tile(
        self,
        bank: nl.NkiTensor,
        matrix: nl.NkiTensor,
        columns: nl.NkiTensor,
        phase: int,
        begins: bool,  # noqa: FBT001
    ) -> None:
        """One product in a column tile of the array."""
        first = phase * self.tile.pitch
        nisa.nc_matmul(
            dst=bank[first : first + self.tile.width],
            stationary=matrix,
            moving=columns,
            accumulate=not begins,
            tile_position=(0, first),
            tile_size=(nl.tile_size.pmax, self.tile.pitch),
        )

    def tile_copy(self) -> nl.NkiTensor:
        """A float32 tile of the rectangle's shape."""
        return self.shaped(self.core.next_copy())

    def copy(self, dst: nl.NkiTensor, bank: nl.NkiTensor, scale: int, bias: bool) -> None:  # noqa: FBT001
        """dst = scale * bank [+ bias], by the Scalar engine; the first of several stages has it."""
        factor = self.constant(scale)
        if bias and self.stage == FIRST:
            added = self.constant(BIAS)
            nisa.activation(dst=dst, op=nl.copy, data=bank, scale=factor, bias=added)
        else:
            nisa.activation(dst=dst, op=nl.copy, data=bank, scale=factor)

    def add(self, dst: nl.NkiTensor, bank: nl.NkiTensor, scale: int, other: nl.NkiTensor) -> None:
        """dst = scale * bank + other, by the Vector engine."""
        nisa.scalar_tensor_tensor(
            dst=dst,
            data=bank,
            op0=nl.multiply,
            operand0=self.constant(scale),
            op1=nl.add,
            operand1=other,
        )

    def held(self, which: int, output: int) -> nl.NkiTensor:
        """What stages hold of one output: a float32 tile of the rectangle's shape."""
        tile = self.core.held[HELD * self.tile.number + which]
        elems = self.rows * self.columns
        return self.shaped(tile[:, output * elems : (output + 1) * elems])

    def between(self) -> nl.NkiTensor:
        """The bank that sums of stages go through."""
        return self.shaped(self.core.banks.between())

    def combine(
        self,
        dst: nl.NkiTensor,
        first: nl.NkiTensor,
        total: nl.NkiTensor,
        adds: bool,  # noqa: FBT001
    ) -> None:
        """dst = first + total or first - total, by the Vector engine."""
        operator = nl.add if adds else nl.subtract
        nisa.tensor_tensor(dst=dst, data1=first, data2=total, op=operator)

    def view(self, buffer: nl.NkiTensor, output: int, phase: int) -> nl.NkiTensor:
        """One output of every tile, in one column phase: [channels, rows, columns]."""
        recipe, kind = self.core.recipe, self.block.kind
        tile, rectangle = self.tile, self.rectangle
        m, columns = recipe.outputs, kind.columns
        flat = buffer[0 : tile.channels]
        if recipe.by_rows:
            rows = recipe.unit_frames * kind.frame_rows
            shaped = flat[:, 0 : rows * m * columns].reshape((tile.channels, rows, m, columns))
            lines = shaped[:, rectangle.row : rectangle.row_end, output, :]
        else:
            rows = kind.units[self.unit.number].rows
            shaped = flat[:, 0 : m * rows * columns].reshape((tile.channels, m, rows, columns))
            lines = shaped[:, output, rectangle.row : rectangle.row_end, :]
        first = rectangle.column * tile.stack + phase
        end = min(rectangle.column_end * tile.stack, columns)
        return lines[:, :, first : end : tile.stack]

    def part(self, tile: nl.NkiTensor, phase: int) -> nl.NkiTensor:
        """What of a bank or a copy is of one column phase: [channels, rows, columns]."""
        first = phase * self.tile.pitch
        columns = min(self.rectangle.column_end * self.tile.stack, self.block.kind.columns)
        left = columns - self.rectangle.column * self.tile.stack - phase
        count = (left + self.tile.stack - 1) // self.tile.stack
        return tile[first : first + self.tile.channels, :, 0:count]

    def write(
        self,
        out: nl.NkiTensor,
        output: int,
        phase: int,
        bank: nl.NkiTensor,
        scale: int,
        other: nl.NkiTensor,
    ) -> None:
        """out = scale * bank + other, by the Vector engine, in one column phase."""
        first = phase * self.tile.pitch
        nisa.scalar_tensor_tensor(
            dst=self.view(out, output, phase),
            data=self.part(bank, phase),
            op0=nl.multiply,
            operand0=self.constant(scale)[first : first + self.tile.channels],
            op1=nl.add,
            operand1=self.part(other, phase),
        )

    def add_on_gpsimd(
        self, dst: nl.NkiTensor, other: nl.NkiTensor, residual: nl.NkiTensor, output: int
    ) -> None:
        """dst = other + residual, by the GpSimd engine, phase by phase."""
        for phase in range(self.phases):
            nisa.tensor_tensor(
                dst=self.part(dst, phase),
                data1=self.part(other, phase),
                data2=self.view(residual, output, phase),
                op=nl.add,
                engine=nisa.engine.gpsimd,
            )

    def activate(self, dst: nl.NkiTensor, value: nl.NkiTensor) -> None:
        """dst = activation(value), by the Scalar engine."""
        nisa.activation(dst=dst, op=OPERATORS[self.epilogue.activation], data=value)

    def add_buffer(self, dst: nl.NkiTensor, value: nl.NkiTensor, residual: nl.NkiTensor) -> None:
        """dst = value + residual, by the Vector engine."""
        nisa.tensor_tensor(dst=dst, data1=value, data2=residual, op=nl.add)

    def store(self, out: nl.NkiTensor) -> None:
        """An output buffer to y, if that is stored."""
        core, block, unit, tile = self.core, self.block, self.unit, self.tile
        if core.y != None:
            rows = stored(core, block, unit, tile, out)
            nisa.dma_copy(dst=in_output(core, core.y, block, unit, tile), src=rows)

"""Chains: the products of one rectangle of tiles, and their way out of PSUM, A^T included.

With p_k the sum of product k over taps and channels, b the bias and s a power of two that undoes
the scaling of the weights:

F(2,3)   y0 = s (p1 + p0) + (s p2 + b)        y1 = (s p1 + b) - s (p2 + p3)

Two banks. p1 and p2 are copied by the Scalar engine with scale and bias, then their banks go on
with p0 and p3, so that one addition on the Vector engine ends each output.

F(4,3)   with q = s (p1 - p2) + b, t = 2 s (p3 - p4), r = 2 (p3 + p4):
         y0 = s (p1 + p2 + p0) + (s r / 2 + b)     y1 = t + q
         y2 = s (p1 + p2) + (2 s r + b)            y3 = 4 t + (s p5 + q)

Three banks; t replaces the second one's contents. All of it is float32 until y is written.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.ask.ends import AFTER, BEFORE, IDENTITY
from trnconv.forms.kernel_parts import OPERATORS
from trnconv.forms.minimal.core import MinimalBlock, MinimalCore, PrepareStep, do_step
from trnconv.forms.minimal.norm_steps import LateNorm
from trnconv.forms.minimal.recipe import ChannelTile, MatrixProduct, Rectangle, Unit

# columns in the image of constants, from an output tile's first one on
BIAS, ONE, MINUS, TWICE, HALF, FOUR, PLAIN = 0, 1, 2, 3, 4, 5, 6
LAST_PAUSES = 2  # of a unit, in which nothing is prepared


class Chain(nl.NKIObject):
    """One rectangle of tiles of an output tile: its banks, and where its outputs go."""

    def __init__(
        self,
        core: MinimalCore,
        block: MinimalBlock,
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
        self.kept: list[nl.NkiTensor] = []  # what the second part of a chain needs of the first

    def shaped(self, flat: nl.NkiTensor) -> nl.NkiTensor:
        """A bank or a copy as [lines, rows, columns]."""
        part = flat[0 : self.lines, 0 : self.rows * self.columns]
        return part.reshape((self.lines, self.rows, self.columns))

    def bank(self) -> nl.NkiTensor:
        """A bank of the rectangle's shape."""
        return self.shaped(self.core.banks.take())

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
        if not self.core.recipe.by_rows:
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
        slot = self.unit.reads[product.read]
        moving = self.core.transformed(product.tile, slot, self.block.kind)
        top = rectangle.row + product.row
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
        image = tile.weight + position * tile.position_weights
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
        """dst = scale * bank [+ bias], by the Scalar engine."""
        factor = self.constant(scale)
        if bias:
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


class Goal(nl.NKIObject):
    """Where the outputs of a chain go: an output buffer, and what is added to it."""

    def __init__(
        self,
        chain: Chain,
        out: nl.NkiTensor,
        added: nl.NkiTensor | None,
        completes: bool,  # noqa: FBT001
    ) -> None:
        self.chain = chain
        self.out = out
        self.added = added
        self.completes = completes  # the output buffer

    def view(self, buffer: nl.NkiTensor, output: int, phase: int) -> nl.NkiTensor:
        """One output of every tile, in one column phase: [channels, rows, columns]."""
        chain = self.chain
        recipe, kind = chain.core.recipe, chain.block.kind
        tile, rectangle = chain.tile, chain.rectangle
        m, columns = recipe.outputs, kind.columns
        flat = buffer[0 : tile.channels]
        if recipe.by_rows:
            rows = kind.v_rows
            shaped = flat[:, 0 : rows * m * columns].reshape((tile.channels, rows, m, columns))
            lines = shaped[:, rectangle.row : rectangle.row_end, output, :]
        else:
            rows = kind.units[chain.unit.number].rows
            shaped = flat[:, 0 : m * rows * columns].reshape((tile.channels, m, rows, columns))
            lines = shaped[:, output, rectangle.row : rectangle.row_end, :]
        first = rectangle.column * tile.stack + phase
        end = min(rectangle.column_end * tile.stack, columns)
        return lines[:, :, first : end : tile.stack]

    def end(
        self,
        output: int,
        bank: nl.NkiTensor,
        scale: int,
        other: nl.NkiTensor,
        between: nl.NkiTensor,
    ) -> None:
        """out = the end of scale * bank + other, phase by phase of stacked columns.

        With an activation or a residual, the sum goes to `between` first.
        """
        chain, end = self.chain, self.chain.core.recipe.end
        channels = chain.tile.channels
        plain = end.activation == IDENTITY and self.added == None
        if not plain:
            chain.add(between, bank, scale, other)
        for phase in range(chain.tile.stack):
            first = phase * chain.tile.pitch
            last = first + channels
            written = self.view(self.out, output, phase)
            count = written.shape[2]
            if plain:
                nisa.scalar_tensor_tensor(
                    dst=written,
                    data=bank[first:last, :, 0:count],
                    op0=nl.multiply,
                    operand0=chain.constant(scale)[first:last],
                    op1=nl.add,
                    operand1=other[first:last, :, 0:count],
                )
            else:
                self.finish(written, between[first:last, :, 0:count], output, phase)

    def finish(self, written: nl.NkiTensor, value: nl.NkiTensor, output: int, phase: int) -> None:
        """written = activation(value [+ residual]) [+ residual]."""
        end = self.chain.core.recipe.end
        if self.added == None:
            nisa.activation(dst=written, op=OPERATORS[end.activation], data=value)
            return
        residual = self.view(self.added, output, phase)
        if end.residual == BEFORE and end.activation == IDENTITY:
            nisa.tensor_tensor(dst=written, data1=value, data2=residual, op=nl.add)
            return
        if end.residual == BEFORE:
            nisa.tensor_tensor(dst=value, data1=value, data2=residual, op=nl.add)
            nisa.activation(dst=written, op=OPERATORS[end.activation], data=value)
        if end.residual == AFTER:
            nisa.activation(dst=value, op=OPERATORS[end.activation], data=value)
            nisa.tensor_tensor(dst=written, data1=value, data2=residual, op=nl.add)


class Filler(nl.NKIObject):
    """Steps that prepare the next unit, done in the pauses that chains leave the Vector engine.

    They end before the last of `chains`, so that the next unit need not wait.
    """

    def __init__(
        self,
        core: MinimalCore,
        blocks: list[MinimalBlock],
        works: list[PrepareStep],
        chains: int,
        late: LateNorm,
    ) -> None:
        self.core = core
        self.blocks = blocks
        self.works = works
        self.pauses = 0
        self.all_pauses = max(1, chains * core.recipe.outputs - LAST_PAUSES)
        self.done = 0
        self.late = late

    def pause(self) -> None:
        """A share of the steps, and of the norm of the unit before."""
        self.pauses += 1
        until = min(len(self.works), len(self.works) * self.pauses // self.all_pauses)
        while self.done < until:
            work = self.works[self.done]
            do_step(self.core, self.blocks[work.prepare.block], work)
            self.done += 1
        self.late.share(self.pauses, self.all_pauses)


def begin_chain(one: Chain, goal: Goal, filler: Filler) -> None:
    """The first part of a chain: all of F(2,3), four products of F(4,3)."""
    recipe = one.core.recipe
    wanted = one.block.kind.units[one.unit.number].outputs
    if recipe.outputs > 2:
        middle_outputs(one, goal, wanted, filler)
    elif recipe.midgroup:
        two_outputs(one, goal, wanted, filler)
    else:
        two_outputs_of_whole_sums(one, goal, wanted, filler)


def end_chain(one: Chain, goal: Goal, filler: Filler) -> None:
    """The rest of a chain. It comes after the beginning of the next one, which hides its waits."""
    if one.core.recipe.outputs > 2:
        wanted = one.block.kind.units[one.unit.number].outputs
        outer_outputs(one, goal, wanted, filler)


def two_outputs(one: Chain, goal: Goal, wanted: tuple[int, ...], filler: Filler) -> None:
    """F(2,3) in two banks that are read while they grow."""
    left, right = one.bank(), one.bank()
    p1, p2 = one.tile_copy(), one.tile_copy()
    one.multiply(left, 1, begins=True)
    if 1 in wanted:
        one.copy(p1, left, ONE, bias=True)
    one.multiply(right, 2, begins=True)
    if 0 in wanted:
        one.copy(p2, right, ONE, bias=True)
        one.multiply(left, 0, begins=False)
        goal.end(0, left, ONE, p2, p2)
    filler.pause()
    if 1 in wanted:
        one.multiply(right, 3, begins=False)
        goal.end(1, right, MINUS, p1, p1)
    filler.pause()


def two_outputs_of_whole_sums(
    one: Chain, goal: Goal, wanted: tuple[int, ...], filler: Filler
) -> None:
    """F(2,3) in four banks, each read when it is complete."""
    first, second, third, fourth = one.bank(), one.bank(), one.bank(), one.bank()
    p1, both, between = one.tile_copy(), one.tile_copy(), one.tile_copy()
    one.multiply(first, 1, begins=True)
    one.copy(p1, first, ONE, bias=True)
    one.multiply(second, 2, begins=True)
    if 0 in wanted:
        one.add(both, second, ONE, p1)
        one.multiply(third, 0, begins=True)
        goal.end(0, third, ONE, both, both)
    filler.pause()
    if 1 in wanted:
        one.add(between, second, MINUS, p1)
        one.multiply(fourth, 3, begins=True)
        goal.end(1, fourth, MINUS, between, between)
    filler.pause()


def middle_outputs(one: Chain, goal: Goal, wanted: tuple[int, ...], filler: Filler) -> None:
    """F(4,3) up to y1 and y2: two banks that are read while they grow."""
    a, b = one.bank(), one.bank()
    q, p3, twice = one.tile_copy(), one.tile_copy(), one.tile_copy()
    half = one.tile_copy()
    one.multiply(b, 3, begins=True)
    one.copy(p3, b, TWICE, bias=False)
    one.multiply(a, 1, begins=True)
    one.copy(q, a, TWICE, bias=True)
    one.multiply(b, 4, begins=False)
    one.copy(twice, b, TWICE, bias=True)
    one.copy(half, b, HALF, bias=True)
    one.add(b, b, MINUS, p3)
    filler.pause()
    one.multiply(a, 2, begins=False)
    one.add(q, a, MINUS, q)
    if 2 in wanted:
        goal.end(2, a, ONE, twice, twice)
    if 1 in wanted:
        goal.end(1, b, PLAIN, q, p3)
    filler.pause()
    one.kept = [a, b, q, half]


def outer_outputs(one: Chain, goal: Goal, wanted: tuple[int, ...], filler: Filler) -> None:
    """y3 and y0 of F(4,3): a bank of its own, and one that goes on."""
    a, b, q, half = one.kept
    c, g = one.bank(), one.tile_copy()
    if 3 in wanted:
        one.multiply(c, 5, begins=True)
        one.add(g, c, ONE, q)
        goal.end(3, b, FOUR, g, g)
    filler.pause()
    if 0 in wanted:
        one.multiply(a, 0, begins=False)
        goal.end(0, a, ONE, half, half)
    filler.pause()

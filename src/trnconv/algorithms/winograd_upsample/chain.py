"""A chain: one rectangle of a tile of outputs, its nine products in four banks, and their way out.

With p_rc the sum of a product over channels and taps along frames (r: term of rows, c: of columns;
s: sum, f: first, l: last), b the bias and k a power of two that undoes the scaling of the weights:

    bank 0   p_ss, then p_fs, then p_ff        y_00 = k (p_ss + p_fs + p_ff) + (k p_sf + b)
    bank 1   p_sf, then p_lf                   y_10 = k (p_sf + p_lf) + (k p_ls + (k p_ss + b))
    bank 2   p_sl, then p_fl                   y_01 = k (p_sl + p_fl) + (k (p_ss + p_fs) + b)
    bank 3   p_ls, then p_ll                   y_11 = k (p_ls + p_ll) + ((k p_ss + b) + k p_sl)

Banks are read while they grow. The Scalar engine copies four sums to SBUF, the Vector engine makes
one more and ends each output, the GpSimd engine adds two copies, and the residual if there is one.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.recipe_parts import Rectangle
from trnconv.algorithms.winograd_upsample.core import (
    ACROSS,
    BOTH,
    DOWN,
    UpsampleBlock,
    UpsampleCore,
    X,
)
from trnconv.algorithms.winograd_upsample.plane_prefetch import PlanePrefetch
from trnconv.algorithms.winograd_upsample.recipe import FrameUnit, YTile
from trnconv.algorithms.winograd_upsample.stores import store
from trnconv.algorithms.winograd_upsample.terms import FIRST, LAST, SUM, TIMES

PAUSES = 3  # of a chain


class UpsampleChain(nl.NKIObject):
    """One rectangle of a tile of outputs: what it multiplies, and where its outputs go."""

    def __init__(
        self,
        core: UpsampleCore,
        place: tuple[UpsampleBlock, FrameUnit, YTile],
        rectangle: Rectangle,
        weights: list[nl.NkiTensor],
    ) -> None:
        self.core = core
        block, unit, tile = place
        self.block = block
        self.unit = unit
        self.tile = tile
        self.weights = weights
        self.rectangle = rectangle
        self.out = core.constants  # until there is an output buffer
        self.sums: list[nl.NkiTensor] = []  # in PSUM
        self.others: list[nl.NkiTensor] = []  # what each is added to
        self.completes = False  # whether its output buffer is complete with it

    def shaped(self, flat: nl.NkiTensor) -> nl.NkiTensor:
        """A bank or a copy as [channels, rows, columns]."""
        at = self.rectangle
        rows, columns = at.row_end - at.row, at.column_end - at.column
        part = flat[0 : self.tile.channels, 0 : rows * columns]
        return part.reshape((self.tile.channels, rows, columns))

    def bank(self) -> nl.NkiTensor:
        """The bank whose turn it is."""
        return self.shaped(self.core.banks.take())

    def copy(self) -> nl.NkiTensor:
        """A float32 tile."""
        return self.shaped(self.core.next_copy())

    def constant(self, which: int) -> nl.NkiTensor:
        """Bias (0) or scale (1) of each channel."""
        at = self.tile.constant + which
        return self.core.constants[0 : self.tile.channels, at : at + 1]

    def multiply(self, bank: nl.NkiTensor, rows: int, columns: int, begins: bool) -> None:  # noqa: FBT001
        """bank = or += one product, over all channels and frames that are met."""
        tiles, width = self.core.recipe.x_tiles, self.tile.channels
        product = 3 * rows + columns
        for read in range(len(self.unit.slots)):
            for number in range(len(tiles)):
                at = (product * len(tiles) + number) * width
                channels = tiles[number].channels
                nisa.nc_matmul(
                    dst=bank,
                    stationary=self.weights[read][0:channels, at : at + width],
                    moving=self.moving(number, self.unit.slots[read], rows, columns),
                    accumulate=not begins,
                )
                begins = False

    def moving(self, number: int, slot: int, rows: int, columns: int) -> nl.NkiTensor:
        """What a product reads of a tile of input channels."""
        which, down, right = X, 0, 0
        if SUM not in (rows, columns):
            which = BOTH
        elif rows != SUM:
            which = DOWN
        elif columns != SUM:
            which, down = ACROSS, 1
        if rows == LAST:
            down += 1
        if columns == LAST:
            right = 1
        at = self.rectangle
        plane = self.core.plane(self.block.kind, number, slot, which)
        part = plane[:, at.row + down : at.row_end + down, :]
        return part[:, :, at.column + right : at.column_end + right]

    def keep(self, dst: nl.NkiTensor, bank: nl.NkiTensor, bias: bool) -> None:  # noqa: FBT001
        """dst = scale * bank [+ bias], by the Scalar engine."""
        scale = self.constant(1)
        if bias:
            added = self.constant(0)
            nisa.activation(dst=dst, op=nl.copy, data=bank, scale=scale, bias=added)
        else:
            nisa.activation(dst=dst, op=nl.copy, data=bank, scale=scale)

    def add(self, dst: nl.NkiTensor, bank: nl.NkiTensor, other: nl.NkiTensor) -> None:
        """dst = scale * bank + other, by the Vector engine."""
        nisa.scalar_tensor_tensor(
            dst=dst,
            data=bank,
            op0=nl.multiply,
            operand0=self.constant(1),
            op1=nl.add,
            operand1=other,
        )

    def add_copies(self, dst: nl.NkiTensor, first: nl.NkiTensor, second: nl.NkiTensor) -> None:
        """dst = one + other, by the GpSimd engine."""
        nisa.tensor_tensor(dst=dst, data1=first, data2=second, op=nl.add, engine=nisa.engine.gpsimd)

    def output(self, out: nl.NkiTensor, row: int, column: int) -> nl.NkiTensor:
        """One of the four outputs of every position, in a buffer: [channels, rows, columns]."""
        kind, at = self.block.kind, self.rectangle
        rows, columns = TIMES * kind.rows, TIMES * kind.columns
        flat = out[0 : self.tile.channels, 0 : rows * columns]
        shaped = flat.reshape((self.tile.channels, rows, columns))
        part = shaped[:, TIMES * at.row + row : TIMES * at.row_end : TIMES, :]
        return part[:, :, TIMES * at.column + column : TIMES * at.column_end : TIMES]

    def add_residual(
        self, value: nl.NkiTensor, added: nl.NkiTensor | None, row: int, column: int
    ) -> None:
        """value += what is added to one of the four outputs, by the GpSimd engine."""
        if added == None:
            return
        kind, at = self.block.kind, self.rectangle
        if self.core.recipe.coarse == None:
            other = self.output(added, row, column)
        else:
            flat = added[0 : self.tile.channels, 0 : TIMES * kind.rows * kind.columns]
            shaped = flat.reshape((self.tile.channels, TIMES, kind.rows, kind.columns))
            part = shaped[:, row, at.row : at.row_end, :]
            other = part[:, :, at.column : at.column_end]
        self.add_copies(value, value, other)

    def run(
        self,
        out: nl.NkiTensor,
        added: nl.NkiTensor | None,
        prefetch: PlanePrefetch,
        before: UpsampleChain | None,
    ) -> None:
        """Four outputs of every position, up to the last two; meanwhile the chain before ends."""
        first, second, third, fourth = self.bank(), self.bank(), self.bank(), self.bank()
        p_ss, p_sf, p_sl, upper = self.copy(), self.copy(), self.copy(), self.copy()
        lower, both = self.copy(), self.copy()
        self.multiply(first, SUM, SUM, begins=True)
        self.keep(p_ss, first, bias=True)
        self.multiply(fourth, LAST, SUM, begins=True)
        if self.core.recipe.gpsimd_sums:
            self.keep(lower, fourth, bias=False)
            self.add_copies(lower, lower, p_ss)
        else:
            self.add(lower, fourth, p_ss)
        self.add_residual(lower, added, 1, 0)
        if before != None:
            before.finish(0)
        self.multiply(second, SUM, FIRST, begins=True)
        self.keep(p_sf, second, bias=True)
        self.add_residual(p_sf, added, 0, 0)
        prefetch.pause()
        self.multiply(third, SUM, LAST, begins=True)
        self.keep(p_sl, third, bias=False)
        self.add_copies(both, p_ss, p_sl)
        self.add_residual(both, added, 1, 1)
        if before != None:
            before.finish(1)
        self.multiply(first, FIRST, SUM, begins=False)
        self.keep(upper, first, bias=True)
        self.add_residual(upper, added, 0, 1)
        prefetch.pause()
        self.multiply(second, LAST, FIRST, begins=False)
        self.multiply(third, FIRST, LAST, begins=False)
        prefetch.pause()
        self.multiply(fourth, LAST, LAST, begins=False)
        self.multiply(first, FIRST, FIRST, begins=False)
        self.out = out
        self.sums = [first, second, third, fourth]
        self.others = [p_sf, lower, upper, both]

    def finish(self, part: int) -> None:
        """Two of the outputs, and the store of a complete buffer after the last ones.

        They come amid the next chain, which hides what they wait for.
        """
        if part == 0:
            self.add(self.output(self.out, 1, 0), self.sums[1], self.others[1])
            self.add(self.output(self.out, 0, 1), self.sums[2], self.others[2])
        else:
            self.add(self.output(self.out, 1, 1), self.sums[3], self.others[3])
            self.add(self.output(self.out, 0, 0), self.sums[0], self.others[0])
            if self.completes:
                store(self.core, self.block, self.unit, self.tile, self.out)

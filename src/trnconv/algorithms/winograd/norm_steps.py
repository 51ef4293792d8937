"""The norm of a unit's outputs over their channels, while the next unit is computed.

    z[c, p] = act(scale[c] * y[c, p] * (sum over c of y[c, p]^2 + e)^-1/2 + b[c])

Outputs of all channels stand in output buffers, rounded to their type. A step is as many positions
as a bank of PSUM has sums for. The Scalar engine squares; the Tensor engine sums squares over
channels with a matrix of ones, which leaves every sum on every partition; the Vector engine takes
the power and multiplies y by it; the Scalar engine does the rest, in place. `late_norm.py` spreads
these four stages over the pauses between chains.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.kernel_parts import OPERATORS, ring, sbuf
from trnconv.algorithms.winograd.core import WinogradBlock, WinogradCore
from trnconv.algorithms.winograd.recipe import ChannelTile, NormRecipe, Unit
from trnconv.algorithms.winograd.stores import in_frames, positions_of, stored

SCALE, SHIFT = 0, 1  # columns of a tile's constants


class OutputNorm(nl.NKIObject):
    """What norms of all units share: ones, scales, and tiles that steps use in turn."""

    def __init__(
        self,
        core: WinogradCore,
        norm: NormRecipe,
        scales: nl.NkiTensor,
        tiles: tuple[ChannelTile, ...],
        z: tuple[nl.NkiTensor, ...],
    ) -> None:
        self.core = core
        self.norm = norm
        self.tiles = tiles
        self.z = z
        lines = core.recipe.lines
        self.squares = ring(norm.squares, lines, nl.bfloat16)
        self.products = ring(norm.products, lines, nl.float32)
        self.ones = sbuf((lines, norm.ones.elems), nl.bfloat16, norm.ones.address)
        nisa.memset(dst=self.ones, value=1.0)
        self.under_root = sbuf((lines, lines), nl.bfloat16, norm.under_root.address)
        self.hold_under_root()
        self.scales = sbuf((lines, norm.scales.elems), nl.float32, norm.scales.address)
        for number in range(len(tiles)):
            tile = tiles[number]
            own = self.scales[0 : tile.channels, 2 * number : 2 * number + 2]
            nisa.dma_copy(dst=own, src=scales[tile.channel : tile.channel + tile.channels])

    def hold_under_root(self) -> None:
        """Terms of e: on lines beside the last tile's squares, or in a matrix of their own."""
        terms = self.norm.terms
        if not self.norm.by_lines:
            nisa.memset(dst=self.under_root, value=0.0)
            for number in range(len(terms)):
                first = number * self.norm.quadrant
                nisa.memset(dst=self.under_root[first : first + 1, :], value=terms[number])
            return
        last = len(self.tiles) - 1
        first = self.tiles[last].channels
        for step in range(len(self.squares) // len(self.tiles)):
            lines = self.squares[step * len(self.tiles) + last]
            for number in range(len(terms)):
                # Engines begin at quadrants: the last term on all lines, then one line less each.
                end = first + len(terms) - number
                nisa.memset(dst=lines[first:end, :], value=terms[len(terms) - 1 - number])

    def constant(self, tile: int, which: int) -> nl.NkiTensor:
        """A number for each channel of a tile."""
        at = 2 * tile + which
        return self.scales[0 : self.tiles[tile].channels, at : at + 1]

    def held(self, tiles: list[nl.NkiTensor], tile: int, step: int) -> nl.NkiTensor:
        """The tile of a ring for a step."""
        count = len(self.tiles)
        return tiles[(step * count + tile) % len(tiles)]


class UnitNorm(nl.NKIObject):
    """The norm of one unit, as `executors.NormExecutor` has it: its buffers and their positions."""

    def __init__(
        self, shared: OutputNorm, block: WinogradBlock, unit: Unit, outs: list[nl.NkiTensor]
    ) -> None:
        self.shared = shared
        self.block = block
        self.unit = unit
        self.outs = outs
        self.width = shared.core.recipe.bank_elems
        positions = positions_of(shared.core, block, unit)
        self.first = positions[0]
        self.count = positions[1]
        self.steps = -(-self.count // self.width)
        slots = len(shared.squares) // len(shared.tiles)
        self.room = (slots, shared.norm.sums, slots)
        self.sums: list[nl.NkiTensor] = []

    def columns(self, step: int) -> tuple[int, int]:
        """Positions of a step in a buffer, first and end."""
        first = self.first + step * self.width
        return first, min(first + self.width, self.first + self.count)

    def square(self, step: int) -> None:
        """y^2 in bf16: fp16 would overflow above 255."""
        first, end = self.columns(step)
        shared = self.shared
        for tile in range(len(shared.tiles)):
            channels = shared.tiles[tile].channels
            squares = shared.held(shared.squares, tile, step)
            nisa.activation(
                dst=squares[0:channels, 0 : end - first],
                op=nl.square,
                data=self.outs[tile][0:channels, first:end],
            )

    def sum_up(self, step: int) -> None:
        """Sums over all channels and e, on every partition."""
        first, end = self.columns(step)
        shared, columns = self.shared, end - first
        lines = shared.core.recipe.lines
        taken = shared.core.banks.take()
        bank = taken[:, 0:columns]
        begins = True
        if not shared.norm.by_lines:
            ones = shared.ones[:, 0:columns]
            nisa.nc_matmul(dst=bank, stationary=shared.under_root, moving=ones, accumulate=False)
            begins = False
        for tile in range(len(shared.tiles)):
            used = shared.tiles[tile].channels
            if shared.norm.by_lines and tile == len(shared.tiles) - 1:
                used += len(shared.norm.terms)
            nisa.nc_matmul(
                dst=bank,
                stationary=shared.ones[0:used, 0:lines],
                moving=shared.held(shared.squares, tile, step)[0:used, 0:columns],
                accumulate=not begins,
            )
            begins = False
        self.sums.append(taken)

    def multiply(self, step: int) -> None:
        """y * sums^-1/2, in float32."""
        first, end = self.columns(step)
        shared = self.shared
        for tile in range(len(shared.tiles)):
            channels = shared.tiles[tile].channels
            nisa.scalar_tensor_tensor(
                dst=shared.held(shared.products, tile, step)[0:channels, 0 : end - first],
                data=self.sums[step][0:channels, 0 : end - first],
                op0=nl.power,
                operand0=-0.5,
                op1=nl.multiply,
                operand1=self.outs[tile][0:channels, first:end],
            )
        shared.core.banks.give(self.sums[step])

    def finish(self, step: int) -> None:
        """act(scale * product + b), rounded once, in place of y."""
        first, end = self.columns(step)
        shared = self.shared
        for tile in range(len(shared.tiles)):
            channels = shared.tiles[tile].channels
            nisa.activation(
                dst=self.outs[tile][0:channels, first:end],
                op=OPERATORS[shared.norm.activation],
                data=shared.held(shared.products, tile, step)[0:channels, 0 : end - first],
                scale=shared.constant(tile, SCALE),
                bias=shared.constant(tile, SHIFT) if shared.norm.has_beta else None,
            )

    def store(self) -> None:
        """All output buffers to z."""
        shared = self.shared
        for tile in range(len(shared.tiles)):
            store_normed(shared, self.block, self.unit, shared.tiles[tile], self.outs[tile])


def store_normed(
    shared: OutputNorm, block: WinogradBlock, unit: Unit, tile: ChannelTile, buffer: nl.NkiTensor
) -> None:
    """An output buffer to the tensors of z, each with its frames."""
    core = shared.core
    rows = stored(core, block, unit, tile, buffer)
    wanted = block.kind.units[unit.number]
    frame = 0  # of the block, which has all of them if z has two tensors
    if len(shared.z) > 1:
        frame = wanted.y_offset // (core.recipe.y_shape[3] * core.recipe.y_shape[4])
    first = 0
    for part in shared.z:
        end = first + part.shape[2]
        begin, stop = max(first, frame), min(end, frame + wanted.frames)
        if begin < stop:
            src = rows[:, begin - frame : stop - frame, :]
            ahead = first - (begin - frame)
            dst = in_frames(core, part, (block, unit, tile), ahead, stop - begin)
            nisa.dma_copy(dst=dst, src=src)
        first = end

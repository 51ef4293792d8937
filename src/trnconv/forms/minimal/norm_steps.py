"""The norm of a unit's outputs over their channels, while the next unit is computed.

    z[c, p] = act(scale[c] * y[c, p] * (sum over c of y[c, p]^2 + e)^-1/2 + b[c])

Outputs of all channels stand in output buffers, rounded to their type. A step is as many positions
as a bank of PSUM has sums for. The Scalar engine squares; the Tensor engine sums squares over
channels with a matrix of ones, which leaves every sum on every partition; the Vector engine takes
the power and multiplies y by it; the Scalar engine does the rest, in place. These four stages are
spread over the pauses between chains, each a pause behind the one before it, so that no engine
waits for another.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.forms.kernel_parts import OPERATORS, ring, sbuf
from trnconv.forms.minimal.core import MinimalBlock, MinimalCore
from trnconv.forms.minimal.recipe import ChannelTile, NormRecipe, Unit
from trnconv.forms.minimal.stores import in_frames, positions_of, stored

SCALE, SHIFT = 0, 1  # columns of a tile's constants
STAGES = 4  # squares, sums, products, z


class OutputNorm(nl.NKIObject):
    """What norms of all units share: ones, scales, and tiles that steps use in turn."""

    def __init__(
        self,
        core: MinimalCore,
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


class NormSteps(nl.NKIObject):
    """The norm of one unit: its buffers, the positions of each step, and how far it has come."""

    def __init__(
        self,
        shared: OutputNorm,
        block: MinimalBlock,
        unit: Unit,
        outs: list[nl.NkiTensor],
        positions: tuple[int, int],
    ) -> None:
        """`positions`: the first of a buffer, and how many."""
        self.shared = shared
        self.block = block
        self.unit = unit
        self.outs = outs
        self.width = shared.core.recipe.bank_elems
        self.first = positions[0]
        self.count = positions[1]
        self.steps = -(-self.count // self.width)
        self.done = [0, 0, 0, 0]  # steps of each stage
        slots = len(shared.squares) // len(shared.tiles)
        self.room = [slots, shared.norm.sums, slots]  # for steps that the next stage has not read
        self.sums: list[nl.NkiTensor] = []

    def columns(self, step: int) -> tuple[int, int]:
        """Positions of a step in a buffer, first and end."""
        first = self.first + step * self.width
        return first, min(first + self.width, self.first + self.count)

    def advance(self, stage: int) -> None:
        """One more step of a stage, after what makes room for it in later ones."""
        for back in range(STAGES - 1 - stage):
            later = STAGES - 1 - back
            if self.done[later - 1] - self.done[later] == self.room[later - 1]:
                self.run(later)
        self.run(stage)

    def run(self, stage: int) -> None:
        """One more step of a stage."""
        step = self.done[stage]
        if stage == 0:
            square(self, step)
        elif stage == 1:
            self.sums.append(sum_up(self, step))
        elif stage == 2:
            multiply(self, step)
        else:
            finish(self, step)
        self.done[stage] += 1


def square(norm: NormSteps, step: int) -> None:
    """y^2 in bf16: fp16 would overflow above 255."""
    first, end = norm.columns(step)
    shared = norm.shared
    for tile in range(len(shared.tiles)):
        channels = shared.tiles[tile].channels
        squares = shared.held(shared.squares, tile, step)
        nisa.activation(
            dst=squares[0:channels, 0 : end - first],
            op=nl.square,
            data=norm.outs[tile][0:channels, first:end],
        )


def sum_up(norm: NormSteps, step: int) -> nl.NkiTensor:
    """Sums over all channels and e, on every partition."""
    first, end = norm.columns(step)
    shared, columns = norm.shared, end - first
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
    return taken


def multiply(norm: NormSteps, step: int) -> None:
    """y * sums^-1/2, in float32."""
    first, end = norm.columns(step)
    shared = norm.shared
    for tile in range(len(shared.tiles)):
        channels = shared.tiles[tile].channels
        nisa.scalar_tensor_tensor(
            dst=shared.held(shared.products, tile, step)[0:channels, 0 : end - first],
            data=norm.sums[step][0:channels, 0 : end - first],
            op0=nl.power,
            operand0=-0.5,
            op1=nl.multiply,
            operand1=norm.outs[tile][0:channels, first:end],
        )
    shared.core.banks.give(norm.sums[step])


def finish(norm: NormSteps, step: int) -> None:
    """act(scale * product + b), rounded once, in place of y."""
    first, end = norm.columns(step)
    shared = norm.shared
    for tile in range(len(shared.tiles)):
        channels = shared.tiles[tile].channels
        nisa.activation(
            dst=norm.outs[tile][0:channels, first:end],
            op=OPERATORS[shared.norm.activation],
            data=shared.held(shared.products, tile, step)[0:channels, 0 : end - first],
            scale=shared.constant(tile, SCALE),
            bias=shared.constant(tile, SHIFT) if shared.norm.has_beta else None,
        )


class LateNorm(nl.NKIObject):
    """The norm of the unit before, if outputs are normed and there is one."""

    def __init__(self, shared: OutputNorm | None) -> None:
        self.shared = shared
        self.steps: NormSteps | None = None

    def follow(self, block: MinimalBlock, unit: Unit, outs: list[nl.NkiTensor]) -> None:
        """A unit is computed: what is left of the one before, and then this one."""
        self.complete()
        if self.shared != None:
            positions = positions_of(self.shared.core, block, unit)
            self.steps = NormSteps(self.shared, block, unit, outs, positions)

    def share(self, pauses: int, all_pauses: int) -> None:
        """So many of all pauses have passed: later stages first, for what is ready by now."""
        steps = self.steps
        if steps == None:
            return
        span = max(1, all_pauses - STAGES)
        for back in range(STAGES):
            stage = STAGES - 1 - back
            until = min(steps.steps, steps.steps * max(0, pauses - stage) // span)
            if stage > 0:
                until = min(until, steps.done[stage - 1])
            while steps.done[stage] < until:
                steps.advance(stage)
        if steps.done[STAGES - 1] == steps.steps:
            self.complete()

    def complete(self) -> None:
        """All of it, a step of each stage in turn, and to z."""
        steps = self.steps
        if steps == None:
            return
        while steps.done[STAGES - 1] < steps.steps:
            for back in range(STAGES):
                stage = STAGES - 1 - back
                until = steps.steps
                if stage > 0:
                    until = steps.done[stage - 1]
                if steps.done[stage] < until:
                    steps.advance(stage)
        shared = steps.shared
        for tile in range(len(shared.tiles)):
            store_normed(shared, steps.block, steps.unit, shared.tiles[tile], steps.outs[tile])
        self.steps = None


def store_normed(
    shared: OutputNorm, block: MinimalBlock, unit: Unit, tile: ChannelTile, buffer: nl.NkiTensor
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

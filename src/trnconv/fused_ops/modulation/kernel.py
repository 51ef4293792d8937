"""Modulation by repeated views, of scales and shifts of a lower resolution.

    y = act((a_c x + b_c) * m + s)

An element of m and s is for factor x factor positions of x, and for one or more frames. On a loaded
tile of low rows, m becomes a m and s becomes b m + s. Views with a step of 0 repeat them: the
Vector engine multiplies x by one, the Tensor engine adds the other to the product (an identity
matrix by both, summed in PSUM), and the Scalar engine takes the activation on the way out.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.kernel_parts import OPERATORS, Banks, listed, wait_for_both
from trnconv.algorithms.recipe_parts import RecipePair
from trnconv.fused_ops.modulation.recipe import BlockRun, ModulationRecipe, PsumChunk
from trnconv.fused_ops.sweep_kernel import TileRing

SLOTS = 4  # tiles of x
Y_SLOTS = 3
LATE = 2  # steps from a load to its store
BANKS = 6


def modulation(
    x: nl.NkiTensor,
    scale: nl.NkiTensor,
    shift: nl.NkiTensor,
    scale_shift: nl.NkiTensor,
    identity: nl.NkiTensor,
    recipe: ModulationRecipe,
) -> nl.NkiTensor:
    """x [C, F, H, W], scale and shift [C, F', H', W'], scale_shift [C, 2] -> y like x."""
    y = nl.ndarray(recipe.shape, dtype=x.dtype, buffer=nl.shared_hbm, name="y")
    modulate(ModulationCore((x, scale, shift, y), scale_shift, identity, recipe))
    return y


def modulation_on_two_cores(
    x: nl.NkiTensor,
    scale: nl.NkiTensor,
    shift: nl.NkiTensor,
    scale_shift: nl.NkiTensor,
    identity: nl.NkiTensor,
    recipes: RecipePair,
) -> nl.NkiTensor:
    """The same, with each of two cores computing its blocks of every frame."""
    recipe = recipes.cores[nl.program_id(0)]
    y = modulation(x, scale, shift, scale_shift, identity, recipe)
    wait_for_both(y)
    return y


class ModulationCore(nl.NKIObject):
    """What a core holds: constants, and tiles that steps use in turn."""

    def __init__(
        self,
        tensors: tuple[nl.NkiTensor, nl.NkiTensor, nl.NkiTensor, nl.NkiTensor],
        scale_shift: nl.NkiTensor,
        identity: nl.NkiTensor,
        recipe: ModulationRecipe,
    ) -> None:
        x, scale, shift, y = tensors
        self.x = x
        self.scale = scale
        self.shift = shift
        self.y = y
        self.recipe = recipe
        lines, tiles, dtype = recipe.lines, recipe.tiles, self.x.dtype
        self.identity = nl.ndarray((lines, lines), dtype=dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=self.identity, src=identity)
        self.scale_shift = TileRing(1, tiles, (lines, 2), nl.float32)
        if recipe.has_scale_shift:
            for tile in range(len(tiles)):
                first, channels = tiles[tile]
                src = scale_shift[first : first + channels, :]
                nisa.dma_copy(dst=self.scale_shift.at(0, tile, 2), src=src)
        size, low = (lines, recipe.width), (lines, recipe.low_rows * recipe.low[2])
        self.xs = TileRing(SLOTS, tiles, size, dtype)
        self.scales = TileRing(SLOTS, tiles, low, dtype)
        self.shifts = TileRing(SLOTS, tiles, low, dtype)
        self.products = TileRing(2, tiles, size, dtype)
        self.ys = TileRing(Y_SLOTS, tiles, size, dtype)
        self.banks = Banks(BANKS, (lines, recipe.bank), nl.float32)


class BlockPart(nl.NKIObject):
    """A step: a part of a block of a frame; `counter` of a loop counts blocks."""

    def __init__(
        self, run: BlockRun, block: int, part: int, counter: nisa.VirtualRegister | None
    ) -> None:
        self.run = run
        self.block = block
        self.part = part
        self.counter = counter

    def of(
        self, tensor: nl.NkiTensor, unit: int, pattern: tuple[tuple[int, int], ...], offset: int
    ) -> nl.NkiTensor:
        """A pattern of a tensor whose blocks are `unit` apart, from an offset in this block on."""
        elems = 1
        for size in tensor.shape:
            elems *= size
        blocks = tensor.reshape((elems // unit, unit))
        at = self.block * unit + offset
        if self.run.iterations == 1:
            return blocks.ap(listed(pattern), offset=at)
        return blocks.ap(listed(pattern), offset=at, scalar_offset=self.counter, indirect_dim=0)


def modulate(core: ModulationCore) -> None:
    """Run after run; those without a loop that follow each other are one stretch."""
    straight: list[BlockPart] = []
    for run in core.recipe.runs:
        if run.iterations == 1:
            straight = straight + parts_of(core, run, None)
        else:
            go_through(core, straight)
            straight = []
            run_loop(core, run)
    go_through(core, straight)


def run_loop(core: ModulationCore, run: BlockRun) -> None:
    """A hardware loop over blocks of a frame."""

    def one_iteration(counter: nisa.VirtualRegister) -> None:
        core.banks.open_region()
        go_through(core, parts_of(core, run, counter))

    nl.fori_loop(0, run.iterations * run.blocks, one_iteration, step=run.blocks)
    core.banks.open_region()


def parts_of(
    core: ModulationCore, run: BlockRun, counter: nisa.VirtualRegister | None
) -> list[BlockPart]:
    """The steps of a run, or of one iteration."""
    steps = []
    for block in range(run.blocks):
        for part in range(core.recipe.parts):
            step = BlockPart(run, run.first + block, part, counter)
            steps.append(step)
    return steps


def go_through(core: ModulationCore, steps: list[BlockPart]) -> None:
    """Steps, each engine at another."""
    late = LATE if len(steps) > 0 else 0
    for n in range(len(steps) + late):
        if n < len(steps):
            load(core, steps[n], n)
        if n >= 1 and n - 1 < len(steps):
            multiply(core, n - 1)
        if n >= late:
            finish(core, steps[n - late], n - late)


def positions(
    core: ModulationCore, tensor: nl.NkiTensor, step: BlockPart, tile: int
) -> nl.NkiTensor:
    """A step's positions of a tile of channels, of x or y."""
    recipe = core.recipe
    _, frames, rows, columns = recipe.shape
    first, channels = recipe.tiles[tile]
    pitch = frames * rows * columns
    unit = recipe.low_rows * recipe.factor * columns
    offset = first * pitch + step.run.frame * rows * columns + step.part * recipe.width
    return step.of(tensor, unit, ((pitch, channels), (1, recipe.width)), offset)


def load(core: ModulationCore, step: BlockPart, n: int) -> None:
    """x of a step, and the low rows that it shares."""
    recipe = core.recipe
    low_frames, low_rows, low_columns = recipe.low
    unit = recipe.low_rows * low_columns
    pitch = low_frames * low_rows * low_columns
    for tile in range(len(recipe.tiles)):
        first, channels = recipe.tiles[tile]
        x = core.xs.at(n, tile, recipe.width)
        nisa.dma_copy(dst=x, src=positions(core, core.x, step, tile))
        offset = first * pitch + step.run.low_frame * low_rows * low_columns
        pattern = ((pitch, channels), (1, unit))
        scale = step.of(core.scale, unit, pattern, offset)
        nisa.dma_copy(dst=core.scales.at(n, tile, unit), src=scale)
        shift = step.of(core.shift, unit, pattern, offset)
        nisa.dma_copy(dst=core.shifts.at(n, tile, unit), src=shift)


def multiply(core: ModulationCore, n: int) -> None:
    """x by its scales; a and b go into scales and shifts, which are smaller."""
    recipe = core.recipe
    columns = recipe.low[2]
    for tile in range(len(recipe.tiles)):
        channels = recipe.tiles[tile][1]
        if recipe.has_scale_shift:
            add_scale_shift(core, n, tile)
        pattern = [
            [recipe.low_rows * columns, channels],
            [columns, recipe.low_rows],
            [0, recipe.rows],
            [1, columns],
            [0, recipe.factor],
        ]
        repeated = core.scales.whole(n, tile).ap(pattern, offset=0)
        x, product = core.xs.at(n, tile, recipe.width), core.products.at(n, tile, recipe.width)
        nisa.tensor_tensor(dst=product, data1=x, data2=repeated, op=nl.multiply)


def add_scale_shift(core: ModulationCore, n: int, tile: int) -> None:
    """shift = b * scale + shift, then scale = a * scale."""
    unit = core.recipe.low_rows * core.recipe.low[2]
    scale, shift = core.scales.at(n, tile, unit), core.shifts.at(n, tile, unit)
    a, b = core.scale_shift.at(0, tile, 1), core.scale_shift.at(0, tile, 2, 1)
    nisa.scalar_tensor_tensor(
        dst=shift, data=scale, op0=nl.multiply, operand0=b, op1=nl.add, operand1=shift
    )
    nisa.tensor_scalar(dst=scale, data=scale, op0=nl.multiply, operand0=a)


def finish(core: ModulationCore, step: BlockPart, n: int) -> None:
    """act(product + shift), bank by bank, to y."""
    for tile in range(len(core.recipe.tiles)):
        for chunk in core.recipe.chunks:
            add_shift(core, n, tile, chunk)
        y = core.ys.at(n, tile, core.recipe.width)
        nisa.dma_copy(dst=positions(core, core.y, step, tile), src=y)


def add_shift(core: ModulationCore, n: int, tile: int, chunk: PsumChunk) -> None:
    """One bank."""
    recipe = core.recipe
    channels, columns, low_columns = recipe.tiles[tile][1], recipe.shape[3], recipe.low[2]
    wide = chunk.low_columns * recipe.factor
    count = chunk.low_rows * chunk.rows * wide
    first = (chunk.low_row * recipe.rows + chunk.row) * columns
    pattern = [[recipe.width, channels], [columns, chunk.low_rows * chunk.rows], [1, wide]]
    offset = first + chunk.low_column * recipe.factor
    bank = core.banks.take()[0:channels, 0:count]
    nisa.nc_matmul(
        dst=bank,
        stationary=core.identity[0:channels, 0:channels],
        moving=core.products.whole(n, tile).ap(pattern, offset=offset),
        accumulate=False,
    )
    repeated = [
        [recipe.low_rows * low_columns, channels],
        [low_columns, chunk.low_rows],
        [0, chunk.rows],
        [1, chunk.low_columns],
        [0, recipe.factor],
    ]
    nisa.nc_matmul(
        dst=bank,
        stationary=core.identity[0:channels, 0:channels],
        moving=core.shifts.whole(n, tile).ap(
            repeated, offset=chunk.low_row * low_columns + chunk.low_column
        ),
        accumulate=True,
    )
    nisa.activation(
        dst=core.ys.whole(n, tile).ap(pattern, offset=offset),
        op=OPERATORS[recipe.activation],
        data=bank,
    )

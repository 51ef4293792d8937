"""Fast convolution: minimal filtering along one axis, F(m, 3), in fp16.

Tiles of m neighbouring outputs, along frames or along rows, take m + 2 products instead of 3 m:

    y = A^T [ sum over the other taps and channels of  U * V ],    U = G w,    V = B^T x

U is made on the host. The Vector engine makes V of the next unit while the Tensor engine multiplies
those of this one; Scalar and Vector engine share A^T on the way out of PSUM. Inputs that
are to be scaled and activated are, where they were loaded (`prologue.py`). The loop nest:

    for each group of output channels whose weights are in SBUF together    compute
        for each block of outputs, unrolled or in a hardware loop           run_blocks, roll
            for each unit of the block: a tile of frames, or one frame      run_body
                start to load inputs of units to come
                for each tile of output channels and rectangle of positions run_unit
                    a chain: the products in PSUM, A^T and the end          begin_chain, finish
                    meanwhile, some steps that make V of the next unit      Filler
                    the last rectangle of a tile: store its outputs         store

Which unit loads and prepares what, in which slots, is in the recipe (`tempo.py` decides it);
`recipe.py` explains the words, `chains.py` the sums.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.forms.kernel_parts import Pair, Turn, fence, output, wait_for_both
from trnconv.forms.minimal.chains import Chain, Filler, Goal, begin_chain, end_chain
from trnconv.forms.minimal.core import (
    MinimalBlock,
    MinimalCore,
    PrepareStep,
    do_step,
    load_frame,
    load_weights,
    pending,
)
from trnconv.forms.minimal.recipe import ChannelTile, Group, MinimalRecipe, Turns, Unit
from trnconv.forms.recipe_parts import Place, RecipePair


def minimal(
    x: tuple[nl.NkiTensor, ...],
    weights: nl.NkiTensor,
    constants: nl.NkiTensor,
    places: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    factors: nl.NkiTensor | None,
    recipe: MinimalRecipe,
) -> nl.NkiTensor:
    """x [N, C_in, D, H, W], in pieces along D, and what is packed -> y [N, C_out, D', H', W']."""
    y = output(x[0], recipe.y_shape, recipe.end.dtype)
    core = MinimalCore(x, y, weights, constants, residual, recipe)
    core.hold_factors(factors)
    compute(core, places)
    if recipe.fence:
        fence(y)
    return y


def compute(core: MinimalCore, places: nl.NkiTensor) -> None:
    """Fill y, or the rows of it that a recipe is for."""
    recipe = core.recipe
    for group in recipe.groups:
        if len(recipe.blocks) > 0:
            run_blocks(core, group)
        for loop in recipe.loops:
            roll(core, group, loop, places)


def minimal_of_one(
    x: nl.NkiTensor,
    weights: nl.NkiTensor,
    constants: nl.NkiTensor,
    places: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    factors: nl.NkiTensor | None,
    recipe: MinimalRecipe,
) -> nl.NkiTensor:
    """All frames in one tensor."""
    return minimal((x,), weights, constants, places, residual, factors, recipe)


def minimal_of_two(
    first: nl.NkiTensor,
    second: nl.NkiTensor,
    weights: nl.NkiTensor,
    constants: nl.NkiTensor,
    places: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    factors: nl.NkiTensor | None,
    recipe: MinimalRecipe,
) -> nl.NkiTensor:
    """Frames of `first`, then of `second`."""
    return minimal((first, second), weights, constants, places, residual, factors, recipe)


def minimal_of_three(
    first: nl.NkiTensor,
    second: nl.NkiTensor,
    third: nl.NkiTensor,
    weights: nl.NkiTensor,
    constants: nl.NkiTensor,
    places: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    factors: nl.NkiTensor | None,
    recipe: MinimalRecipe,
) -> nl.NkiTensor:
    """Frames of `first`, then of `second`, then of `third`."""
    return minimal((first, second, third), weights, constants, places, residual, factors, recipe)


def minimal_on_two_cores(
    x: nl.NkiTensor,
    weights_0: nl.NkiTensor,
    weights_1: nl.NkiTensor,
    constants_0: nl.NkiTensor,
    constants_1: nl.NkiTensor,
    places_0: nl.NkiTensor,
    places_1: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    factors: nl.NkiTensor | None,
    recipes: RecipePair,
) -> nl.NkiTensor:
    """All frames in one tensor."""
    weights = Pair(weights_0, weights_1)
    constants = Pair(constants_0, constants_1)
    places = Pair(places_0, places_1)
    return on_two_cores((x,), weights, constants, places, residual, factors, recipes)


def minimal_of_two_on_two_cores(
    first: nl.NkiTensor,
    second: nl.NkiTensor,
    weights_0: nl.NkiTensor,
    weights_1: nl.NkiTensor,
    constants_0: nl.NkiTensor,
    constants_1: nl.NkiTensor,
    places_0: nl.NkiTensor,
    places_1: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    factors: nl.NkiTensor | None,
    recipes: RecipePair,
) -> nl.NkiTensor:
    """Frames of `first`, then of `second`."""
    weights = Pair(weights_0, weights_1)
    constants = Pair(constants_0, constants_1)
    places = Pair(places_0, places_1)
    return on_two_cores((first, second), weights, constants, places, residual, factors, recipes)


def minimal_of_three_on_two_cores(
    first: nl.NkiTensor,
    second: nl.NkiTensor,
    third: nl.NkiTensor,
    weights_0: nl.NkiTensor,
    weights_1: nl.NkiTensor,
    constants_0: nl.NkiTensor,
    constants_1: nl.NkiTensor,
    places_0: nl.NkiTensor,
    places_1: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    factors: nl.NkiTensor | None,
    recipes: RecipePair,
) -> nl.NkiTensor:
    """Frames of `first`, then of `second`, then of `third`."""
    weights = Pair(weights_0, weights_1)
    constants = Pair(constants_0, constants_1)
    places = Pair(places_0, places_1)
    pieces = (first, second, third)
    return on_two_cores(pieces, weights, constants, places, residual, factors, recipes)


def on_two_cores(
    x: tuple[nl.NkiTensor, ...],
    weights: Pair,
    constants: Pair,
    places: Pair,
    residual: nl.NkiTensor | None,
    factors: nl.NkiTensor | None,
    recipes: RecipePair,
) -> nl.NkiTensor:
    """The same, with each of two cores computing its rows of y."""
    number = nl.program_id(0)
    recipe = recipes.cores[number]
    y = output(x[0], recipe.y_shape, recipe.end.dtype)
    core = MinimalCore(x, y, weights.of(number), constants.of(number), residual, recipe)
    core.hold_factors(factors)
    compute(core, places.of(number))
    wait_for_both(y)
    if recipe.fence:
        fence(y)
    return y


def run_blocks(core: MinimalCore, group: Group) -> None:
    """Block after block, unrolled.

    Each body gets one block more than it computes: the first of the next body, which it prepares.
    """
    recipe = core.recipe
    count = len(recipe.blocks)
    for first in range(0, count, recipe.body_blocks):
        blocks = []
        for number in range(recipe.body_blocks + 1):
            if first + number < count:
                located = recipe.blocks[first + number]
                kind = recipe.kinds[located.kind]
                blocks.append(MinimalBlock(kind, located.place, None, number))
        if first == 0:
            begin(core, blocks[0])
            load_weights(core, group.weight, group.weight_end)
        run_body(core, group, blocks)


def roll(core: MinimalCore, group: Group, loop: Turns, places: nl.NkiTensor) -> None:
    """One hardware loop. Each turn prepares its own first unit.

    A turn waits until the one before has ended, so that to prepare ahead would gain little; and
    tiles that one turn refills for the next were seen to be wrong on a device.
    """
    recipe = core.recipe
    cells = (recipe.places_address, len(recipe.channel_steps), recipe.body_blocks)

    def one_turn(number: nisa.VirtualRegister) -> None:
        turn = Turn(places, loop.first_row, number, cells)
        blocks = []
        for n in range(recipe.body_blocks):
            kind = recipe.kinds[loop.kinds[n]]
            blocks.append(MinimalBlock(kind, Place((), 0), turn, n))
        core.start_over()
        begin(core, blocks[0])
        run_body(core, group, blocks)

    load_weights(core, group.weight, group.weight_end)
    nl.fori_loop(0, loop.turns, one_turn)
    core.banks.open_region()


def begin(core: MinimalCore, block: MinimalBlock) -> None:
    """What the first unit of a block needs, with nothing to hide it behind."""
    for load in core.recipe.first_loads:
        load_frame(core, block, load)
    for work in pending(core.recipe, core.recipe.first_prepares):
        do_step(core, block, work)


def run_body(core: MinimalCore, group: Group, blocks: list[MinimalBlock]) -> None:
    """The units of some blocks; the last block may be one that is only prepared."""
    for unit in core.recipe.units:
        if unit.block < len(blocks):
            for load in unit.loads:
                if load.block < len(blocks):
                    load_frame(core, blocks[load.block], load)
            prepares = []
            for prepare in unit.prepares:
                if prepare.block < len(blocks):
                    prepares.append(prepare)
            run_unit(core, group, blocks, unit, pending(core.recipe, prepares))


def run_unit(
    core: MinimalCore,
    group: Group,
    blocks: list[MinimalBlock],
    unit: Unit,
    works: list[PrepareStep],
) -> None:
    """All sums of a unit; between them, steps of preparing the next one, evenly spread.

    A chain is finished after the next one has begun, whose matmuls hide its waits.
    """
    block = blocks[unit.block]
    chains = 0
    for tile in group.tiles:
        chains += len(block.kind.outs[tile.stack - 1].tiles)
    filler = Filler(core, blocks, works, chains)
    before: Goal | None = None
    for tile in group.tiles:
        out = core.next_out()
        added = residual_of(core, block, unit, tile)
        rectangles = block.kind.outs[tile.stack - 1].tiles
        for number in range(len(rectangles)):
            one = Chain(core, block, unit, tile, rectangles[number], group.weight)
            goal = Goal(one, out, added, number == len(rectangles) - 1)
            begin_chain(one, goal, filler)
            if before != None:
                finish(before, filler)
            before = goal
    if before != None:
        finish(before, filler)


def finish(goal: Goal, filler: Filler) -> None:
    """The rest of a chain; the last one of an output buffer has it stored."""
    chain = goal.chain
    end_chain(chain, goal, filler)
    if goal.completes:
        store(chain.core, chain.block, chain.unit, chain.tile, goal.out)


def store(
    core: MinimalCore, block: MinimalBlock, unit: Unit, tile: ChannelTile, out: nl.NkiTensor
) -> None:
    """An output buffer to y."""
    rows = stored(core, block, unit, tile, out)
    nisa.dma_copy(dst=in_output(core, core.y, block, unit, tile), src=rows)


def residual_of(
    core: MinimalCore, block: MinimalBlock, unit: Unit, tile: ChannelTile
) -> nl.NkiTensor | None:
    """What is added to an output buffer, loaded; None if nothing is."""
    if core.residual == None:
        return None
    buffer = core.next_residual()
    rows = stored(core, block, unit, tile, buffer)
    nisa.dma_copy(dst=rows, src=in_output(core, core.residual, block, unit, tile))
    return buffer


def stored(
    core: MinimalCore, block: MinimalBlock, unit: Unit, tile: ChannelTile, buffer: nl.NkiTensor
) -> nl.NkiTensor:
    """The part of a buffer that exists in y: [channels, frames, elements of whole rows]."""
    wanted = block.kind.units[unit.number]
    columns = block.kind.columns
    if core.recipe.by_rows:
        flat = buffer[0 : tile.channels, wanted.first * columns :]
        return flat[:, 0 : wanted.rows * columns].reshape((tile.channels, 1, wanted.rows * columns))
    first = wanted.outputs[0] * wanted.rows * columns
    elems = wanted.frames * wanted.rows * columns
    flat = buffer[0 : tile.channels, first : first + elems]
    return flat.reshape((tile.channels, wanted.frames, wanted.rows * columns))


def in_output(
    core: MinimalCore, y: nl.NkiTensor, block: MinimalBlock, unit: Unit, tile: ChannelTile
) -> nl.NkiTensor:
    """The same part of y, or of a tensor of its shape."""
    wanted = block.kind.units[unit.number]
    columns = block.kind.columns
    width = core.recipe.y_shape[4]
    frame_elems = core.recipe.y_shape[3] * width
    channel_step = core.recipe.y_shape[2] * frame_elems
    at = tile.channel * channel_step + wanted.y_offset
    lines = (channel_step, tile.channels)
    frames = (frame_elems, wanted.frames)
    if columns == width:
        return block.in_y(y, (lines, frames, (1, wanted.rows * columns)), at)
    return block.in_y(y, (lines, frames, (width, wanted.rows), (1, columns)), at)

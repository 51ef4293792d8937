"""A convolution of an input that is read twice as large, by sums and differences of neighbours.

Four outputs, of two rows and two columns, take nine products instead of sixteen (`terms.py`):

    y = sum over terms, channels and taps along frames of  U * V

U, sums of taps, is made on the host. V is x, or differences of its columns, of its rows, or of
both: the Vector engine makes those of the next unit while the Tensor engine multiplies. The loops:

    for each region: what is unrolled, and a hardware loop            compute, run_loop
        for each block and output frame of it: a unit                 run_blocks
            for each tile of output channels                          run_tile
                for each rectangle of input positions, a chain        UpsampleChain.run
                    meanwhile, the outputs of the chain before        UpsampleChain.finish
                    and some differences for the next unit            PlanePrefetch
                store its outputs, phases of rows and columns woven   store
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.kernel_parts import Iteration, Pair, fence, output, wait_for_both
from trnconv.algorithms.recipe_parts import RecipePair
from trnconv.algorithms.winograd_upsample.chain import PAUSES, UpsampleChain
from trnconv.algorithms.winograd_upsample.core import UpsampleBlock, UpsampleCore, blocks_of
from trnconv.algorithms.winograd_upsample.plane_prefetch import PlanePrefetch
from trnconv.algorithms.winograd_upsample.recipe import FrameUnit, Region, UpsampleRecipe, YTile
from trnconv.algorithms.winograd_upsample.stores import residual_of


def winograd_upsample(
    x: nl.NkiTensor,
    weights: nl.NkiTensor,
    constants: nl.NkiTensor,
    places: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    recipe: UpsampleRecipe,
) -> nl.NkiTensor:
    """x [N, C_in, D, H, W] and what is packed -> y [N, C_out, D', 2 H, 2 W]."""
    y = output(x, recipe.y_shape, recipe.dtype)
    compute(UpsampleCore(x, y, weights, constants, residual, recipe), places)
    if recipe.fence:
        fence(y)
    return y


def winograd_upsample_on_two_cores(
    x: nl.NkiTensor,
    weights_0: nl.NkiTensor,
    weights_1: nl.NkiTensor,
    constants_0: nl.NkiTensor,
    constants_1: nl.NkiTensor,
    places_0: nl.NkiTensor,
    places_1: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    recipes: RecipePair,
) -> nl.NkiTensor:
    """The same, with each of two cores computing its rows of y."""
    number = nl.program_id(0)
    recipe = recipes.cores[number]
    weights, constants = Pair(weights_0, weights_1), Pair(constants_0, constants_1)
    y = output(x, recipe.y_shape, recipe.dtype)
    core = UpsampleCore(x, y, weights.of(number), constants.of(number), residual, recipe)
    compute(core, Pair(places_0, places_1).of(number))
    wait_for_both(y)
    if recipe.fence:
        fence(y)
    return y


def compute(core: UpsampleCore, places: nl.NkiTensor) -> None:
    """Fill y, or the rows of it that a recipe is for."""
    for region in core.recipe.regions:
        if region.iterations > 0:
            run_loop(core, region, places)
        else:
            run_blocks(core, region, None)


def run_loop(core: UpsampleCore, region: Region, places: nl.NkiTensor) -> None:
    """One hardware loop. Each iteration prepares its own first unit."""
    recipe = core.recipe
    cells = (recipe.places_address, 1, recipe.iteration_blocks)

    def one_iteration(number: nisa.VirtualRegister) -> None:
        run_blocks(core, region, Iteration(places, region.first_row, number, cells))

    nl.fori_loop(0, region.iterations, one_iteration)


def run_blocks(core: UpsampleCore, region: Region, iteration: Iteration | None) -> None:
    """The units of a region, or of an iteration.

    Weights of the next tile are loaded before a tile's sums. So loads never queue behind the stores
    of a tile that they need not wait for.
    """
    core.start_over()
    blocks = blocks_of(core, region, iteration)
    prefetch = PlanePrefetch(core, region, blocks)
    prefetch.begin(region.begun, 1)
    prefetch.load_until(1)
    tiles = core.recipe.y_tiles
    weights = core.weights_for(region.units[0], tiles[0])
    prefetch.pause()
    before: UpsampleChain | None = None
    for number in range(len(region.units)):
        unit = region.units[number]
        block = blocks[unit.block]
        chains = len(tiles) * len(block.kind.rectangles)
        prefetch.begin(unit.prepared, PAUSES * chains)
        for at in range(len(tiles)):
            following: list[nl.NkiTensor] = []
            if at + 1 < len(tiles):
                following = core.weights_for(unit, tiles[at + 1])
            elif number + 1 < len(region.units):
                following = core.weights_for(region.units[number + 1], tiles[0])
            before = run_tile(core, (block, unit, tiles[at]), weights, prefetch, before)
            weights = following
    if before != None:
        before.finish(0)
        before.finish(1)


def run_tile(
    core: UpsampleCore,
    place: tuple[UpsampleBlock, FrameUnit, YTile],
    weights: list[nl.NkiTensor],
    prefetch: PlanePrefetch,
    before: UpsampleChain | None,
) -> UpsampleChain | None:
    """All positions of a tile of outputs; the last chain is given back, to be finished later."""
    block, unit, tile = place
    out = core.next_out()
    added = residual_of(core, block, unit, tile)
    rectangles = block.kind.rectangles
    for number in range(len(rectangles)):
        chain = UpsampleChain(core, place, rectangles[number], weights)
        chain.completes = number == len(rectangles) - 1
        chain.run(out, added, prefetch, before)
        before = chain
    return before

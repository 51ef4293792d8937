"""Winograd convolution: minimal filtering along one axis, F(m, 3), in fp16.

Tiles of m neighbouring outputs, along frames or along rows, take m + 2 products instead of 3 m:

    y = A^T [ sum over the other taps and channels of  U * V ],    U = G w,    V = B^T x

U is made on the host. The Vector engine makes V of the next unit while the Tensor engine multiplies
those of this one; Scalar and Vector engine share A^T on the way out of PSUM. Inputs that
are to be scaled and activated are, where they were loaded (`prologue.py`). A plan may have the
GpSimd engine make a part of V and add the residual. The loop nest:

    for each group of output channels whose weights are in SBUF together    compute
        for each block of outputs, unrolled or in a hardware loop           run_blocks, run_loop
            for each unit of the block: a tile of frames, or some frames    run_body
                start to load inputs of units to come, or of their first channels
                (where frames are paired, a unit is a stage of four: `stages.py`)
                for each tile of output channels and rectangle of positions run_unit
                    a chain: the products in PSUM, A^T and the epilogue     begin_chain, finish
                    meanwhile, some steps that make V of the next unit      Prefetch
                    the last rectangle of a tile: store its outputs         store
                norm the outputs of the unit before, if that is asked for   LateNorm

Which unit loads and prepares what, in which slots, is in the recipe (`pipeline_schedule.py` decides
it); `recipe.py` explains the words, `chains.py` the sums. The order from `begin` and `run_body` on
is in `order.py`: the price runs it, too.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.kernel_parts import Anchor, Iteration, Pair, fence, output, wait_for_both
from trnconv.algorithms.recipe_parts import Place, RecipePair
from trnconv.algorithms.winograd.body import Body
from trnconv.algorithms.winograd.core import WinogradBlock, WinogradCore, load_weights, out_type
from trnconv.algorithms.winograd.late_norm import LateNorm
from trnconv.algorithms.winograd.norm_steps import OutputNorm
from trnconv.algorithms.winograd.order import begin, run_body
from trnconv.algorithms.winograd.recipe import Group, Iterations, WinogradRecipe

Outputs = nl.NkiTensor | tuple[nl.NkiTensor, ...]


def winograd(
    x: tuple[nl.NkiTensor, ...],
    weights: nl.NkiTensor,
    constants: nl.NkiTensor,
    places: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    factors: nl.NkiTensor | None,
    scales: nl.NkiTensor | None,
    recipe: WinogradRecipe,
) -> Outputs:
    """x [N, C_in, D, H, W], in pieces along D, and what is packed -> y [N, C_out, D', H', W']."""
    y, z = outputs(x[0], recipe)
    core = WinogradCore(x, y, weights, constants, residual, recipe)
    core.hold_factors(factors)
    compute(core, places, norm_of(core, scales, z))
    return results(recipe, y, z)


def compute(core: WinogradCore, places: nl.NkiTensor, norm: OutputNorm | None) -> None:
    """Fill y, or the rows of it that a recipe is for, and its norm."""
    recipe = core.recipe
    for group in recipe.groups:
        if len(recipe.blocks) > 0:
            run_blocks(core, group, norm)
        for loop in recipe.loops:
            run_loop(core, group, loop, places, norm)


def winograd_of_one(
    x: nl.NkiTensor,
    weights: nl.NkiTensor,
    constants: nl.NkiTensor,
    places: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    factors: nl.NkiTensor | None,
    scales: nl.NkiTensor | None,
    recipe: WinogradRecipe,
) -> Outputs:
    """All frames in one tensor."""
    return winograd((x,), weights, constants, places, residual, factors, scales, recipe)


def winograd_of_two(
    first: nl.NkiTensor,
    second: nl.NkiTensor,
    weights: nl.NkiTensor,
    constants: nl.NkiTensor,
    places: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    factors: nl.NkiTensor | None,
    scales: nl.NkiTensor | None,
    recipe: WinogradRecipe,
) -> Outputs:
    """Frames of `first`, then of `second`."""
    return winograd((first, second), weights, constants, places, residual, factors, scales, recipe)


def winograd_of_three(
    first: nl.NkiTensor,
    second: nl.NkiTensor,
    third: nl.NkiTensor,
    weights: nl.NkiTensor,
    constants: nl.NkiTensor,
    places: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    factors: nl.NkiTensor | None,
    scales: nl.NkiTensor | None,
    recipe: WinogradRecipe,
) -> Outputs:
    """Frames of `first`, then of `second`, then of `third`."""
    return winograd(
        (first, second, third), weights, constants, places, residual, factors, scales, recipe
    )


def winograd_on_two_cores(
    x: nl.NkiTensor,
    weights_0: nl.NkiTensor,
    weights_1: nl.NkiTensor,
    constants_0: nl.NkiTensor,
    constants_1: nl.NkiTensor,
    places_0: nl.NkiTensor,
    places_1: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    factors: nl.NkiTensor | None,
    scales: nl.NkiTensor | None,
    recipes: RecipePair,
) -> Outputs:
    """All frames in one tensor."""
    weights = Pair(weights_0, weights_1)
    constants = Pair(constants_0, constants_1)
    places = Pair(places_0, places_1)
    return on_two_cores((x,), weights, constants, places, residual, factors, scales, recipes)


def winograd_of_two_on_two_cores(
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
    scales: nl.NkiTensor | None,
    recipes: RecipePair,
) -> Outputs:
    """Frames of `first`, then of `second`."""
    weights = Pair(weights_0, weights_1)
    constants = Pair(constants_0, constants_1)
    places = Pair(places_0, places_1)
    return on_two_cores(
        (first, second), weights, constants, places, residual, factors, scales, recipes
    )


def winograd_of_three_on_two_cores(
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
    scales: nl.NkiTensor | None,
    recipes: RecipePair,
) -> Outputs:
    """Frames of `first`, then of `second`, then of `third`."""
    weights = Pair(weights_0, weights_1)
    constants = Pair(constants_0, constants_1)
    places = Pair(places_0, places_1)
    pieces = (first, second, third)
    return on_two_cores(pieces, weights, constants, places, residual, factors, scales, recipes)


def on_two_cores(
    x: tuple[nl.NkiTensor, ...],
    weights: Pair,
    constants: Pair,
    places: Pair,
    residual: nl.NkiTensor | None,
    factors: nl.NkiTensor | None,
    scales: nl.NkiTensor | None,
    recipes: RecipePair,
) -> Outputs:
    """The same, with each of two cores computing its rows of y."""
    number = nl.program_id(0)
    recipe = recipes.cores[number]
    y, z = outputs(x[0], recipe)
    core = WinogradCore(x, y, weights.of(number), constants.of(number), residual, recipe)
    core.hold_factors(factors)
    compute(core, places.of(number), norm_of(core, scales, z))
    if y != None:
        wait_for_both(y)
    for part in z:
        wait_for_both(part)
    return results(recipe, y, z)


def outputs(
    x: nl.NkiTensor, recipe: WinogradRecipe
) -> tuple[nl.NkiTensor | None, tuple[nl.NkiTensor, ...]]:
    """y, unless only its norm is stored, and the one or two tensors of that."""
    norm, dtype = recipe.norm, out_type(x, recipe)
    if norm == None:
        return output(x, recipe.y_shape, recipe.epilogue.dtype), ()
    y = None
    if norm.keeps:
        y = output(x, recipe.y_shape, recipe.epilogue.dtype)
    images, channels, frames, rows, columns = recipe.y_shape
    counts = [frames]
    if norm.first > 0:
        counts = [norm.first, frames - norm.first]
    z = []
    for number in range(len(counts)):
        shape = (images, channels, counts[number], rows, columns)
        z.append(nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm, name=f"z{number}"))
    return y, tuple(z)


def norm_of(
    core: WinogradCore, scales: nl.NkiTensor | None, z: tuple[nl.NkiTensor, ...]
) -> OutputNorm | None:
    """What norms of units share; None if outputs are not normed."""
    norm = core.recipe.norm
    if norm == None or scales == None:
        return None
    return OutputNorm(core, norm, scales, core.recipe.groups[0].tiles, z)


def results(recipe: WinogradRecipe, y: nl.NkiTensor | None, z: tuple[nl.NkiTensor, ...]) -> Outputs:
    """What the kernel returns: one tensor, or several in order."""
    tensors = list(z)
    if y != None:
        tensors = [y, *z]
    if recipe.fence:
        for tensor in tensors:
            fence(tensor)
    return tensors[0] if len(tensors) == 1 else tuple(tensors)


def run_blocks(core: WinogradCore, group: Group, norm: OutputNorm | None) -> None:
    """Block after block, unrolled.

    Each body gets one block more than it computes: the first of the next body, which it prepares.
    """
    recipe = core.recipe
    count = len(recipe.blocks)
    late = LateNorm()
    for first in range(0, count, recipe.body_blocks):
        blocks = []
        for number in range(recipe.body_blocks + 1):
            if first + number < count:
                located = recipe.blocks[first + number]
                kind = recipe.kinds[located.kind]
                blocks.append(WinogradBlock(kind, Anchor(located.place, None, number)))
        body = Body(core, group, blocks, norm, late)
        if first == 0:
            begin(body)
            load_weights(core, group.weight, group.weight_end)
        run_body(body)
    late.complete()


def run_loop(
    core: WinogradCore,
    group: Group,
    loop: Iterations,
    places: nl.NkiTensor,
    norm: OutputNorm | None,
) -> None:
    """One hardware loop. Each iteration prepares its own first unit.

    An iteration waits until the one before has ended, so that to prepare ahead would gain little;
    and tiles that one iteration refills for the next were seen to be wrong on a device.
    """
    recipe = core.recipe
    cells = (recipe.places_address, len(recipe.channel_steps), recipe.body_blocks)

    def one_iteration(number: nisa.VirtualRegister) -> None:
        iteration = Iteration(places, loop.first_row, number, cells)
        blocks = []
        for n in range(recipe.body_blocks):
            kind = recipe.kinds[loop.kinds[n]]
            blocks.append(WinogradBlock(kind, Anchor(Place((), 0), iteration, n)))
        core.start_over()
        body = Body(core, group, blocks, norm, LateNorm())
        begin(body)
        run_body(body)
        body.late.complete()

    load_weights(core, group.weight, group.weight_end)
    nl.fori_loop(0, loop.iterations, one_iteration)
    core.banks.open_region()

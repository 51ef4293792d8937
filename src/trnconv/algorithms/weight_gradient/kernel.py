"""Weight and bias gradient: sums over positions, which stand on partitions.

    dw[o, i, t] = sum over images n, positions p of  dy[n, o, p] * x[n, i, window(p, t)]
    db[o]       = sum over images n, positions p of  dy[n, o, p]

Tiles of dy stand in the PE array (stationary), tiles of x stream past them (moving). All tiles of
a block add up in a PSUM bank, blocks add up in SBUF. Nothing is decided here: the recipe lists
passes, strips and blocks.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.kernel_parts import Pair, wait_for_both
from trnconv.algorithms.recipe_parts import RecipePair
from trnconv.algorithms.weight_gradient.core import (
    BlockStep,
    GradientCore,
    GradientIteration,
    clear_sums,
)
from trnconv.algorithms.weight_gradient.recipe import (
    GradientBlock,
    GradientPass,
    IterationSweep,
    StripWork,
    WeightGradientRecipe,
)
from trnconv.algorithms.weight_gradient.sheet_tiles import held_sheet, of_sheet
from trnconv.algorithms.weight_gradient.tiles import dy_tiles, held_x, load_dy


def weight_gradient(
    x: nl.NkiTensor,
    dy: nl.NkiTensor,
    masks: nl.NkiTensor,
    places: nl.NkiTensor,
    recipe: WeightGradientRecipe,
) -> tuple[nl.NkiTensor, nl.NkiTensor]:
    """x [N, C_in, D, H, W], dy [N, C_out, D', H', W'], masks and places of the host -> dw, db.

    dw is [C_out, KD x KW x KH x C_in of a pack], db is [C_out, 1] in float32.
    """
    dw, db = gradients(x, recipe)
    compute(GradientCore(x, dy, masks, recipe), places, dw, db)
    return dw, db


def weight_gradient_on_two_cores(
    x: nl.NkiTensor,
    dy: nl.NkiTensor,
    masks_0: nl.NkiTensor,
    masks_1: nl.NkiTensor,
    places_0: nl.NkiTensor,
    places_1: nl.NkiTensor,
    recipes: RecipePair,
) -> tuple[nl.NkiTensor, nl.NkiTensor]:
    """The same, with each of two cores computing its part of dw and db."""
    number = nl.program_id(0)
    recipe = recipes.cores[number]
    dw, db = gradients(x, recipe)
    core = GradientCore(x, dy, Pair(masks_0, masks_1).of(number), recipe)
    compute(core, Pair(places_0, places_1).of(number), dw, db)
    wait_for_both(dw)
    wait_for_both(db)
    return dw, db


def gradients(x: nl.NkiTensor, recipe: WeightGradientRecipe) -> tuple[nl.NkiTensor, nl.NkiTensor]:
    """dw and db, to be written."""
    dtype = nl.float32 if recipe.wide else x.dtype
    dw = nl.ndarray(recipe.dw_shape, dtype=dtype, buffer=nl.shared_hbm, name="dw")
    db_shape = (recipe.dw_shape[0], 1)
    db = nl.ndarray(db_shape, dtype=nl.float32, buffer=nl.shared_hbm, name="db")
    return dw, db


def compute(core: GradientCore, places: nl.NkiTensor, dw: nl.NkiTensor, db: nl.NkiTensor) -> None:
    """Pass after pass."""
    recipe = core.recipe
    for gradient_pass in recipe.passes:
        core.begin_pass(gradient_pass)
        steps = []
        frames = 0
        for sweep in recipe.sweeps:
            if sweep.looped:
                clear_sums(core, gradient_pass)
                run_loop(core, gradient_pass, sweep, places)
            else:
                iteration = GradientIteration(
                    sweep.places[0], recipe.addresses.places, looped=False
                )
                for block in sweep.blocks:
                    steps.append(BlockStep(block, iteration, frames))
                frames += sweep.frames
        run(core, gradient_pass, steps, dw if recipe.stores_early else None)
        clear_sums(core, gradient_pass)
        for n in range(len(gradient_pass.strips)):
            store_strip(core, gradient_pass, n, dw)
        store_bias(core, gradient_pass, db)


def run_loop(
    core: GradientCore, gradient_pass: GradientPass, sweep: IterationSweep, places: nl.NkiTensor
) -> None:
    """One hardware loop over all places of a sweep; each iteration reads offsets from the table."""

    def one_iteration(number: nisa.VirtualRegister) -> None:
        core.open_region()
        at = core.recipe.addresses.places
        iteration = GradientIteration(sweep.places[0], at, looped=True)
        iteration.load(places, sweep.first_iteration, number)
        steps = []
        for block in sweep.blocks:
            steps.append(BlockStep(block, iteration, 0))
        run(core, gradient_pass, steps, None)

    nl.fori_loop(0, len(sweep.places), one_iteration)
    core.open_region()


def run(
    core: GradientCore, gradient_pass: GradientPass, steps: list[BlockStep], dw: nl.NkiTensor | None
) -> None:
    """Block after block; dy of the next one is on its way while this one is summed.

    Strips of the last block go to dw, if given, as soon as they are complete.
    """
    core.start_over()
    if len(steps) > 0:
        load_dy(core, gradient_pass, steps[0])
    for n in range(len(steps)):
        is_last = n + 1 == len(steps)
        following = None if is_last else steps[n + 1]
        sum_up(core, gradient_pass, steps[n], following, dw if is_last else None)


def sum_up(
    core: GradientCore,
    gradient_pass: GradientPass,
    step: BlockStep,
    following: BlockStep | None,
    dw: nl.NkiTensor | None,
) -> None:
    """Every strip that a block adds to, and the bias gradient."""
    dy = core.dy_in_use()
    if gradient_pass.with_bias:
        add_bias(core, gradient_pass, step, dy)
    present = []
    for n in range(len(gradient_pass.strips)):
        if step.block.frames[gradient_pass.strips[n].frame_tap].number >= 0:
            present.append(n)
    for n in range(len(present)):
        strip = gradient_pass.strips[present[n]]
        x = held(core, step, strip)
        if n + 1 < len(present):
            held(core, step, gradient_pass.strips[present[n + 1]])
        elif following != None:
            load_dy(core, gradient_pass, following)
        add_strip(core, gradient_pass, step, present[n], TransposedTiles(dy, x))
        if dw != None:
            store_strip(core, gradient_pass, present[n], dw)
    if len(present) == 0 and following != None:
        load_dy(core, gradient_pass, following)


def held(core: GradientCore, step: BlockStep, strip: StripWork) -> nl.NkiTensor:
    """What a strip reads of x, in SBUF: tiles of its own, or a sheet."""
    if core.recipe.sheets.unit > 0:
        return held_sheet(core, step, strip)
    return held_x(core, step, strip)


class TransposedTiles(nl.NKIObject):
    """Transposed tiles: dy as it was loaded, x [positions, taps, tiles, channels] or a sheet."""

    def __init__(self, dy: nl.NkiTensor, x: nl.NkiTensor) -> None:
        self.dy = dy
        self.x = x

    def moving(
        self, core: GradientCore, block: GradientBlock, strip: StripWork, tile: int
    ) -> nl.NkiTensor:
        """What streams past a tile of dy: [positions, taps, channels]."""
        if core.recipe.sheets.unit > 0:
            return of_sheet(core.recipe.sheets, block, strip, self.x, tile)
        return self.x[0 : block.tiles[tile], :, tile, :]


def add_strip(
    core: GradientCore,
    gradient_pass: GradientPass,
    step: BlockStep,
    n: int,
    operands: TransposedTiles,
) -> None:
    """All output channels of a pass by the columns of its n-th strip."""
    strip = gradient_pass.strips[n]
    stationary = dy_tiles(core, gradient_pass, operands.dy, strip.dy_copy)
    tiles = step.block.tiles
    for number in range(core.out_tiles(gradient_pass)):
        first = number * core.recipe.lines
        lines = min(core.recipe.lines, gradient_pass.outs - first)
        bank = core.banks.take()[0:lines, 0 : strip.columns]
        for tile in range(len(tiles)):
            nisa.nc_matmul(
                dst=bank,
                stationary=stationary[0 : tiles[tile], tile, first : first + lines],
                moving=operands.moving(core, step.block, strip, tile),
                accumulate=tile > 0,
            )
        keep(core.sum_of(strip, number, lines), bank, core.begun[n])
    core.begun[n] = True


def add_bias(
    core: GradientCore, gradient_pass: GradientPass, step: BlockStep, dy: nl.NkiTensor
) -> None:
    """Sums of dy: the same matmul, with a column of ones in place of x."""
    stationary = dy_tiles(core, gradient_pass, dy, 0)
    tiles = step.block.tiles
    for number in range(core.out_tiles(gradient_pass)):
        first = number * core.recipe.lines
        lines = min(core.recipe.lines, gradient_pass.outs - first)
        bank = core.banks.take()[0:lines, 0:1]
        for tile in range(len(tiles)):
            nisa.nc_matmul(
                dst=bank,
                stationary=stationary[0 : tiles[tile], tile, first : first + lines],
                moving=core.ones[0 : tiles[tile], :],
                accumulate=tile > 0,
            )
        keep(core.bias_sums[0:lines, number : number + 1], bank, core.bias_begun)
    core.bias_begun = True


def keep(kept: nl.NkiTensor, bank: nl.NkiTensor, begun: bool) -> None:  # noqa: FBT001
    """kept = or += bank. The Scalar engine copies, so that the Vector engine has less to do."""
    if begun:
        nisa.tensor_tensor(dst=kept, data1=kept, data2=bank, op=nl.add)
    else:
        nisa.activation(dst=kept, op=nl.copy, data=bank)


def store_strip(core: GradientCore, gradient_pass: GradientPass, n: int, dw: nl.NkiTensor) -> None:
    """The n-th strip of a pass to dw, unless it is there."""
    if not core.stored[n]:
        core.stored[n] = True
        strip = gradient_pass.strips[n]
        for number in range(core.out_tiles(gradient_pass)):
            first = number * core.recipe.lines
            lines = min(core.recipe.lines, gradient_pass.outs - first)
            store_sums(
                core, strip, core.sum_of(strip, number, lines), dw, gradient_pass.out + first
            )


def store_sums(
    core: GradientCore, strip: StripWork, sums: nl.NkiTensor, dw: nl.NkiTensor, out: int
) -> None:
    """The sums of a strip to rows of dw from `out` on; some channels of several taps lie apart."""
    end, ins = out + sums.shape[0], core.recipe.pack_in
    if strip.channels == ins or len(strip.taps) == 1:
        columns = dw[out:end, strip.column : strip.column + strip.columns]
        nisa.dma_copy(dst=columns, src=sums)
        return
    tap, channel = strip.column // ins, strip.column % ins
    by_tap = dw.reshape((dw.shape[0], dw.shape[1] // ins, ins))
    nisa.dma_copy(
        dst=by_tap[out:end, tap : tap + len(strip.taps), channel : channel + strip.channels],
        src=sums.reshape((sums.shape[0], len(strip.taps), strip.channels)),
    )


def store_bias(core: GradientCore, gradient_pass: GradientPass, db: nl.NkiTensor) -> None:
    """The bias gradient of a pass, if it made one."""
    if gradient_pass.with_bias:
        for number in range(core.out_tiles(gradient_pass)):
            first = number * core.recipe.lines
            lines = min(core.recipe.lines, gradient_pass.outs - first)
            kept = core.bias_sums[0:lines, number : number + 1]
            nisa.dma_copy(
                dst=db[gradient_pass.out + first : gradient_pass.out + first + lines, :], src=kept
            )

"""Weight and bias gradient: sums over positions, which stand on partitions.

    dw[o, i, t] = sum over images n, positions p of  dy[n, o, p] * x[n, i, window(p, t)]
    db[o]       = sum over images n, positions p of  dy[n, o, p]

Tiles of dy stand in the PE array (stationary), tiles of x stream past them (moving). All tiles of
a block add up in a PSUM bank, blocks add up in SBUF. Nothing is decided here: the recipe lists
passes, strips and blocks.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.kernels.gradient_core import (
    GradientCore,
    Turn,
    clear_sums,
    dy_tiles,
    held_x,
    load_dy,
)
from trnconv.plan.weight_gradient_recipe import (
    Block,
    Pass,
    StripWork,
    Sweep,
    WeightGradientRecipe,
)


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
    dtype = nl.float32 if recipe.wide else x.dtype
    dw = nl.ndarray(recipe.dw_shape, dtype=dtype, buffer=nl.shared_hbm, name="dw")
    db_shape = (recipe.dw_shape[0], 1)
    db = nl.ndarray(db_shape, dtype=nl.float32, buffer=nl.shared_hbm, name="db")
    core = GradientCore(x, dy, masks, recipe)
    for one in recipe.passes:
        clear_sums(core, one)
        stored = [False] * len(one.strips)
        for number in range(len(recipe.sweeps)):
            sweep = recipe.sweeps[number]
            if sweep.rolled:
                roll(core, one, sweep, places)
            else:
                turn = Turn(sweep.places[0], None, 0, recipe.addresses.places)
                is_last = number == len(recipe.sweeps) - 1
                run(core, one, sweep, turn, Store(dw, stored, is_last))
        for n in range(len(one.strips)):
            store_strip(core, one, n, Store(dw, stored, True))
        store_bias(core, one, db)
    return dw, db


class Store(nl.NKIObject):
    """Where the gradient goes, which strips are there, and whether this block is the last."""

    def __init__(self, dw: nl.NkiTensor, stored: list[bool], is_last: bool) -> None:  # noqa: FBT001
        self.dw = dw
        self.stored = stored
        self.is_last = is_last


def roll(core: GradientCore, one: Pass, sweep: Sweep, places: nl.NkiTensor) -> None:
    """One hardware loop over all places of a sweep; each turn reads its offsets from the table."""

    def one_turn(number: nisa.VirtualRegister) -> None:
        at = core.recipe.addresses.places
        turn = Turn(sweep.places[0], places, sweep.first_turn, at)
        turn.load(number)
        run(core, one, sweep, turn, Store(None, [], False))

    nl.fori_loop(0, len(sweep.places), one_turn)


def run(core: GradientCore, one: Pass, sweep: Sweep, turn: Turn, store: Store) -> None:
    """Block after block; dy of the next one is on its way while this one is summed."""
    core.start_over()
    blocks = sweep.blocks
    load_dy(core, one, turn, blocks[0])
    for n in range(len(blocks)):
        following = blocks[n + 1] if n + 1 < len(blocks) else None
        finishes = store.is_last and n + 1 == len(blocks)
        sum_up(core, one, turn, Step(blocks[n], following, store if finishes else None))


class Step(nl.NKIObject):
    """A block, the one after it in its turn, and where its sums go if it is the last of all."""

    def __init__(self, block: Block, following: Block | None, store: Store | None) -> None:
        self.block = block
        self.following = following
        self.store = store


def sum_up(core: GradientCore, one: Pass, turn: Turn, step: Step) -> None:
    """Every strip that a block adds to, and the bias gradient."""
    block = step.block
    dy = core.dy_in_use()
    if one.with_bias:
        add_bias(core, one, block, dy)
    if step.following != None:
        load_dy(core, one, turn, step.following)
    present = []
    for n in range(len(one.strips)):
        if block.frames[one.strips[n].frame_tap].number >= 0:
            present.append(n)
    for n in range(len(present)):
        strip = one.strips[present[n]]
        moving = held_x(core, turn, block, strip)
        if n + 1 < len(present):
            held_x(core, turn, block, one.strips[present[n + 1]])
        add_strip(core, one, block, strip, Operands(dy, moving))
        if step.store != None:
            store_strip(core, one, present[n], step.store)


class Operands(nl.NKIObject):
    """Transposed tiles: dy [positions, copies x tiles x channels], x [positions, taps, tiles,
    channels].
    """

    def __init__(self, dy: nl.NkiTensor, x: nl.NkiTensor) -> None:
        self.dy = dy
        self.x = x


def add_strip(
    core: GradientCore, one: Pass, block: Block, strip: StripWork, operands: Operands
) -> None:
    """All output channels of a pass by the columns of one strip."""
    stationary = dy_tiles(core, one, operands.dy, strip.mask)
    for number in range(core.out_tiles(one)):
        first = number * core.recipe.lines
        lines = min(core.recipe.lines, one.outs - first)
        bank = core.next_bank()[0:lines, 0 : strip.columns]
        for tile in range(len(block.tiles)):
            positions = block.tiles[tile]
            nisa.nc_matmul(
                dst=bank,
                stationary=stationary[0:positions, tile, first : first + lines],
                moving=operands.x[0:positions, :, tile, :],
                accumulate=tile > 0,
            )
        kept = core.sums[number][0:lines, strip.kept : strip.kept + strip.columns]
        nisa.tensor_tensor(dst=kept, data1=kept, data2=bank, op=nl.add)


def add_bias(core: GradientCore, one: Pass, block: Block, dy: nl.NkiTensor) -> None:
    """Sums of dy: the same matmul, with a column of ones in place of x."""
    stationary = dy_tiles(core, one, dy, 0)
    for number in range(core.out_tiles(one)):
        first = number * core.recipe.lines
        lines = min(core.recipe.lines, one.outs - first)
        bank = core.next_bank()[0:lines, 0:1]
        for tile in range(len(block.tiles)):
            positions = block.tiles[tile]
            nisa.nc_matmul(
                dst=bank,
                stationary=stationary[0:positions, tile, first : first + lines],
                moving=core.ones[0:positions, :],
                accumulate=tile > 0,
            )
        kept = core.bias_sums[0:lines, number : number + 1]
        nisa.tensor_tensor(dst=kept, data1=kept, data2=bank, op=nl.add)


def store_strip(core: GradientCore, one: Pass, n: int, store: Store) -> None:
    """The n-th strip of a pass to dw, unless it is there."""
    if not store.stored[n]:
        store.stored[n] = True
        strip = one.strips[n]
        for number in range(core.out_tiles(one)):
            first = number * core.recipe.lines
            lines = min(core.recipe.lines, one.outs - first)
            kept = core.sums[number][0:lines, strip.kept : strip.kept + strip.columns]
            rows = store.dw[one.out + first : one.out + first + lines]
            nisa.dma_copy(dst=rows[:, strip.column : strip.column + strip.columns], src=kept)


def store_bias(core: GradientCore, one: Pass, db: nl.NkiTensor) -> None:
    """The bias gradient of a pass, if it made one."""
    if one.with_bias:
        for number in range(core.out_tiles(one)):
            first = number * core.recipe.lines
            lines = min(core.recipe.lines, one.outs - first)
            kept = core.bias_sums[0:lines, number : number + 1]
            nisa.dma_copy(dst=db[one.out + first : one.out + first + lines, :], src=kept)

"""Forward convolution: one matmul per filter tap (or stack of taps), summed in PSUM.

    y[o, p] = bias[o] + sum over taps t, channels i of  w[o, i, t] * x[i, window(p, t)]

Filters stand in the PE array (stationary), input lines stream past them (moving), straight from the
windows they were loaded into. Nothing is decided here: the recipe lists windows, accumulations and
places.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.direct.composed_epilogue import elu, leaky_relu, leaky_relu_of_sum
from trnconv.algorithms.direct.core import (
    BankSum,
    Core,
    DirectBlock,
    held_weights,
    held_window,
    load_ahead,
    load_bias,
    load_weights,
)
from trnconv.algorithms.direct.recipe import (
    BlockSweep,
    Chunk,
    Matmul,
    Phase,
    Recipe,
    SumRecipe,
    WindowView,
)
from trnconv.algorithms.kernel_parts import (
    OPERATORS,
    Anchor,
    Iteration,
    Pair,
    fence,
    output,
    wait_for_both,
)
from trnconv.algorithms.recipe_parts import RecipePair
from trnconv.problem.epilogue import AFTER, ELU, IDENTITY, RELU


def forward(
    x: nl.NkiTensor,
    weights: nl.NkiTensor,
    bias: nl.NkiTensor,
    places: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    recipe: Recipe,
) -> nl.NkiTensor:
    """x [N, C_in, D, H, W] and what is packed -> y [N, C_out, D', H', W']."""
    return forward_of_pieces((x,), weights, bias, places, residual, recipe)


def forward_of_pieces(
    x: tuple[nl.NkiTensor, ...],
    weights: nl.NkiTensor,
    bias: nl.NkiTensor,
    places: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    recipe: Recipe,
) -> nl.NkiTensor:
    """The same for an input that lies in several tensors, one after the other along the frames."""
    y = output(x[0], recipe.y_shape, recipe.epilogue.dtype)
    compute(Core(x, y, weights, bias, residual, recipe), places)
    if recipe.fence:
        fence(y)
    return y


def forward_of_two(
    first: nl.NkiTensor,
    second: nl.NkiTensor,
    weights: nl.NkiTensor,
    bias: nl.NkiTensor,
    places: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    recipe: Recipe,
) -> nl.NkiTensor:
    """Frames of `first`, then of `second`."""
    return forward_of_pieces((first, second), weights, bias, places, residual, recipe)


def forward_of_three(
    first: nl.NkiTensor,
    second: nl.NkiTensor,
    third: nl.NkiTensor,
    weights: nl.NkiTensor,
    bias: nl.NkiTensor,
    places: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    recipe: Recipe,
) -> nl.NkiTensor:
    """Frames of `first`, then of `second`, then of `third`."""
    return forward_of_pieces((first, second, third), weights, bias, places, residual, recipe)


def forward_on_two_cores(
    x: nl.NkiTensor,
    weights_0: nl.NkiTensor,
    weights_1: nl.NkiTensor,
    bias_0: nl.NkiTensor,
    bias_1: nl.NkiTensor,
    places_0: nl.NkiTensor,
    places_1: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    recipes: RecipePair,
) -> nl.NkiTensor:
    """All frames in one tensor."""
    weights = Pair(weights_0, weights_1)
    bias = Pair(bias_0, bias_1)
    places = Pair(places_0, places_1)
    return on_two_cores((x,), weights, bias, places, residual, recipes)


def forward_of_two_on_two_cores(
    first: nl.NkiTensor,
    second: nl.NkiTensor,
    weights_0: nl.NkiTensor,
    weights_1: nl.NkiTensor,
    bias_0: nl.NkiTensor,
    bias_1: nl.NkiTensor,
    places_0: nl.NkiTensor,
    places_1: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    recipes: RecipePair,
) -> nl.NkiTensor:
    """Frames of `first`, then of `second`."""
    weights = Pair(weights_0, weights_1)
    bias = Pair(bias_0, bias_1)
    places = Pair(places_0, places_1)
    return on_two_cores((first, second), weights, bias, places, residual, recipes)


def forward_of_three_on_two_cores(
    first: nl.NkiTensor,
    second: nl.NkiTensor,
    third: nl.NkiTensor,
    weights_0: nl.NkiTensor,
    weights_1: nl.NkiTensor,
    bias_0: nl.NkiTensor,
    bias_1: nl.NkiTensor,
    places_0: nl.NkiTensor,
    places_1: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    recipes: RecipePair,
) -> nl.NkiTensor:
    """Frames of `first`, then of `second`, then of `third`."""
    weights = Pair(weights_0, weights_1)
    bias = Pair(bias_0, bias_1)
    places = Pair(places_0, places_1)
    return on_two_cores((first, second, third), weights, bias, places, residual, recipes)


def on_two_cores(
    x: tuple[nl.NkiTensor, ...],
    weights: Pair,
    bias: Pair,
    places: Pair,
    residual: nl.NkiTensor | None,
    recipes: RecipePair,
) -> nl.NkiTensor:
    """The same, with each of two cores computing its share of y."""
    number = nl.program_id(0)
    recipe = recipes.cores[number]
    y = output(x[0], recipe.y_shape, recipe.epilogue.dtype)
    core = Core(x, y, weights.of(number), bias.of(number), residual, recipe)
    compute(core, places.of(number))
    wait_for_both(y)
    if recipe.fence:
        fence(y)
    return y


def compute(core: Core, places: nl.NkiTensor) -> None:
    """Fill y, sweep by sweep."""
    for sweep in core.recipe.sweeps:
        if sweep.looped:
            load_weights(core, core.weights.shape[1])
            load_bias(core)
            run_loop(core, sweep, places)
        else:
            run(core, blocks_of(core, sweep, None))


def run_loop(core: Core, sweep: BlockSweep, places: nl.NkiTensor) -> None:
    """One hardware loop over all places of a sweep; each iteration reads offsets from the table."""
    recipe = core.recipe
    blocks_in_a_row = places.shape[1] // (recipe.pieces + 1)
    cells = (recipe.places_address, recipe.pieces, blocks_in_a_row)

    def one_iteration(number: nisa.VirtualRegister) -> None:
        iteration = Iteration(places, sweep.first_iteration, number, cells)
        run(core, blocks_of(core, sweep, iteration))

    nl.fori_loop(0, sweep.iterations, one_iteration)


def blocks_of(core: Core, sweep: BlockSweep, iteration: Iteration | None) -> list[DirectBlock]:
    """The blocks of a sweep, or of an iteration of its loop."""
    blocks: list[DirectBlock] = []
    windows = 0
    for n in range(len(sweep.kinds)):
        kind = core.recipe.kinds[sweep.kinds[n]]
        blocks.append(DirectBlock(kind, windows, Anchor(sweep.places[n], iteration, n)))
        windows += len(kind.windows)
    return blocks


def run(core: Core, blocks: list[DirectBlock]) -> None:
    """Block after block. Windows are loaded when an accumulation first reads them, or earlier."""
    core.start_over()
    for n in range(len(blocks)):
        block = blocks[n]
        for number in range(len(block.kind.accumulations)):
            out = sum_up(core, block, block.kind.accumulations[number])
            if number == 0 and n + 1 < len(blocks):
                load_ahead(core, blocks[n + 1])
            for store in block.kind.accumulations[number].stores:
                lines = out[store.line : store.line + store.lines, :, :]
                nisa.dma_copy(dst=block.in_y(core.y, store), src=lines)


def sum_up(core: Core, block: DirectBlock, accumulation: SumRecipe) -> nl.NkiTensor:
    """All sums of an accumulation, in an output buffer."""
    out = core.next_out(accumulation)
    residual = core.next_residual(block, accumulation)
    sums: list[BankSum] = []
    for visit in accumulation.visits:
        chunk = accumulation.chunks[visit.chunk]
        if visit.chunk == 0:
            sums.append(core.next_sum(accumulation, accumulation.tiles[visit.tile]))
        add_products(core, block, sums[visit.tile], chunk)
        if visit.chunk == len(accumulation.chunks) - 1:
            evict(core, accumulation, sums[visit.tile], out, residual)
    return out


def add_products(core: Core, block: DirectBlock, total: BankSum, chunk: Chunk) -> None:
    """total += transpose(stationary) @ moving, for every matmul of a chunk."""
    weights = held_weights(core, chunk)
    for matmul in chunk.matmuls:
        window = held_window(core, block, matmul.window)
        first = matmul.weight - weights.column
        stationary = weights.tile[0 : window.shape[0], first : first + matmul.lines]
        add_product(total, stationary, window, block.kind.views[matmul.view], matmul)


def add_product(
    total: BankSum, stationary: nl.NkiTensor, window: nl.NkiTensor, view: WindowView, matmul: Matmul
) -> None:
    """One product, on the positions of the tile that the view reads at all."""
    tile = total.tile
    i, i_end = max(tile.i, view.first_i), min(tile.i_end, view.end_i)
    j, j_end = max(tile.j, view.first_j), min(tile.j_end, view.end_j)
    if i >= i_end or j >= j_end:
        return
    if i > tile.i or i_end < tile.i_end or j > tile.j or j_end < tile.j_end:
        total.begin(matmul.part, matmul.line, matmul.lines)
    row, column = view.row + i * view.row_step, view.column + j * view.column_step
    row_end = row + (i_end - i - 1) * view.row_step + 1
    column_end = column + (j_end - j - 1) * view.column_step + 1
    lines = total.bank[matmul.line : matmul.line + matmul.lines]
    total.multiply(
        lines[:, i - tile.i : i_end - tile.i, j - tile.j : j_end - tile.j],
        stationary,
        window[:, row : row_end : view.row_step, column : column_end : view.column_step],
        matmul.part,
        matmul.line,
    )


def evict(
    core: Core,
    accumulation: SumRecipe,
    total: BankSum,
    out: nl.NkiTensor,
    residual: nl.NkiTensor | None,
) -> None:
    """out = the end of total + bias, phase by phase of the columns; or column by column."""
    load_bias(core)
    if not total.begun[0]:
        total.begin(0, 0, accumulation.columns)
    tile = total.tile
    for phase in accumulation.phases:
        j_end = min(tile.j_end, phase.count)
        if j_end > tile.j:
            width = 1 if core.recipe.by_column and phase.step > 1 else j_end - tile.j
            for j in range(tile.j, j_end, width):
                evict_columns(core, total, phase, (j, j + width), out, residual)


def evict_columns(
    core: Core,
    total: BankSum,
    phase: Phase,
    columns: tuple[int, int],
    out: nl.NkiTensor,
    residual: nl.NkiTensor | None,
) -> None:
    """The same for some columns of a phase: first and end."""
    accumulation, tile, lines = total.accumulation, total.tile, phase.line + phase.lines
    j, j_end = columns
    first = j * phase.step + phase.column
    last = (j_end - 1) * phase.step + phase.column
    top = tile.i * phase.row_step + phase.row
    bottom = (tile.i_end - 1) * phase.row_step + phase.row + 1
    rows = out[0 : phase.lines, top : bottom : phase.row_step, :]
    written = rows[:, :, first : last + 1 : phase.step]
    done = total.bank[phase.line : lines, :, j - tile.j : j_end - tile.j]
    bias = core.bias[phase.line : lines, accumulation.bias : accumulation.bias + 1]
    scaled = None
    if core.slope_bias != None:
        scaled = core.slope_bias[phase.line : lines, accumulation.bias : accumulation.bias + 1]
    if residual == None:
        finish(core, written, done, bias, scaled)
    else:
        if core.recipe.epilogue.coarse == None:
            part = residual[0 : phase.lines, top : bottom : phase.row_step, :]
            added = part[:, :, first : last + 1 : phase.step]
        else:
            cells = phase.row * (accumulation.rows // phase.row_step)
            added = residual[0 : phase.lines, cells + tile.i : cells + tile.i_end, j:j_end]
        finish_with_residual(core, written, done, (bias, scaled), added)


def finish(
    core: Core,
    written: nl.NkiTensor,
    done: nl.NkiTensor,
    bias: nl.NkiTensor,
    scaled: nl.NkiTensor | None,
) -> None:
    """written = activation(done + bias); Vector and Scalar engine take turns where both can.

    `scaled` is the bias times the slope of a leaky ReLU, if that is what the activation is.
    """
    activation = core.recipe.epilogue.activation
    if activation == ELU:
        elu(core, written, done, bias)
        return
    if scaled != None:
        leaky_relu(core, written, done, bias, scaled)
        return
    alone = activation == IDENTITY and not core.recipe.scalar_adds
    if not core.recipe.epilogue.shares_engines() or not (alone or core.next_on_vector()):
        nisa.activation(dst=written, op=OPERATORS[activation], data=done, bias=bias)
    elif activation == RELU:
        nisa.tensor_scalar(
            dst=written, data=done, op0=nl.add, operand0=bias, op1=nl.maximum, operand1=0.0
        )
    else:
        nisa.tensor_scalar(dst=written, data=done, op0=nl.add, operand0=bias)


def finish_with_residual(
    core: Core,
    written: nl.NkiTensor,
    done: nl.NkiTensor,
    biases: tuple[nl.NkiTensor, nl.NkiTensor | None],
    residual: nl.NkiTensor,
) -> None:
    """written = activation(done + bias + residual), or activation(done + bias) + residual.

    What is in between stays in PSUM, in float32; if PSUM is not to be replaced, or if a composed
    activation comes before the residual, it is rounded to the output's type.
    """
    epilogue = core.recipe.epilogue
    bias, scaled = biases
    if epilogue.residual == AFTER and (epilogue.activation == ELU or scaled != None):
        finish(core, written, done, bias, scaled)
        nisa.tensor_tensor(dst=written, data1=written, data2=residual, op=nl.add)
        return
    kept = done if core.recipe.in_place else written
    if epilogue.residual == AFTER and (epilogue.activation != IDENTITY or core.recipe.scalar_adds):
        nisa.activation(dst=kept, op=OPERATORS[epilogue.activation], data=done, bias=bias)
        nisa.tensor_tensor(dst=written, data1=kept, data2=residual, op=nl.add)
        return
    between = written if epilogue.activation == IDENTITY else kept
    nisa.scalar_tensor_tensor(
        dst=between, data=done, op0=nl.add, operand0=bias, op1=nl.add, operand1=residual
    )
    if epilogue.activation == ELU:
        elu(core, written, between, None)
    elif scaled != None:
        leaky_relu_of_sum(core, written, between)
    elif epilogue.activation != IDENTITY:
        nisa.activation(dst=written, op=OPERATORS[epilogue.activation], data=between)

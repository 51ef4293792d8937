"""From a plan to its recipe: every load, product and store, and the packed weights they use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nkisim.machine import PARTITIONS
from trnconv.algorithms.algorithm import ArraySpec, Lowered
from trnconv.algorithms.direct.accumulations import accumulations_of
from trnconv.algorithms.direct.array.m_layout import OutTile
from trnconv.algorithms.direct.block_recipe import kind_recipe
from trnconv.algorithms.direct.block_types import BlockType, PlacedBlock, blocks_of
from trnconv.algorithms.direct.loops import iteration_blocks, stretches_of
from trnconv.algorithms.direct.plan import DirectPlan
from trnconv.algorithms.direct.recipe import BlockSweep, KindRecipe, Recipe
from trnconv.algorithms.direct.reduced_problem import stored_out
from trnconv.algorithms.direct.sbuf import lay_out
from trnconv.algorithms.direct.stationaries import ChunkWeights, WeightImage
from trnconv.algorithms.recipe_parts import Place
from trnconv.problem.epilogue import slope_of

_FIRST_LOADS = (
    2,
    4,
)  # matrices of the first weight loads: small, so that the first matmul is early
_LOAD = 8  # matrices of the later ones


@dataclass(frozen=True)
class DirectLowered(Lowered[DirectPlan]):
    """The recipe, and what the images of weights and bias and the table of places are made of."""

    weights: tuple[tuple[ChunkWeights, int], ...]  # and their first columns in the weight image
    bias_channels: tuple[tuple[int, ...], ...]  # channel of each partition, by column; -1: none
    places: tuple[tuple[int, ...], ...]  # iterations of looped sweeps: x offsets, then y offsets


def lower(plan: DirectPlan) -> DirectLowered:
    """Everything the kernel does for a plan, and everything it is given."""
    shape = plan.shape
    image, biases = WeightImage(), _BiasImage()
    kinds: dict[BlockType, KindRecipe] = {}
    blocks = blocks_of(plan)
    for number, block in enumerate(blocks):
        if block.kind not in kinds:
            accumulations = accumulations_of(
                plan.reduced, plan.passes, block.kind.frame_count, block.kind.frames
            )
            columns = [biases.column(accumulation.out) for accumulation in accumulations]
            kinds[block.kind] = kind_recipe(
                plan, block.kind, accumulations, image, columns, window_first=number == 0
            )
    sweeps, table = _sweeps(plan, blocks, kinds)
    chunk = max((chunk_width(kind) for kind in kinds.values()), default=0)
    layout = lay_out(plan, image.width, chunk, len(biases.channels))
    recipe = Recipe(
        y_shape=(shape.batch, shape.c_out, *stored_out(shape)),
        lines=PARTITIONS,
        rings=layout.rings,
        weights=layout.weights,
        out=layout.out,
        residual=layout.residual,
        epilogue=plan.epilogue,
        slope=slope_of(plan.epilogue.activation),
        scalar_adds=plan.scalar_adds,
        bias_columns=len(biases.channels),
        bias_address=layout.bias_address,
        zeros=layout.zeros,
        zeros_address=layout.zeros_address,
        places_address=layout.places_address,
        pieces=plan.placed_tensors,
        banks=plan.machine.psum_banks,
        bank_elems=plan.machine.psum_bank_fp32_elems,
        in_place=plan.machine.accepts.psum_in_place,
        by_column=plan.evicts_by_column,
        fence=plan.is_fenced,
        ahead=plan.ahead,
        weight_loads=() if plan.streamed else _weight_loads(image),
        kinds=tuple(kinds.values()),
        sweeps=sweeps,
    )
    places = tuple(table) or ((0,) * ((recipe.pieces + 1) * iteration_blocks(plan)),)
    arrays = (
        ArraySpec((PARTITIONS, max(1, image.width)), plan.dtype),
        ArraySpec((PARTITIONS, len(biases.channels)), "float32"),
        ArraySpec((len(places), len(places[0])), "int32"),
    )
    return DirectLowered(
        plan,
        recipe,
        arrays,
        plan.input_specs(),
        (recipe.y_shape,),
        tuple(image.chunks.items()),
        tuple(biases.channels),
        places,
    )


def chunk_width(of_kind: KindRecipe) -> int:
    """Columns of the widest chunk of weights."""
    return max(
        (
            chunk.weight_end - chunk.weight
            for accumulation in of_kind.accumulations
            for chunk in accumulation.chunks
        ),
        default=0,
    )


class _BiasImage:
    """Columns of the bias image: one for each distinct tile of outputs."""

    def __init__(self) -> None:
        self.channels: list[tuple[int, ...]] = []

    def column(self, out: OutTile) -> int:
        """The column that has each partition's channel."""
        lines = [-1] * out.width
        for line in out.lines:
            for number in range(line.channels):
                lines[line.line + number * line.step] = line.channel + number
        if tuple(lines) not in self.channels:
            self.channels.append(tuple(lines))
        return self.channels.index(tuple(lines))


def _sweeps(
    plan: DirectPlan, blocks: list[PlacedBlock], kinds: dict[BlockType, KindRecipe]
) -> tuple[tuple[BlockSweep, ...], list[tuple[int, ...]]]:
    numbers = {kind: number for number, kind in enumerate(kinds)}
    sweeps: list[BlockSweep] = []
    table: list[tuple[int, ...]] = []
    for stretch in stretches_of(plan, blocks):
        first = stretch.iterations[0]
        sweeps.append(
            BlockSweep(
                kinds=tuple(numbers[block.kind] for block in first),
                places=tuple(Place(block.x, block.y) for block in first),
                looped=stretch.is_loop,
                first_iteration=len(table),
                iterations=len(stretch.iterations),
            )
        )
        if stretch.is_loop:
            table += [_cells(iteration, iteration_blocks(plan)) for iteration in stretch.iterations]
    return tuple(sweeps), table


def _cells(iteration: Sequence[PlacedBlock], most: int) -> tuple[int, ...]:
    """A row of the place table: offsets of an iteration's blocks, tensor by tensor, then into y."""
    fill = [0] * (most - len(iteration))
    columns = [
        *zip(*[block.x for block in iteration], strict=True),
        [block.y for block in iteration],
    ]
    return tuple(offset for column in columns for offset in (*column, *fill))


def _weight_loads(image: WeightImage) -> tuple[tuple[int, int], ...]:
    matrices = list(image.matrix_columns())
    loads = []
    sizes = [*_FIRST_LOADS]
    at = 0
    while at < len(matrices):
        last = min(at + (sizes.pop(0) if sizes else _LOAD), len(matrices))
        loads.append((matrices[at][0], matrices[last - 1][1]))
        at = last
    return tuple(loads)

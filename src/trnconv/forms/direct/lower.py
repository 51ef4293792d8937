"""From a plan to its recipe: every load, product and store, and the packed weights they use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nkisim.machine import PARTITIONS
from trnconv.ask.ends import slope_of
from trnconv.forms.direct.array.m_lines import OutTile
from trnconv.forms.direct.block_recipe import kind_recipe
from trnconv.forms.direct.block_types import BlockType, PlacedBlock, blocks_of
from trnconv.forms.direct.jobs import jobs_of
from trnconv.forms.direct.loops import stretches_of, turn_blocks
from trnconv.forms.direct.plan import DirectPlan
from trnconv.forms.direct.problem import stored_out
from trnconv.forms.direct.recipe import BlockSweep, KindRecipe, Recipe
from trnconv.forms.direct.sbuf import lay_out
from trnconv.forms.direct.stationaries import ChunkWeights, WeightImage
from trnconv.forms.form import ArraySpec, Lowered
from trnconv.forms.recipe_parts import Place

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
    places: tuple[tuple[int, ...], ...]  # turns of rolled sweeps: x offsets, then y offsets


def lower(plan: DirectPlan) -> DirectLowered:
    """Everything the kernel does for a plan, and everything it is given."""
    shape = plan.shape
    image, biases = WeightImage(), _BiasImage()
    kinds: dict[BlockType, KindRecipe] = {}
    blocks = blocks_of(plan)
    for number, block in enumerate(blocks):
        if block.kind not in kinds:
            jobs = jobs_of(plan.problem, plan.passes, block.kind.frame_count, block.kind.frames)
            columns = [biases.column(job.out) for job in jobs]
            kinds[block.kind] = kind_recipe(
                plan, block.kind, jobs, image, columns, window_first=number == 0
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
        end=plan.end,
        slope=slope_of(plan.end.activation),
        scalar_adds=plan.scalar_adds,
        bias_columns=len(biases.channels),
        bias_address=layout.bias_address,
        zeros=layout.zeros,
        zeros_address=layout.zeros_address,
        places_address=layout.places_address,
        pieces=plan.placed_tensors,
        banks=plan.target.psum_banks,
        bank_elems=plan.target.psum_bank_fp32_elems,
        in_place=plan.target.accepts.psum_in_place,
        by_column=plan.evicts_by_column,
        fence=plan.is_fenced,
        ahead=plan.ahead,
        weight_loads=() if plan.streamed else _weight_loads(image),
        kinds=tuple(kinds.values()),
        sweeps=sweeps,
    )
    places = tuple(table) or ((0,) * ((recipe.pieces + 1) * turn_blocks(plan)),)
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


def chunk_width(one: KindRecipe) -> int:
    """Columns of the widest chunk of weights."""
    return max(
        (chunk.weight_end - chunk.weight for job in one.jobs for chunk in job.chunks), default=0
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
        first = stretch.turns[0]
        sweeps.append(
            BlockSweep(
                kinds=tuple(numbers[block.kind] for block in first),
                places=tuple(Place(block.x, block.y) for block in first),
                rolled=stretch.is_loop,
                first_turn=len(table),
                turns=len(stretch.turns),
            )
        )
        if stretch.is_loop:
            table += [_cells(turn, turn_blocks(plan)) for turn in stretch.turns]
    return tuple(sweeps), table


def _cells(turn: Sequence[PlacedBlock], most: int) -> tuple[int, ...]:
    """A row of the place table: offsets of a turn's blocks, tensor by tensor, then into y."""
    fill = [0] * (most - len(turn))
    columns = [*zip(*[block.x for block in turn], strict=True), [block.y for block in turn]]
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

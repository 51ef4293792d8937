"""A Winograd plan worked out: the recipe its kernel obeys, and what the host packs for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trnconv.algorithms.algorithm import ArraySpec, Lowered
from trnconv.algorithms.float_terms import bf16_terms
from trnconv.algorithms.recipe_parts import loop_spans
from trnconv.algorithms.rectangles import rectangles
from trnconv.algorithms.winograd.blocks import BlockAt, BlockSpan, blocks
from trnconv.algorithms.winograd.channels import (
    in_channels,
    matrices_of_a_load,
    out_channels,
    taps_of,
)
from trnconv.algorithms.winograd.in_parts import in_part
from trnconv.algorithms.winograd.pipeline_schedule import schedule
from trnconv.algorithms.winograd.plan import HEIGHT, WIDTH, WinogradPlan
from trnconv.algorithms.winograd.recipe import (
    ChannelTile,
    Group,
    InTile,
    Iterations,
    Located,
    MatrixProduct,
    NormRecipe,
    OutRectangles,
    WinogradBlockType,
    WinogradRecipe,
)
from trnconv.algorithms.winograd.sbuf import (
    CONSTANTS,
    FastMemory,
    constant_columns,
    lay_out,
    sums_root_by_lines,
    tile_rows,
)
from trnconv.algorithms.winograd.transforms import OUTER


@dataclass(frozen=True)
class WinogradLowered(Lowered[WinogradPlan]):
    """The recipe, and the table of places of its loops."""

    places: tuple[tuple[int, ...], ...]


def lower(plan: WinogradPlan) -> WinogradLowered:
    """Everything the kernel does."""
    shape, algorithm = plan.shape, plan.transforms
    memory, body = lay_out(plan), schedule(plan)
    elems = shape.size[HEIGHT] * shape.size[WIDTH]
    kinds, located, loops, places = _program(plan)
    recipe = WinogradRecipe(
        y_shape=(shape.batch, shape.c_out, *shape.out_sizes()),
        transform=algorithm.name,
        outputs=algorithm.outputs,
        positions=algorithm.products,
        by_rows=plan.by_rows,
        unit_frames=plan.unit_frames,
        v_frames=plan.v_frames,
        x_tiles=plan.x_tiles,
        stages=plan.stages,
        pair_steps=OUTER.steps,
        gpsimd_pairs=plan.gpsimd_pairs,
        steps=algorithm.steps,
        gpsimd_steps=plan.gpsimd_steps,
        step_needs=algorithm.needs(plan.gpsimd_steps),
        steps_ahead=plan.steps_ahead,
        late_pauses=plan.late_pauses,
        gpsimd_outputs=plan.gpsimd_outputs,
        fence=plan.is_fenced,
        midgroup=plan.midgroup,
        epilogue=plan.epilogue,
        prologue=plan.prologue,
        channel_steps=tuple(frames * elems for frames in plan.frames),
        frame_elems=elems,
        x_width=shape.size[WIDTH],
        completes=completes(plan),
        in_tiles=_in_tiles(plan, memory),
        groups=out_groups(plan),
        kinds=kinds,
        first_loads=body.first_loads,
        first_prepares=body.first_prepares,
        units=body.units,
        body_blocks=plan.body_blocks,
        blocks=located,
        loops=loops,
        lines=plan.machine.partitions,
        weights=memory.weights,
        streamed=plan.streamed > 0,
        scratch=memory.scratch,
        paired=memory.paired,
        held=memory.held,
        copies=memory.copies,
        out=memory.out,
        residual=memory.residual,
        constants=constant_columns(plan),
        constants_address=memory.constants_address,
        factors_address=memory.factors_address,
        places_address=memory.places_address,
        banks=plan.machine.psum_banks,
        bank_elems=plan.machine.psum_bank_fp32_elems,
        norm=_norm(plan, memory),
    )
    table = places or ((0,),)
    arrays = _arrays(recipe, table)
    return WinogradLowered(plan, recipe, arrays, plan.input_specs(), output_shapes(plan), table)


def _arrays(recipe: WinogradRecipe, table: tuple[tuple[int, ...], ...]) -> tuple[ArraySpec, ...]:
    """What the host packs: weights, constants, places."""
    return (
        ArraySpec((recipe.lines, recipe.groups[-1].weight_end), "float16"),
        ArraySpec((recipe.lines, recipe.constants), "float32"),
        ArraySpec((len(table), len(table[0])), "int32"),
    )


def _in_tiles(plan: WinogradPlan, memory: FastMemory) -> tuple[InTile, ...]:
    return tuple(
        InTile(tile.first, tile.channels, tile.lines, memory.x[n % len(memory.x)], v)
        for n, (tile, v) in enumerate(zip(in_channels(plan), memory.v, strict=True))
    )


def output_shapes(plan: WinogradPlan) -> tuple[tuple[int, ...], ...]:
    """Of y, unless only its norm is stored, and of the norm's one or two tensors."""
    batch, channels = plan.shape.batch, plan.shape.c_out
    frames, *image = plan.shape.out_sizes()
    y, norm = (batch, channels, frames, *image), plan.epilogue.norm
    if norm is None:
        return (y,)
    own = tuple((batch, channels, count, *image) for count in norm.frames(frames))
    return (y, *own) if norm.keeps else own


def _norm(plan: WinogradPlan, memory: FastMemory) -> NormRecipe | None:
    epilogue = plan.epilogue.norm
    if epilogue is None:
        return None
    terms = bf16_terms(epilogue.under_root)
    return NormRecipe(
        terms=terms,
        by_lines=sums_root_by_lines(plan, len(terms)),
        quadrant=plan.machine.quadrant_partitions,
        activation=epilogue.activation,
        has_beta=epilogue.has_beta,
        keeps=epilogue.keeps,
        first=epilogue.first,
        squares=memory.squares,
        products=memory.products,
        ones=memory.ones,
        under_root=memory.under_root,
        scales=memory.scales,
        sums=plan.machine.psum_banks - plan.chain_banks,
    )


def completes(plan: WinogradPlan) -> bool:
    """Whether inputs are scaled or copied before they are transformed."""
    return plan.prologue.scaled or any(tile.copied for tile in in_channels(plan))


def out_groups(plan: WinogradPlan) -> tuple[Group, ...]:
    """Output tiles with their matmuls, by group; weights follow each other in order of use."""
    column = 0
    groups = []
    tiles = out_channels(plan)
    for first in range(0, len(tiles), plan.group):
        begin, members = column, []
        for number, tile in enumerate(tiles[first : first + plan.group], first):
            taps = taps_of(plan, tile.shared)
            products = tuple(
                MatrixProduct(tap.tile, tap.read, tap.row, tap.column, n * tile.width)
                for n, tap in enumerate(taps)
            )
            width = len(taps) * tile.width
            members.append(
                ChannelTile(
                    tile.first,
                    tile.channels,
                    tile.stack,
                    tile.pitch,
                    tile.lines,
                    tile.width,
                    tile.side_by_side,
                    number,
                    CONSTANTS * number,
                    column,
                    width,
                    products,
                    matrices_of_a_load(len(taps)),
                )
            )
            column += width * plan.transforms.products * plan.stages
        groups.append(Group(begin, column, tuple(members)))
    return tuple(groups)


def _program(
    plan: WinogradPlan,
) -> tuple[
    tuple[WinogradBlockType, ...],
    tuple[Located, ...],
    tuple[Iterations, ...],
    tuple[tuple[int, ...], ...],
]:
    """Kinds of blocks, those that are unrolled, loops over the others, and their table."""
    every = list(blocks(plan))
    one_of = {block.look: block for block in every}
    numbers = {look: number for number, look in enumerate(one_of)}
    kinds = tuple(kind_of(plan, block) for block in one_of.values())
    located: list[Located] = []
    loops: list[Iterations] = []
    table: list[tuple[int, ...]] = []
    for members in _alike(plan, every):
        iterations = len(members) // plan.body_blocks if plan.looped else 0
        looped = members[: iterations * plan.body_blocks] if iterations > 1 else []
        if looped:
            body = tuple(numbers[block.look] for block in looped[: plan.body_blocks])
            for first, end in loop_spans(iterations, plan.machine):
                loops.append(Iterations(body, len(table) + first, end - first))
            table += _rows(plan, looped)
        located += [Located(numbers[block.look], block.place) for block in members[len(looped) :]]
    return kinds, tuple(located), tuple(loops), tuple(table)


def _alike(plan: WinogradPlan, every: list[BlockAt]) -> list[list[BlockAt]]:
    """What a loop may go through: blocks of one kind, or spans along rows that are made alike.

    The fewest first: one of two cores has the upper border, the other the lower one, and both have
    to have the same loops in the same order. Of spans, those that are most frequent; blocks of the
    others stand alone.
    """
    alike: dict[object, list[BlockAt]] = {}
    for block in every:
        alike.setdefault(block.row.look if plan.spans else block.look, []).append(block)
    if not plan.spans:
        return sorted(alike.values(), key=len)
    most = max(alike.values(), key=len)
    return [
        *([block] for members in alike.values() if members is not most for block in members),
        most,
    ]


def _rows(plan: WinogradPlan, members: list[BlockAt]) -> list[tuple[int, ...]]:
    """A row an iteration: the offsets of its blocks into each tensor, then into y."""
    rows = []
    for first in range(0, len(members), plan.body_blocks):
        own = members[first : first + plan.body_blocks]
        into_tensors = zip(*(member.place.x for member in own), strict=True)
        x = [offset for offsets in into_tensors for offset in offsets]
        rows.append((*x, *(member.place.y for member in own)))
    return rows


def kind_of(plan: WinogradPlan, block: BlockAt) -> WinogradBlockType:
    """What all blocks that look like this one have in common."""
    row, column = block.row, block.column
    frame_rows = row.outs // plan.m if plan.by_rows else row.ins
    units = tuple(replace(unit, first=row.cut, rows=row.stored) for unit in block.frame.units)
    return WinogradBlockType(
        v_rows=plan.v_frames * frame_rows,
        frame_rows=frame_rows,
        v_columns=column.ins,
        columns=column.outs,
        ins=tuple(in_part(plan, tile, row, column) for tile in in_channels(plan)),
        outs=tuple(_out_part(plan, row, column, tile.stack) for tile in out_channels(plan)),
        frames=block.frame.frames,
        units=units,
    )


def _out_part(plan: WinogradPlan, row: BlockSpan, column: BlockSpan, stack: int) -> OutRectangles:
    most = plan.machine.psum_bank_fp32_elems
    return OutRectangles(rectangles(tile_rows(plan, row.outs), -(-column.outs // stack), most))

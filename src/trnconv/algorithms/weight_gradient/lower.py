"""From the plan of a weight gradient to its recipe, and to what the host has to prepare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nkisim.machine import V3
from trnconv.algorithms.algorithm import ArraySpec, Lowered
from trnconv.algorithms.recipe_parts import loop_spans
from trnconv.algorithms.weight_gradient.blocks import blocks_of
from trnconv.algorithms.weight_gradient.iterations import (
    AreaIteration,
    appearance,
    channel_elems,
    image_elems,
    iterations,
    origin,
)
from trnconv.algorithms.weight_gradient.plan import HEIGHT, WIDTH, GradientStrip, WeightGradientPlan
from trnconv.algorithms.weight_gradient.recipe import (
    GradientBlock,
    GradientPass,
    IterationPlace,
    IterationSweep,
    PaddedWindow,
    SheetFill,
    SheetSteps,
    StripWork,
    TileFill,
    WeightGradientRecipe,
)
from trnconv.algorithms.weight_gradient.sbuf import addresses, dy_window_elems, window_elems
from trnconv.algorithms.weight_gradient.sheets import column_taps, row_steps

_TRANSPOSE_BANKS = 4  # the Tensor engine writes some while others are read


@dataclass(frozen=True)
class WeightGradientLowered(Lowered[WeightGradientPlan]):
    """The recipe, and the places of its looped iterations: offsets into x and dy."""

    places: tuple[tuple[int, int], ...]


def lower(plan: WeightGradientPlan) -> WeightGradientLowered:
    """Everything the kernel does for a plan."""
    sweeps, places = _sweeps(plan)
    shape, machine = plan.shape, plan.machine
    strips = plan.strips()
    recipe = WeightGradientRecipe(
        dw_shape=(shape.c_out, plan.gradient_columns),
        wide=plan.wide,
        by_dma=plan.by_dma,
        lines=machine.partitions,
        bank_elems=machine.psum_bank_fp32_elems,
        banks=machine.psum_banks - (0 if plan.by_dma else _TRANSPOSE_BANKS),
        transpose_banks=0 if plan.by_dma else _TRANSPOSE_BANKS,
        stores_early=machine.accepts.loads_ahead,
        wide_transposes=machine.generation < V3,
        tiles=plan.tiles,
        dy_copies=plan.dy_copies,
        masks=len(plan.masks),
        mask_tiles=plan.tiles // plan.images,
        channels=shape.c_in,
        pack_in=plan.pack_in,
        x_stride=channel_elems(plan),
        x_image=image_elems(plan)[0],
        x_row=shape.size[WIDTH],
        dy_stride=shape.positions(),
        dy_image=image_elems(plan)[1],
        dy_row=shape.out_size(WIDTH),
        row_step=shape.stride[HEIGHT],
        column_step=shape.stride[WIDTH],
        variants=max(strip.variant for strip in strips) + 1,
        outs=plan.outs,
        out_tiles=plan.out_tiles,
        slots=plan.slots,
        slot_elems=plan.slot_elems,
        sheets=_sheet_steps(plan),
        window_slots=plan.windows,
        window_elems=window_elems(plan),
        window_tiles=-(-max(strip.channels for strip in strips) // machine.partitions),
        dy_window_elems=dy_window_elems(plan),
        addresses=addresses(plan),
        passes=tuple(_passes(plan, strips)),
        sweeps=sweeps,
    )
    table = places or ((0, 0),)
    masks = max(1, len(plan.masks) * (plan.tiles // plan.images))
    arrays = (ArraySpec((recipe.lines, masks), "float32"), ArraySpec((len(table), 2), "int32"))
    outputs = (recipe.dw_shape, (shape.c_out, 1))
    return WeightGradientLowered(plan, recipe, arrays, plan.input_specs(), outputs, table)


def _sheet_steps(plan: WeightGradientPlan) -> SheetSteps:
    steps = row_steps(plan.shape)
    return SheetSteps(plan.unit if plan.has_sheets else 0, steps.by_row, steps.by_tap)


def _passes(plan: WeightGradientPlan, strips: Sequence[GradientStrip]) -> list[GradientPass]:
    passes = []
    begin, end = plan.own_outs
    for pack in plan.own_packs:
        for out in range(begin, end, plan.outs):
            for first in range(0, len(strips), plan.pass_strips):
                works = _strip_works(plan, strips[first : first + plan.pass_strips], pack)
                passes.append(
                    GradientPass(
                        out=pack * plan.pack_out + out,
                        outs=min(plan.outs, end - out),
                        columns=plan.pass_columns,
                        strips=works,
                        with_bias=first == 0 and plan.makes_bias,
                    )
                )
    return passes


def _strip_works(
    plan: WeightGradientPlan, strips: Sequence[GradientStrip], pack: int
) -> tuple[StripWork, ...]:
    taps = plan.shape.kernel
    works = []
    kept = 0
    for strip in strips:
        first = strip.column_tap * taps[HEIGHT] + strip.row_tap
        tap = strip.frame_tap * taps[WIDTH] * taps[HEIGHT] + first
        copy, phase = _met_by(plan, strip.column_tap)
        works.append(
            StripWork(
                variant=strip.variant,
                frame_tap=strip.frame_tap,
                column=tap * plan.pack_in + strip.channel,
                kept=kept,
                columns=strip.columns,
                taps=tuple(range(first, first + strip.column_taps * strip.row_taps)),
                channel=pack * plan.pack_in + strip.channel,
                channels=strip.channels,
                dy_copy=copy,
                row_tap=strip.row_tap,
                phase=phase,
                phases=strip.column_taps,
            )
        )
        kept += strip.columns
    return tuple(works)


def _met_by(plan: WeightGradientPlan, column_tap: int) -> tuple[int, int]:
    """Which copy of dy a column tap meets, and which columns of a sheet."""
    if plan.has_sheets:
        read = column_taps(plan.shape)[column_tap]
        return plan.shifts.index(read.shift), read.phase
    shape = plan.shape
    shift = column_tap * shape.dilation[WIDTH] - shape.pad_before[WIDTH]
    return plan.masks.index(shift) + 1 if shift in plan.masks else 0, 0


def _sweeps(
    plan: WeightGradientPlan,
) -> tuple[tuple[IterationSweep, ...], tuple[tuple[int, int], ...]]:
    """Iterations in order, or by looks if equal ones are a hardware loop; single ones come last."""
    looks: dict[tuple[object, ...], _Look] = {}
    listed: list[tuple[_Look, IterationPlace]] = []
    for iteration in iterations(plan):
        key = appearance(plan, iteration)
        if key not in looks:
            looks[key] = _look(plan, iteration)
        x, dy = origin(plan, iteration)
        listed.append((looks[key], IterationPlace(x + looks[key].x, dy + looks[key].dy)))
    if not plan.looped:
        return tuple(_sweep(iteration_look, (place,), 0) for iteration_look, place in listed), ()
    sweeps: list[IterationSweep] = []
    table: list[tuple[int, int]] = []
    for look in looks.values():
        every = tuple(place for iteration_look, place in listed if iteration_look is look)
        for first, end in loop_spans(len(every), plan.machine):
            places = every[first:end]
            sweeps.append(_sweep(look, places, len(table)))
            table += [(place.x, place.dy) for place in places] if sweeps[-1].looped else []
    return tuple(sorted(sweeps, key=lambda sweep: not sweep.looped)), tuple(table)


def _sweep(look: _Look, places: tuple[IterationPlace, ...], first_iteration: int) -> IterationSweep:
    numbers = [frame.number for block in look.blocks for frame in block.frames]
    return IterationSweep(look.blocks, max(numbers) + 1, places, len(places) > 1, first_iteration)


@dataclass(frozen=True)
class _Look:
    """Blocks with offsets from 0 on, and what that took away from them."""

    blocks: tuple[GradientBlock, ...]
    x: int
    dy: int


def _look(plan: WeightGradientPlan, iteration: AreaIteration) -> _Look:
    blocks = blocks_of(plan, iteration)
    x = min((at for block in blocks for at in _x_offsets(block)), default=0)
    dy = min(at for block in blocks for at in _dy_offsets(block))
    return _Look(tuple(_moved(block, x, dy) for block in blocks), x, dy)


def _x_offsets(block: GradientBlock) -> list[int]:
    offsets = []
    for frame in block.frames:
        offsets += _offsets((*frame.fills, frame.sheet), frame.window)
    return offsets


def _dy_offsets(block: GradientBlock) -> list[int]:
    return _offsets((block.fill, *block.sheets.dy), block.window)


def _offsets(fills: tuple[TileFill | SheetFill, ...], window: PaddedWindow) -> list[int]:
    return [load.offset for filled in (*fills, window) for load in filled.loads]


def _moved(block: GradientBlock, x: int, dy: int) -> GradientBlock:
    frames = tuple(
        replace(
            frame,
            fills=tuple(_moved_fill(fill, x) for fill in frame.fills),
            window=_moved_window(frame.window, x),
            sheet=_moved_sheet(frame.sheet, x),
        )
        for frame in block.frames
    )
    fill, window = _moved_fill(block.fill, dy), _moved_window(block.window, dy)
    copies = tuple(_moved_sheet(copy, dy) for copy in block.sheets.dy)
    sheets = replace(block.sheets, dy=copies)
    return replace(block, frames=frames, fill=fill, window=window, sheets=sheets)


def _moved_fill(fill: TileFill, by: int) -> TileFill:
    loads = tuple(replace(load, offset=load.offset - by) for load in fill.loads)
    return replace(fill, loads=loads)


def _moved_sheet(fill: SheetFill, by: int) -> SheetFill:
    loads = tuple(replace(load, offset=load.offset - by) for load in fill.loads)
    return replace(fill, loads=loads)


def _moved_window(window: PaddedWindow, by: int) -> PaddedWindow:
    loads = tuple(replace(load, offset=load.offset - by) for load in window.loads)
    return replace(window, loads=loads)

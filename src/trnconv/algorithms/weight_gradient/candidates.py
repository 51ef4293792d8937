"""Plans of weight gradients worth pricing: blocks, passes and iterations."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nkisim.machine import Machine
from trnconv.algorithms.weight_gradient.plan import (
    DEPTH,
    HEIGHT,
    WIDE_EPILOGUE,
    WIDTH,
    WeightGradientPlan,
)
from trnconv.algorithms.weight_gradient.sbuf import addresses, x_slot_bytes
from trnconv.geometry import ConvShape
from trnconv.problem.conv_problem import ConvProblem, CoreSplit

_BLOCK_TILES = (1, 2, 4, 8, 16, 32)  # blocks of up to so many tiles, and more than the one before
_OUT_TILES = (16, 8, 4, 2, 1)  # tiles of output channels of a pass
_SHEET_TILES = (*_BLOCK_TILES, 64, 96)
_SHEET_LINES = (1, 2, 3, 4, 6, 8)  # rows of a tile of sheets; each is a DMA of its own
_ITERATION_AREAS = (1, 2, 4, 8, 16)
_GOOD_SLOTS = 6  # enough to hide loads


def candidates(problem: ConvProblem) -> Iterator[WeightGradientPlan]:
    """Plans worth pricing."""
    for block in _blocks(_start(problem)):
        for outs in _outs(block):
            sized = _within_sbuf(replace(block, outs=outs))
            if sized is not None:
                yield from _turned(sized)


def _start(problem: ConvProblem) -> WeightGradientPlan:
    assert isinstance(problem.shape, ConvShape)
    shape = folded(problem.shape)
    pack = _pack(shape, problem.machine)
    return WeightGradientPlan(
        shape=shape,
        machine_name=problem.machine.name,
        dtype=problem.dtype,
        wide=problem.epilogue == WIDE_EPILOGUE,
        by_dma=True,
        pack=pack,
        images=1,
        rows=1,
        columns=shape.out_size(WIDTH),
        outs=shape.c_out // shape.groups * pack,  # chosen below
        pass_strips=1,
        slots=0,
        windows=0,
        iteration_frames=shape.out_size(DEPTH),
        iteration_areas=1,
        looped=False,
        epilogue=problem.epilogue,
        **given_share(problem),
    )


def given_share(problem: ConvProblem) -> dict[str, Any]:
    """The fields of a plan that follow from a share of two cores."""
    share = problem.core_split
    if share is None:
        return {"outs_of": None, "ins_of": None, "strips_of": None}
    outs = share.channels if share.channels != (0, problem.shape.c_out) else None
    return {"outs_of": outs, "ins_of": share.inputs, "strips_of": share.strips}


def halves(problem: ConvProblem) -> list[tuple[ConvProblem, ConvProblem]]:
    """Two cores with half of the output channels, of the input channels or of the strips each.

    No element of a gradient is summed by both.
    """
    start = _start(problem)
    rows, every = (0, start.shape.out_size(HEIGHT)), (0, start.shape.c_out)
    unit = start.pack_out if start.packs > 1 else start.machine.partitions
    cuts = [
        [CoreSplit(rows, span) for span in _in_two(start.shape.c_out, unit)],
        [CoreSplit(rows, every, inputs=span) for span in _in_two(start.pack_in, 1)],
        *([CoreSplit(rows, every, strips=span) for span in cut] for cut in _strip_cuts(start)),
    ]
    return [
        (replace(problem, core_split=cut[0]), replace(problem, core_split=cut[1]))
        for cut in cuts
        if cut
    ]


def _strip_cuts(start: WeightGradientPlan) -> list[list[tuple[int, int]]]:
    """Halves of all strips for each core: whole strips, or with one of them cut."""
    halves = 2 * len(start.strips())
    cuts = [_in_two(halves, 2), _in_two(halves, 1)]
    return cuts if cuts[0] != cuts[1] else cuts[:1]


def _in_two(size: int, unit: int) -> list[tuple[int, int]]:
    """Whole units, the first part at least as large; nothing if there is one unit."""
    middle = -(-size // (2 * unit)) * unit
    return [(0, middle), (middle, size)] if middle < size else []


def folded(shape: ConvShape) -> ConvShape:
    """Frames become rows, if neither has taps, strides or padding."""
    if not all(_is_idle(shape, axis) for axis in (DEPTH, HEIGHT)):
        return shape
    return replace(shape, size=(1, shape.size[DEPTH] * shape.size[HEIGHT], shape.size[WIDTH]))


def _is_idle(shape: ConvShape, axis: int) -> bool:
    pads = shape.pad_before[axis] + shape.pad_after[axis]
    return shape.kernel[axis] == 1 and shape.stride[axis] == 1 and pads == 0


def _pack(shape: ConvShape, machine: Machine) -> int:
    """Groups whose channels share the PE array: as many as fit its columns, and a PSUM bank."""
    groups = shape.groups
    ins, outs = shape.c_in // groups, shape.c_out // groups
    fitting = [
        pack
        for pack in range(1, groups + 1)
        if groups % pack == 0
        and pack * outs <= machine.partitions
        and pack * ins <= machine.partitions
    ]
    return max(fitting, default=1)


def _blocks(start: WeightGradientPlan) -> Iterator[WeightGradientPlan]:
    """Ways to cut the output; where an image is one block, several of them may be."""
    for plan in _areas(start):
        yield plan
        whole = plan.rows == plan.shape.out_size(HEIGHT)
        if whole and plan.columns == plan.shape.out_size(WIDTH):
            for images in range(2, plan.shape.batch + 1):
                if plan.shape.batch % images == 0 and images * plan.tiles <= _BLOCK_TILES[-1]:
                    yield replace(plan, images=images)


def _areas(start: WeightGradientPlan) -> Iterator[WeightGradientPlan]:
    """Runs of whole rows, pieces of a row, and windows."""
    height, width = start.shape.out_size(HEIGHT), start.shape.out_size(WIDTH)
    lines = start.machine.partitions
    least = 0
    for most in _BLOCK_TILES:
        flat = [replace(start, rows=rows) for rows in _rows_of_tiles(start, least, most)]
        sized = [plan for plan in flat if least < plan.tiles <= most]
        if sized:
            # as few tiles as can be, then as few blocks: each tap of a block is a DMA to issue
            yield min(
                sized, key=lambda plan: (_tiles_of_frame(plan), len(plan.row_spans()), plan.rows)
            )
        if least * lines < width:
            yield replace(start, columns=min(width, most * lines))
        least = most
    yield from _sheets(start)
    columns = -(-width // -(-width // lines))
    windowed = replace(start, by_dma=False, columns=columns, windows=1)
    for most in _BLOCK_TILES:
        rows = min(height, most * windowed.rows_of_tile)
        yield replace(windowed, rows=rows)
        if rows == height:
            return


def _sheets(start: WeightGradientPlan) -> Iterator[WeightGradientPlan]:
    """Blocks whose tiles have so many rows each, by their number of tiles."""
    shape, lines = start.shape, start.machine.partitions
    height, width = shape.out_size(HEIGHT), start.sheet_columns
    filled = 0.0
    for count in _SHEET_LINES:
        pieces = -(-width * count // lines)
        if width * count / pieces <= filled:  # more DMAs, and no fewer tiles
            continue
        filled = width * count / pieces
        sheet = replace(start, piece=-(-width // pieces))
        least = 0
        for most in _SHEET_TILES:
            steps = range(least // pieces + 1, min(most // pieces, -(-height // count)) + 1)
            sized = [replace(sheet, rows=min(height, count * step), apart=step) for step in steps]
            if sized:
                # as few tiles as can be, then as few blocks, whose rows overlap in x
                yield min(sized, key=lambda plan: (_tiles_of_frame(plan), len(plan.row_spans())))
            least = most


def _rows_of_tiles(start: WeightGradientPlan, least: int, most: int) -> range:
    """Numbers of whole rows, from two on, that may take more than `least`, at most `most` tiles."""
    lines, pitch = start.machine.partitions, start.shape.size[WIDTH]
    height = start.shape.out_size(HEIGHT)
    return range(max(2, least * lines // pitch), min(height, most * lines // pitch + 1) + 1)


def _tiles_of_frame(plan: WeightGradientPlan) -> int:
    return sum(plan.tile_count(rows, plan.columns) for _, rows in plan.row_spans())


def _outs(plan: WeightGradientPlan) -> Iterator[int]:
    """Output channels of a pass: all, or a number of whole tiles."""
    yield plan.most_outs
    for tiles in _OUT_TILES:
        if tiles * plan.machine.partitions < plan.most_outs:
            yield tiles * plan.machine.partitions


def _within_sbuf(plan: WeightGradientPlan) -> WeightGradientPlan | None:
    """The same with as few passes as SBUF allows, and what is left used for tiles of x."""
    strips = len(plan.strips())
    frame_taps = plan.shape.kernel[DEPTH]
    if plan.has_sheets:
        sheets = len({(strip.frame_tap, strip.channel) for strip in plan.strips()})
        return _fewest_passes(plan, strips, (sheets + 1, 2 * sheets + 2))
    most = (frame_taps + 1) * strips // frame_taps + _GOOD_SLOTS
    for windows in (0,) if plan.by_dma else (frame_taps + 1, 2, 1):
        sized = _fewest_passes(replace(plan, windows=windows), strips, (_GOOD_SLOTS, most))
        if sized is not None:
            return sized
    return _fewest_passes(plan, strips, (2, most))


def _fewest_passes(
    plan: WeightGradientPlan, strips: int, slots: tuple[int, int]
) -> WeightGradientPlan | None:
    """More passes have fewer strips each, and leave more room: so halving finds the fewest."""
    passes = range(1, strips + 1)
    at = bisect_left(passes, slots[0], key=lambda count: _free_slots(plan, strips, count))
    if at == len(passes):
        return None
    free = _free_slots(plan, strips, passes[at])
    sized = replace(plan, pass_strips=-(-strips // passes[at]))
    return replace(sized, slots=min(free, max(slots)))


def _free_slots(plan: WeightGradientPlan, strips: int, passes: int) -> int:
    tried = replace(plan, pass_strips=-(-strips // passes))
    room = plan.machine.sbuf_usable_bytes_per_partition
    return (room - addresses(tried).end) // x_slot_bytes(tried)


def _turned(plan: WeightGradientPlan) -> Iterator[WeightGradientPlan]:
    """Unrolled, and as hardware loops with iterations of one block or of many."""
    yield plan
    areas = len(plan.row_spans()) * len(plan.column_spans())
    for taken in _ITERATION_AREAS:
        if taken == 1 or taken <= areas:
            yield replace(plan, looped=True, iteration_areas=taken)
    if plan.shape.out_size(DEPTH) > 1:
        yield replace(plan, looped=True, iteration_frames=1)

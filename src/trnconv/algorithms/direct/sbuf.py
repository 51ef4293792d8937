"""Where things lie in SBUF: windows, weights, output buffers, bias, places."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from trnconv.algorithms.direct.accumulations import in_order
from trnconv.algorithms.direct.array.m_layout import out_tiles
from trnconv.algorithms.direct.block_types import column_kinds, row_kinds
from trnconv.algorithms.direct.blocks import valid
from trnconv.algorithms.direct.loops import iteration_blocks
from trnconv.algorithms.direct.plan import BY_COLUMN, BY_FRAME, BY_ROW, DirectPlan, PePacking
from trnconv.algorithms.direct.reduced_problem import DEPTH, HEIGHT, WIDTH, ReducedProblem
from trnconv.algorithms.direct.stationaries import bias_width, image_width
from trnconv.algorithms.recipe_parts import Ring
from trnconv.algorithms.sbuf_space import SbufSpace
from trnconv.problem.epilogue import NO_RESIDUAL, slope_of

LEVELS = (BY_FRAME, BY_ROW, BY_COLUMN)
_FLOAT_BYTES = _INT_BYTES = 4
_RESIDUALS = 2  # tiles of residuals: one is loaded while the other is added


@dataclass(frozen=True)
class SbufLayout:
    """Addresses on every partition, in bytes, and their end: what the plan needs."""

    rings: tuple[Ring, Ring, Ring]
    weights: Ring
    out: Ring
    residual: Ring
    bias_address: int
    zeros: bool
    zeros_address: int
    places_address: int
    end: int


def window_elems(plan: DirectPlan) -> tuple[int, int, int]:
    """Elements of the largest window of each level, a partition."""
    in_rows = max(kind.inputs for kind in row_kinds(plan))
    in_columns = max(kind.inputs for kind in column_kinds(plan))
    by_row = max([_positions(plan.rows, packing.rows) for packing in plan.passes])
    by_column = max(
        _positions(plan.rows, packing.rows) * _positions(plan.columns, packing.columns)
        for packing in plan.passes
    )
    return (max(1, in_rows * in_columns), max(1, by_row * in_columns), by_column)


def _positions(outputs: int, stack: int) -> int:
    return -(-outputs // stack)


def out_elems(plan: DirectPlan) -> int:
    """Elements of an output buffer, a partition."""
    rows = [
        plan.rows if packing.separate else _positions(plan.rows, packing.rows)
        for packing in plan.passes
    ]
    return max(rows) * plan.columns


def _residual_elems(plan: DirectPlan) -> int:
    """The same of a tile of the residual: a coarse one has fewer columns."""
    coarse = plan.epilogue.coarse
    return out_elems(plan) // (coarse.columns if coarse else 1)


@lru_cache(maxsize=256)  # rules ask, then the cost
def layout_of(plan: DirectPlan) -> SbufLayout:
    """Where things lie, without working out a recipe."""
    weights = image_width(plan.reduced, plan.passes, plan.frames)
    return lay_out(plan, *weights, bias_width(plan.reduced, plan.passes, plan.frames))


def lay_out(
    plan: DirectPlan, weight_columns: int, chunk_columns: int, bias_columns: int
) -> SbufLayout:
    """Everything one after the other."""
    space, item = SbufSpace(plan.machine, plan.machine.sbuf_align_bytes), plan.item_bytes
    levels = zip(plan.slots, window_elems(plan), strict=True)
    by_frame, by_row, by_column = [space.ring(slots, elems, item) for slots, elems in levels]
    held = (plan.streamed, chunk_columns) if plan.streamed else (1, max(1, weight_columns))
    weights = space.ring(*held, item)
    out = space.ring(plan.out_buffers, out_elems(plan), plan.out_bytes)
    added = _RESIDUALS if plan.epilogue.residual != NO_RESIDUAL else 0
    residual = space.ring(added, _residual_elems(plan), item)
    bias = space.at
    biases = 2 if slope_of(plan.epilogue.activation) else 1  # and the bias times the slope
    zeros = bias + biases * bias_columns * _FLOAT_BYTES
    has_zeros = needs_zeros(plan)
    places = zeros + (plan.machine.psum_bank_fp32_elems * item if has_zeros else 0)
    offsets = iteration_blocks(plan) * (plan.placed_tensors + 1) if plan.looped else 0
    end = space.taken + places - bias + offsets * _INT_BYTES
    held_windows = (by_frame, by_row, by_column)
    ends = (out, residual, bias)
    return SbufLayout(held_windows, weights, *ends, has_zeros, zeros, places, end)


def needs_zeros(plan: DirectPlan) -> bool:
    """Whether some sum may have no product that writes all of it, so that zeros must come first."""
    return (
        any(not kind.inputs for kind in (*row_kinds(plan), *column_kinds(plan)))
        or _some_output_frame_is_padding(plan.reduced)
        or any(_first_view_is_cut(plan, packing) for packing in plan.passes)
    )


def _first_view_is_cut(plan: DirectPlan, packing: PePacking) -> bool:
    by_frame, by_row = BY_FRAME in packing.levels, BY_ROW in packing.levels
    checked = [(HEIGHT, by_frame), (WIDTH, by_frame or by_row)]
    return any(
        needed and not _covers(plan, axis, packing, stacked)
        for axis, needed in checked
        for stacked in _stacks(packing, axis)
    )


@lru_cache(maxsize=4096)
def _stacks(packing: PePacking, axis: int) -> tuple[tuple[int, ...], ...]:
    """The rows or columns of the stack that sums of a pass have together."""
    tiles = out_tiles(packing)
    return tuple({tile.stacked(axis, part) for tile in tiles for part in tile.parts})


def _covers(plan: DirectPlan, axis: int, packing: PePacking, stacked: tuple[int, ...]) -> bool:
    """Whether every position of every span finds the input at the shift that comes first."""
    reduced = plan.reduced
    stack = packing.rows if axis == HEIGHT else packing.columns
    first = in_order(reduced, packing, axis, reduced.shifts(axis, stacked))[:1]
    step = reduced.advance(axis, stack)
    for kind in row_kinds(plan) if axis == HEIGHT else column_kinds(plan):
        positions = -(-kind.outputs // stack)
        for shift in first:
            if valid((shift - kind.missing, step), positions, kind.inputs) != (0, positions):
                return False
    return bool(first)


@lru_cache(maxsize=1024)
def _some_output_frame_is_padding(reduced: ReducedProblem) -> bool:
    return not all(
        any(0 <= shift - reduced.pad[DEPTH] < reduced.size[DEPTH] for shift in read)
        for read in (reduced.shifts(DEPTH, [out]) for out in range(reduced.out[DEPTH]))
    )

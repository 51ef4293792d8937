"""Whether a machine can run a plan, in words: one sentence for each rule that is broken."""

from __future__ import annotations

from trnconv.ask.ends import ELU, ITEM_BYTES
from trnconv.ask.limits import MAX_OFFSET
from trnconv.forms.direct.block_types import frame_kinds
from trnconv.forms.direct.jobs import grouped_jobs
from trnconv.forms.direct.plan import BY_COLUMN, BY_FRAME, BY_ROW, DirectPlan
from trnconv.forms.direct.problem import DEPTH, HEIGHT, WIDTH
from trnconv.forms.direct.sbuf import layout_of, window_elems
from trnconv.forms.direct.traffic import count_windows
from trnconv.forms.form import switched_off


def broken_rules(plan: DirectPlan) -> list[str]:
    """Everything that keeps the plan from running; empty if it is legal."""
    unusable = _sizes(plan)
    if unusable:
        return unusable  # such a plan has no price, and no windows
    return [
        *switched_off(plan),
        *_channels(plan),
        *_memory(plan),
        *_windows(plan),
        *_composed_end(plan),
        *_coarse_residual(plan),
        *broken_patterns(plan),
    ]


def _sizes(plan: DirectPlan) -> list[str]:
    broken = []
    first, end = plan.row_span
    left, right = plan.column_span
    limits = {
        "frames": (plan.frames, plan.problem.out[DEPTH], max(p.frames for p in plan.passes)),
        "rows": (plan.rows, end - first, plan.row_multiple),
        "columns": (plan.columns, right - left, 1),
    }
    for name, (size, most, least) in limits.items():
        if not least <= size <= most:
            broken.append(
                f"a block has {size} {name}: the problem and its stacks allow {least} to {most}"
            )
    for name, size, axis in (("frames", plan.frames, DEPTH), ("columns", plan.columns, WIDTH)):
        if size % plan.problem.phases[axis]:
            broken.append(
                f"a block has {size} {name}: phases need whole steps of {plan.problem.phases[axis]}"
            )
    if plan.rows % plan.row_multiple:
        broken.append(
            f"a block has {plan.rows} rows: stacks need a multiple of {plan.row_multiple}"
        )
    if plan.dtype not in ITEM_BYTES:
        broken.append(f"dtype {plan.dtype}: one of {', '.join(ITEM_BYTES)}")
    elems = max(plan.problem.x_elems(), plan.problem.y_elems())
    if elems > MAX_OFFSET:
        broken.append(f"a tensor of {elems} elements: offsets have 32 bits; split the problem")
    return broken


def _channels(plan: DirectPlan) -> list[str]:
    broken = []
    for fill in plan.passes:
        lines = fill.channels * fill.stack
        if fill.columns > 1 and not fill.separate and lines > plan.target.partitions:
            broken.append(
                f"{fill}: column phases of {lines} partitions, {plan.machine} has"
                f" {plan.target.partitions}"
            )
        if fill.tile_columns < plan.target.matmul_tile_min_rows:
            broken.append(
                f"column tiles of {fill.tile_columns}: {plan.machine} has tiles of"
                f" {plan.target.matmul_tile_min_rows} columns or more"
            )
    return broken


def _memory(plan: DirectPlan) -> list[str]:
    room, held = plan.target.sbuf_usable_bytes_per_partition, layout_of(plan).end
    if held > room:
        return [f"{held} bytes a partition: SBUF of {plan.machine} has {room}"]
    return []


def _windows(plan: DirectPlan) -> list[str]:
    """Sum by sum, all windows of a job must be in SBUF at once; window by window, one is enough."""
    broken = []
    if plan.ahead and not plan.target.accepts.loads_ahead:
        broken.append(f"loads ahead of stores: {plan.machine} has them switched off")
    held = [
        count_windows(grouped_jobs(plan.problem, plan.passes, kind.outputs, kind.present))
        for kind in frame_kinds(plan.problem, plan.frames)
    ]
    for level in (BY_FRAME, BY_ROW, BY_COLUMN):
        most = max(count.at_once[level - 1] for count in held)
        least = min(most, 1) if plan.window_major else most
        if plan.ahead:
            least = max(least, 2 * max(count.in_all[level - 1] for count in held))
        if plan.slots[level - 1] < least:
            broken.append(
                f"{plan.slots[level - 1]} window slots of level {level}: a job needs {least}"
                " at once"
            )
    return broken


def _composed_end(plan: DirectPlan) -> list[str]:
    """ELU keeps exp(z) in float32: 1 is subtracted from it."""
    if plan.end.activation == ELU and not plan.target.accepts.psum_in_place:
        return [f"{ELU}: its exponential replaces sums in PSUM; {plan.machine} has that off"]
    return []


def _coarse_residual(plan: DirectPlan) -> list[str]:
    """Cells of a coarse residual are phases of the outputs, in sums of their own."""
    coarse, problem = plan.end.coarse, plan.problem
    if coarse is None:
        return []
    broken = []
    if not coarse.is_readable():
        broken.append(f"a residual by {coarse.text()}: columns of a cell have different channels")
    in_phases = all(fill.separate and fill.columns == coarse.columns for fill in plan.passes)
    if not in_phases or problem.phases[1:] != coarse.factors()[1:]:
        broken.append(f"cells of {coarse.rows} x {coarse.columns}: outputs are not in such phases")
    if plan.frames > 1:
        broken.append(f"a block of {plan.frames} frames: a coarse residual has one at a time")
    whole = (plan.shape.batch, plan.shape.c_out, *plan.shape.out_sizes())
    if (problem.images, problem.c_out, *problem.out) != whole or problem.step != (1, 1, 1):
        broken.append("a coarse residual of outputs that are folded into others")
    if plan.rows % coarse.rows or plan.row_span[0] % coarse.rows:
        broken.append(f"a block of {plan.rows} rows: a coarse residual has cells of {coarse.rows}")
    return broken


def broken_patterns(plan: DirectPlan) -> list[str]:
    """Views of windows fit the fields of an access pattern."""
    machine, problem = plan.target, plan.problem
    broken = []
    largest = max(window_elems(plan))
    if largest > machine.sbuf_operand_max_elems:
        broken.append(
            f"a window of {largest} elements: an operand has at most"
            f" {machine.sbuf_operand_max_elems}"
        )
    in_columns = min(
        problem.size[WIDTH], problem.advance(WIDTH, plan.columns) + problem.reach(WIDTH)
    )
    step = max(problem.advance(HEIGHT, fill.rows) for fill in plan.passes) * in_columns
    if plan.rows > 1 and step > machine.access_stride_max:
        broken.append(
            f"rows {step} elements apart in a window: a stride has at most"
            f" {machine.access_stride_max}; cut the columns"
        )
    return broken

"""Whether a machine can run a plan, in words: one sentence for each rule that is broken."""

from __future__ import annotations

from trnconv.algorithms.algorithm import switched_off
from trnconv.algorithms.direct.accumulations import grouped_accumulations
from trnconv.algorithms.direct.block_types import frame_kinds
from trnconv.algorithms.direct.plan import BY_COLUMN, BY_FRAME, BY_ROW, DirectPlan
from trnconv.algorithms.direct.reduced_problem import DEPTH, HEIGHT, WIDTH
from trnconv.algorithms.direct.sbuf import layout_of, window_elems
from trnconv.algorithms.direct.traffic import count_windows
from trnconv.problem.epilogue import ELU, ITEM_BYTES
from trnconv.problem.limits import MAX_OFFSET


def violations(plan: DirectPlan) -> list[str]:
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
        "frames": (plan.frames, plan.reduced.out[DEPTH], max(p.frames for p in plan.passes)),
        "rows": (plan.rows, end - first, plan.row_multiple),
        "columns": (plan.columns, right - left, 1),
    }
    for name, (size, most, least) in limits.items():
        if not least <= size <= most:
            broken.append(
                f"a block has {size} {name}: the problem and its stacks allow {least} to {most}"
            )
    for name, size, axis in (("frames", plan.frames, DEPTH), ("columns", plan.columns, WIDTH)):
        if size % plan.reduced.phases[axis]:
            broken.append(
                f"a block has {size} {name}: phases need whole steps of {plan.reduced.phases[axis]}"
            )
    if plan.rows % plan.row_multiple:
        broken.append(
            f"a block has {plan.rows} rows: stacks need a multiple of {plan.row_multiple}"
        )
    if plan.dtype not in ITEM_BYTES:
        broken.append(f"dtype {plan.dtype}: one of {', '.join(ITEM_BYTES)}")
    elems = max(plan.reduced.x_elems(), plan.reduced.y_elems())
    if elems > MAX_OFFSET:
        broken.append(f"a tensor of {elems} elements: offsets have 32 bits; split the problem")
    return broken


def _channels(plan: DirectPlan) -> list[str]:
    broken = []
    for packing in plan.passes:
        lines = packing.channels * packing.stack
        if packing.columns > 1 and not packing.separate and lines > plan.machine.partitions:
            broken.append(
                f"{packing}: column phases of {lines} partitions, {plan.machine_name} has"
                f" {plan.machine.partitions}"
            )
        if packing.tile_columns < plan.machine.matmul_tile_min_rows:
            broken.append(
                f"column tiles of {packing.tile_columns}: {plan.machine_name} has tiles of"
                f" {plan.machine.matmul_tile_min_rows} columns or more"
            )
    return broken


def _memory(plan: DirectPlan) -> list[str]:
    room, held = plan.machine.sbuf_usable_bytes_per_partition, layout_of(plan).end
    if held > room:
        return [f"{held} bytes a partition: SBUF of {plan.machine_name} has {room}"]
    return []


def _windows(plan: DirectPlan) -> list[str]:
    """Sum by sum, all windows of an accumulation must fit SBUF; window by window, one has to."""
    broken = []
    if plan.ahead and not plan.machine.accepts.loads_ahead:
        broken.append(f"loads ahead of stores: {plan.machine_name} has them switched off")
    held = [
        count_windows(grouped_accumulations(plan.reduced, plan.passes, kind.outputs, kind.present))
        for kind in frame_kinds(plan.reduced, plan.frames)
    ]
    for level in (BY_FRAME, BY_ROW, BY_COLUMN):
        most = max(count.at_once[level - 1] for count in held)
        least = min(most, 1) if plan.window_major else most
        if plan.ahead:
            least = max(least, 2 * max(count.in_all[level - 1] for count in held))
        if plan.slots[level - 1] < least:
            broken.append(
                f"{plan.slots[level - 1]} window slots of level {level}:"
                f" an accumulation needs {least}"
                " at once"
            )
    return broken


def _composed_end(plan: DirectPlan) -> list[str]:
    """ELU keeps exp(z) in float32: 1 is subtracted from it."""
    if plan.epilogue.activation == ELU and not plan.machine.accepts.psum_in_place:
        return [f"{ELU}: its exponential replaces sums in PSUM; {plan.machine_name} has that off"]
    return []


def _coarse_residual(plan: DirectPlan) -> list[str]:
    """Cells of a coarse residual are phases of the outputs, in sums of their own."""
    coarse, reduced = plan.epilogue.coarse, plan.reduced
    if coarse is None:
        return []
    broken = []
    if not coarse.is_readable():
        broken.append(f"a residual by {coarse.text()}: columns of a cell have different channels")
    in_phases = all(
        packing.separate and packing.columns == coarse.columns for packing in plan.passes
    )
    if not in_phases or reduced.phases[1:] != coarse.factors()[1:]:
        broken.append(f"cells of {coarse.rows} x {coarse.columns}: outputs are not in such phases")
    if plan.frames > 1:
        broken.append(f"a block of {plan.frames} frames: a coarse residual has one at a time")
    whole = (plan.shape.batch, plan.shape.c_out, *plan.shape.out_sizes())
    if (reduced.images, reduced.c_out, *reduced.out) != whole or reduced.step != (1, 1, 1):
        broken.append("a coarse residual of outputs that are folded into others")
    if plan.rows % coarse.rows or plan.row_span[0] % coarse.rows:
        broken.append(f"a block of {plan.rows} rows: a coarse residual has cells of {coarse.rows}")
    return broken


def broken_patterns(plan: DirectPlan) -> list[str]:
    """Views of windows fit the fields of an access pattern."""
    machine, reduced = plan.machine, plan.reduced
    broken = []
    largest = max(window_elems(plan))
    if largest > machine.sbuf_operand_max_elems:
        broken.append(
            f"a window of {largest} elements: an operand has at most"
            f" {machine.sbuf_operand_max_elems}"
        )
    in_columns = min(
        reduced.size[WIDTH], reduced.advance(WIDTH, plan.columns) + reduced.reach(WIDTH)
    )
    step = max(reduced.advance(HEIGHT, packing.rows) for packing in plan.passes) * in_columns
    if plan.rows > 1 and step > machine.access_stride_max:
        broken.append(
            f"rows {step} elements apart in a window: a stride has at most"
            f" {machine.access_stride_max}; cut the columns"
        )
    return broken

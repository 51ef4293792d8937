"""Whether a machine can run the plan of a weight gradient, in words."""

from __future__ import annotations

from nkisim.machine import V3
from trnconv.algorithms.algorithm import switched_off
from trnconv.algorithms.weight_gradient.plan import HEIGHT, WIDE_EPILOGUE, WIDTH, WeightGradientPlan
from trnconv.algorithms.weight_gradient.sbuf import addresses, window_elems
from trnconv.problem.epilogue import ITEM_BYTES
from trnconv.problem.limits import MAX_OFFSET

_TRANSPOSED_BYTES = 2  # of an element that DMA transposes at speed
_MOST_UNIT = 2  # such elements that DMA transposes as one, of 4 bytes
_LEAST_SLOTS = 2  # of x: one in use, one being filled


def violations(plan: WeightGradientPlan) -> list[str]:
    """Everything that keeps the plan from running; empty if it is legal."""
    if plan.dtype not in ITEM_BYTES:
        return [f"dtype {plan.dtype}: one of {', '.join(ITEM_BYTES)}"]
    return [
        *switched_off(plan),
        *_sizes(plan),
        *_channels(plan),
        *(_dma(plan) if plan.by_dma else _windows(plan)),
        *_memory(plan),
    ]


def _sizes(plan: WeightGradientPlan) -> list[str]:
    limits = {
        "images": (plan.images, plan.shape.batch),
        "rows": (plan.rows, plan.shape.out_size(HEIGHT)),
        "columns": (plan.columns, plan.shape.out_size(WIDTH)),
    }
    broken = [
        f"a block has {size} {name}: the output has {most}"
        for name, (size, most) in limits.items()
        if not 1 <= size <= most
    ]
    positions = plan.shape.size[0] * plan.shape.size[1] * plan.shape.size[2]
    elems = plan.shape.batch * max(
        plan.shape.c_in * positions, plan.shape.c_out * plan.shape.positions()
    )
    if elems > MAX_OFFSET:
        broken.append(f"a tensor of {elems} elements: offsets have 32 bits; split the batch")
    if plan.wide != (plan.epilogue == WIDE_EPILOGUE):
        broken.append(
            f"wide={plan.wide}: its end asks for {plan.epilogue.dtype or 'the type of x'}"
        )
    if plan.slots < _LEAST_SLOTS:
        broken.append(f"{plan.slots} slots for tiles of x: at least {_LEAST_SLOTS}")
    return broken


def _channels(plan: WeightGradientPlan) -> list[str]:
    broken = []
    if plan.groups % plan.pack:
        broken.append(f"packs of {plan.pack} groups: {plan.groups} is not a multiple")
    if plan.outs % plan.machine.partitions and plan.outs != plan.most_outs:
        broken.append(
            f"{plan.outs} output channels of a pass: all {plan.most_outs}, or a multiple of"
            f" {plan.machine.partitions}"
        )
    return broken


def _dma(plan: WeightGradientPlan) -> list[str]:
    """What tiles that DMA transposes ask for."""
    machine = plan.machine
    broken = []
    if machine.generation < V3:
        broken.append(f"DMA that transposes on {machine.name}: exists from NeuronCore-v3 on")
    if not machine.accepts.dma_transposes:
        broken.append(f"DMA that transposes: {machine.name} has it switched off")
    if plan.item_bytes != _TRANSPOSED_BYTES:
        broken.append(f"DMA that transposes {plan.dtype}: {_TRANSPOSED_BYTES} bytes an element")
    return [*broken, *(_sheets(plan) if plan.has_sheets else _own_tiles(plan))]


def _own_tiles(plan: WeightGradientPlan) -> list[str]:
    """What tiles that are of one tap ask for."""
    shape = plan.shape
    broken = []
    if shape.repeats(WIDTH):
        broken.append(f"{shape.modes[WIDTH]} padding of rows in tiles of single taps: zeros only")
    if shape.stride[WIDTH] != 1:
        broken.append(f"columns {shape.stride[WIDTH]} apart: DMA transposes what lies together")
    if plan.is_flat:
        width = shape.out_size(WIDTH)
        if shape.stride[HEIGHT] != 1:
            broken.append(f"rows {shape.stride[HEIGHT]} apart in one tile: they have to be 1 apart")
        if width > shape.size[WIDTH]:
            broken.append(
                f"{width} output columns for {shape.size[WIDTH]} of the input: tiles that run on"
                " from row to row need at least as many"
            )
        if plan.columns != width:
            broken.append(f"{plan.columns} of {width} columns in blocks of several rows")
    return broken


def _sheets(plan: WeightGradientPlan) -> list[str]:
    """What tiles that all taps share ask for."""
    shape, machine = plan.shape, plan.machine
    step, width, columns = shape.stride[WIDTH], shape.size[WIDTH], shape.out_size(WIDTH)
    broken = []
    if step > _MOST_UNIT or width % step:
        broken.append(
            f"sheets of every {step}-th of {width} columns: DMA transposes whole elements of 1 or"
            f" {_MOST_UNIT} of them"
        )
    if step > 1 and shape.repeats(WIDTH):
        broken.append(
            f"sheets of every {step}-th column, {shape.modes[WIDTH]} padding: what stands there"
            " does not lie together"
        )
    if plan.columns != columns:
        broken.append(f"{plan.columns} of {columns} columns in blocks of sheets")
    if any(half % 2 for half in plan.strips_of or ()):
        broken.append(f"halves of strips {plan.strips_of} of sheets: all taps read all channels")
    if plan.piece > plan.sheet_columns or plan.apart > plan.rows:
        broken.append(
            f"pieces of {plan.piece} columns, rows {plan.apart} apart: a block has {plan.rows} rows"
            f" of {plan.sheet_columns} columns"
        )
    lines = plan.piece * -(-plan.rows // plan.apart)
    if lines > machine.partitions:
        broken.append(
            f"{lines} positions of a tile: {machine.name} has {machine.partitions} partitions"
        )
    if plan.slot_elems > machine.sbuf_operand_max_elems:
        broken.append(
            f"a sheet of {plan.slot_elems} elements: an operand has at most"
            f" {machine.sbuf_operand_max_elems}"
        )
    return broken


def _windows(plan: WeightGradientPlan) -> list[str]:
    """What tiles that the Tensor engine transposes ask for."""
    machine = plan.machine
    broken = []
    if plan.columns > machine.partitions:
        broken.append(
            f"{plan.columns} columns of a tile: {machine.name} has {machine.partitions} partitions"
        )
    if plan.windows < 1:
        broken.append("no room for a window of x: at least one is needed")
    elems = window_elems(plan)
    if elems > machine.sbuf_operand_max_elems:
        broken.append(
            f"a window of {elems} elements: an operand has at most {machine.sbuf_operand_max_elems}"
        )
    return broken


def _memory(plan: WeightGradientPlan) -> list[str]:
    broken = []
    room, held = plan.machine.sbuf_usable_bytes_per_partition, addresses(plan).end
    if held > room:
        broken.append(f"{held} bytes a partition: SBUF of {plan.machine_name} has {room}")
    return broken

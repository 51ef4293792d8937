"""Where a weight gradient keeps things in SBUF."""

from __future__ import annotations

from trnconv.algorithms.recipe_parts import first_address
from trnconv.algorithms.sbuf_space import aligned
from trnconv.algorithms.weight_gradient.blocks import window_size
from trnconv.algorithms.weight_gradient.plan import HEIGHT, WIDTH, WeightGradientPlan
from trnconv.algorithms.weight_gradient.recipe import Addresses

_FLOAT_BYTES = 4
DY_BUFFERS = 2  # one in use, one being filled


def addresses(plan: WeightGradientPlan) -> Addresses:
    """Everything one after the other; `end` is what the plan needs."""
    align, item = plan.machine.sbuf_align_bytes, plan.item_bytes
    out_tiles = plan.out_tiles
    first = first_address(plan.machine)
    bias_sums = first + out_tiles * plan.pass_columns * _FLOAT_BYTES
    dy = bias_sums + out_tiles * _FLOAT_BYTES
    dy_pitch = aligned(plan.dy_copies * plan.tiles * plan.outs * item, align)
    x = dy + DY_BUFFERS * dy_pitch
    x_pitch = x_slot_bytes(plan)
    dy_window = x + plan.slots * x_pitch
    windows = dy_window + aligned(out_tiles * dy_window_elems(plan) * item, align)
    tiles = -(-plan.strip_sizes.channels // plan.machine.partitions)
    window_pitch = aligned(tiles * window_elems(plan) * item, align)
    masks = windows + plan.windows * window_pitch
    ones = masks + max(1, len(plan.masks) * plan.tiles) * _FLOAT_BYTES
    places = ones + _FLOAT_BYTES
    return Addresses(
        sums=first,
        sums_pitch=plan.pass_columns * _FLOAT_BYTES,
        bias_sums=bias_sums,
        dy=dy,
        dy_pitch=dy_pitch,
        x=x,
        x_pitch=x_pitch,
        dy_window=dy_window,
        windows=windows,
        window_pitch=window_pitch,
        masks=masks,
        ones=ones,
        places=places,
        end=places + 2 * _FLOAT_BYTES - first,
    )


def x_slot_bytes(plan: WeightGradientPlan) -> int:
    """Bytes a partition of one strip of a block of x, or of one sheet."""
    return aligned(plan.slot_elems * plan.item_bytes, plan.machine.sbuf_align_bytes)


def window_elems(plan: WeightGradientPlan) -> int:
    """Elements a partition of a window of x, for one tile of channels."""
    if plan.by_dma:
        return 0
    area = window_size(plan, HEIGHT, plan.rows) * window_size(plan, WIDTH, plan.columns)
    return plan.images * area


def dy_window_elems(plan: WeightGradientPlan) -> int:
    """Elements a partition of a window of dy, for one tile of channels."""
    return 0 if plan.by_dma else plan.images * plan.rows * plan.columns

"""What the host prepares for a weight gradient, and what it makes of the result."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnconv.algorithms.weight_gradient.lower import WeightGradientLowered
from trnconv.algorithms.weight_gradient.plan import WIDTH, WeightGradientPlan

Array = np.ndarray[Any, Any]


def pack(lowered: WeightGradientLowered) -> tuple[Array, Array]:
    """Masks of tiles, and offsets into x and dy of each iteration of a loop, [iterations, 2]."""
    return mask_image(lowered.plan), np.array(lowered.places, np.int32)


def mask_image(plan: WeightGradientPlan) -> Array:
    """float32 [partitions, masks x tiles of an image]: 1 where a tap finds its own row, else 0."""
    lines, tiles = plan.tile_lines, plan.tiles // plan.images
    width = plan.shape.size[WIDTH]
    image = np.ones((plan.machine.partitions, max(1, len(plan.masks) * tiles)), np.float32)
    column = np.arange(tiles * lines).reshape(tiles, lines).T % plan.pitch
    for number, shift in enumerate(plan.masks):
        inside = (column + shift >= 0) & (column + shift < width)
        image[:lines, number * tiles : (number + 1) * tiles] = inside
    return image


def filters_of(dw: Any, plan: WeightGradientPlan) -> Any:
    """dw as the kernel leaves it -> [C_out, C_in / groups, KD, KH, KW], of NumPy or of torch.

    A row is an output channel: frame tap, column tap, row tap, input channel of its pack. What lies
    between two groups of a pack is dropped.
    """
    depth, height, width = plan.shape.kernel
    ins, outs = plan.shape.c_in // plan.groups, plan.shape.c_out // plan.groups
    rows = dw.reshape(plan.packs, plan.pack, outs, depth, width, height, plan.pack, ins)
    own = rows.diagonal(0, 1, 6)  # [packs, outs, depth, width, height, ins, pack]
    ordered = own.swapaxes(3, 4).swapaxes(1, 6).swapaxes(2, 6).swapaxes(3, 5).swapaxes(4, 6)
    return ordered.reshape(plan.shape.c_out, ins, depth, height, width)

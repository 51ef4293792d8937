"""What the host prepares for a depthwise plan: filters and bias, a line each."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnconv.algorithms.algorithm import Lowered
from trnconv.algorithms.depthwise.plan import DepthwisePlan

Array = np.ndarray[Any, Any]


def pack(lowered: Lowered[DepthwisePlan], w: Array, bias: Array | None) -> tuple[Array]:
    """The image of filters."""
    return (filter_image(lowered.plan, w, bias),)


def bias_channels(lowered: Lowered[DepthwisePlan]) -> tuple[Array]:
    """Whose bias each element of the image is; -1 where it is a filter's."""
    shape = lowered.plan.shape
    numbers = np.arange(1, shape.c_out + 1)
    image = filter_image(lowered.plan, np.zeros((shape.c_out, 1, *shape.kernel)), numbers)
    return (image.astype(np.int64) - 1,)


def filter_image(plan: DepthwisePlan, w: Array, bias: Array | None) -> Array:
    """w [C * multiplier, 1, KD, KH, KW] and bias as the kernel takes them: [lines, columns]."""
    shape, lines = plan.shape, min(plan.machine.partitions, plan.lines)
    own = w.astype(np.dtype(plan.dtype)).astype(np.float32)
    taps = own.reshape(shape.c_in, plan.multiplier, shape.taps())
    offsets = np.zeros((shape.c_in, plan.multiplier, 1), np.float32)
    if bias is not None:
        offsets[...] = bias.reshape(shape.c_in, plan.multiplier, 1)
    each = np.concatenate([offsets, taps], axis=2).reshape(shape.c_in, -1)
    numbers = plan.first_line + np.arange(plan.filter_sets * plan.machine.partitions)
    on_lines = each[numbers % shape.c_in]
    sets = on_lines.reshape(plan.filter_sets, plan.machine.partitions, -1)[:, :lines]
    return np.ascontiguousarray(sets.transpose(1, 0, 2).reshape(lines, plan.filter_columns))

"""The definition: plain NumPy in float64, one loop over taps. Slow, short, and what tests trust."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnconv.geometry import ConvShape

Array = np.ndarray[Any, Any]


def forward(x: Array, w: Array, bias: Array | None, shape: ConvShape) -> Array:
    """x [N, C_in, D, H, W], w [C_out, C_in, KD, KH, KW], bias [C_out] -> y in float64."""
    before, after = shape.pad_before, shape.pad_after
    widths = [(0, 0), (0, 0), *zip(before, after, strict=True)]
    padded = np.pad(x.astype(np.float64), widths)
    y = np.zeros((shape.batch, shape.c_out, *shape.out_sizes()))
    for tap in np.ndindex(*shape.kernel):
        spans = [_span(shape, axis, tap[axis]) for axis in range(3)]
        window = padded[:, :, spans[0], spans[1], spans[2]]
        taps = w[:, :, tap[0], tap[1], tap[2]].astype(np.float64)
        y += np.einsum("ncdhw,oc->nodhw", window, taps, optimize=True)
    if bias is not None:
        y += bias.astype(np.float64).reshape(1, -1, 1, 1, 1)
    return y


def _span(shape: ConvShape, axis: int, tap: int) -> slice:
    """The padded positions one tap reads along an axis."""
    start = tap * shape.dilation[axis]
    stop = start + (shape.out_size(axis) - 1) * shape.stride[axis] + 1
    return slice(start, stop, shape.stride[axis])

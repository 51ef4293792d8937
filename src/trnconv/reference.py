"""The definition: plain NumPy in float64, one loop over taps. Slow, short, and what tests trust."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnconv.geometry import ConvShape, TransposedShape

Array = np.ndarray[Any, Any]


def forward(x: Array, w: Array, bias: Array | None, shape: ConvShape) -> Array:
    """x [N, C_in, D, H, W], w [C_out, C_in / groups, KD, KH, KW], bias [C_out] -> y in float64.

    x is the input before upsampling, if the shape has any.
    """
    padded = _padded(x.astype(np.float64), shape)
    y = np.zeros((shape.batch, shape.c_out, *shape.out_sizes()))
    for tap in np.ndindex(*shape.kernel):
        spans = [_span(shape, axis, tap[axis]) for axis in range(3)]
        window = padded[:, :, spans[0], spans[1], spans[2]]
        taps = w[:, :, tap[0], tap[1], tap[2]].astype(np.float64)
        for group in range(shape.groups):
            ins = slice(group * w.shape[1], (group + 1) * w.shape[1])
            per_group = shape.c_out // shape.groups
            outs = slice(group * per_group, (group + 1) * per_group)
            y[:, outs] += np.einsum("ncdhw,oc->nodhw", window[:, ins], taps[outs], optimize=True)
    if bias is not None:
        y += bias.astype(np.float64).reshape(1, -1, 1, 1, 1)
    return y


def transposed(x: Array, w: Array, bias: Array | None, shape: TransposedShape) -> Array:
    """x [N, C_in, D, H, W], w [C_in, C_out / groups, KD, KH, KW] -> y in float64."""
    full = [
        (n - 1) * s + d * (k - 1) + 1 + n_out + p
        for n, s, d, k, n_out, p in zip(
            shape.size,
            shape.stride,
            shape.dilation,
            shape.kernel,
            shape.out,
            shape.pad_before,
            strict=True,
        )
    ]  # room for everything that is cropped, and for what nothing is added to
    y = np.zeros((shape.batch, shape.c_out, *full))
    per_in, per_out = shape.c_in // shape.groups, w.shape[1]
    for tap in np.ndindex(*shape.kernel):
        spans = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, shape.dilation, shape.size, shape.stride, strict=True)
        )
        for group in range(shape.groups):
            ins = slice(group * per_in, (group + 1) * per_in)
            outs = slice(group * per_out, (group + 1) * per_out)
            taps = w[ins, :, tap[0], tap[1], tap[2]].astype(np.float64)
            added = np.einsum("ncdhw,co->nodhw", x[:, ins].astype(np.float64), taps, optimize=True)
            y[(slice(None), outs, *spans)] += added
    kept = tuple(slice(p, p + n) for p, n in zip(shape.pad_before, shape.out, strict=True))
    y = y[(slice(None), slice(None), *kept)]
    return y if bias is None else y + bias.astype(np.float64).reshape(1, -1, 1, 1, 1)


_NUMPY_MODES = {"zeros": "constant", "replicate": "edge", "reflect": "reflect", "circular": "wrap"}


def _padded(x: Array, shape: ConvShape) -> Array:
    """x upsampled by repeating it, then padded, frames first: NumPy's own modes."""
    for axis, (times, skip) in enumerate(zip(shape.upsample, shape.skip, strict=True)):
        x = np.repeat(x, times, axis=2 + axis)
        x = np.delete(x, slice(skip), axis=2 + axis)
    for axis, mode in enumerate(shape.modes):
        widths = [(0, 0)] * 5
        widths[2 + axis] = (shape.pad_before[axis], shape.pad_after[axis])
        x = np.pad(x, widths, mode=_NUMPY_MODES[mode])  # type: ignore[call-overload] # a known mode
    return x


def weight_gradient(x: Array, dy: Array, shape: ConvShape) -> Array:
    """x [N, C_in, D, H, W], dy [N, C_out, D', H', W'] -> dw [C_out, C_in / groups, KD, KH, KW]."""
    padded = _padded(x.astype(np.float64), shape)
    groups = shape.groups
    ins, outs = shape.c_in // groups, shape.c_out // groups
    dw = np.zeros((shape.c_out, ins, *shape.kernel))
    grads = dy.astype(np.float64).reshape(shape.batch, groups, outs, *shape.out_sizes())
    for tap in np.ndindex(*shape.kernel):
        spans = [_span(shape, axis, tap[axis]) for axis in range(3)]
        window = padded[:, :, spans[0], spans[1], spans[2]]
        grouped = window.reshape(shape.batch, groups, ins, *shape.out_sizes())
        sums = np.einsum("ngodhw,ngcdhw->goc", grads, grouped, optimize=True)
        dw[:, :, tap[0], tap[1], tap[2]] = sums.reshape(shape.c_out, ins)
    return dw


def bias_gradient(dy: Array) -> Array:
    """dy [N, C_out, D', H', W'] -> db [C_out] in float64."""
    return np.asarray(dy.astype(np.float64).sum(axis=(0, 2, 3, 4)))


def _span(shape: ConvShape, axis: int, tap: int) -> slice:
    """The padded positions one tap reads along an axis."""
    start = tap * shape.dilation[axis]
    stop = start + (shape.out_size(axis) - 1) * shape.stride[axis] + 1
    return slice(start, stop, shape.stride[axis])

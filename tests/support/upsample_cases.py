"""Plans by differences of many looks, and how far each may be from the exact convolution.

y is a sum over terms of U V: V is x or a difference of neighbours along rows, columns or both, U a
sum of taps. With u = 2**-11, half a step of fp16, V carries at most two factors 1 + d, |d| <= u, on
terms whose moduli sum to that of the values subtracted, and U one. What is lost below fp16's normal
range is added, as in `fast_bounds.py`. Then float32 sums of n products, a bias and two additions.
"""

from __future__ import annotations

import numpy as np

from tolerance import output_rounding
from trnconv.algorithms.winograd_upsample.plan import UpsamplePlan
from trnconv.geometry import ConvShape
from trnconv.problem.coarse_residual import CoarseResidual
from trnconv.problem.epilogue import Epilogue

HALF, HALF_SUBNORMAL, FLOAT = 2.0**-11, 2.0**-25, 2.0**-24
ROUNDINGS, WAY_OUT = 3, 4
ADDED = Epilogue(residual="before")
CELLS = {"spread": CoarseResidual(1, 2, 2, 4), "shuffled": CoarseResidual(2, 2, 2, 2, 1)}


def upsampled(c_in, c_out, size, *, frames=(1, 1, 0, 0), rows=(1, 1), mode="zeros", batch=1):
    """A shape; `frames` are taps along them, how often each is read, how many are skipped, and
    padding before."""
    taps, times, skip, before = frames
    return ConvShape(
        batch,
        c_in,
        c_out,
        size,
        (taps, 3, 3),
        pad_before=(before, rows[0], 1),
        pad_after=(0, rows[1], 1),
        modes=(mode,) * 3,
        upsample=(times, 2, 2),
        skip=(skip, 0, 0),
    )


def plan_of(shape, rows, columns, **decisions):
    """A plan for one core of a trn2."""
    return UpsamplePlan(shape, "trn2", "bfloat16", rows=rows, columns=columns, **decisions)


CASES = {
    "one_block": plan_of(upsampled(16, 8, (1, 4, 5)), 4, 5),
    "blocks": plan_of(upsampled(16, 8, (1, 5, 7)), 2, 3),
    "one_row": plan_of(upsampled(16, 8, (1, 1, 9)), 1, 9),
    "one_column": plan_of(upsampled(16, 8, (1, 9, 1)), 3, 1),
    "replicated": plan_of(upsampled(16, 8, (1, 4, 5), mode="replicate"), 2, 3),
    "tiles_of_channels": plan_of(upsampled(200, 150, (2, 6, 10)), 2, 4),
    "images": plan_of(upsampled(16, 8, (1, 4, 5), batch=3), 2, 5),
    "doubled_frames": plan_of(
        upsampled(16, 8, (3, 4, 5), frames=(3, 2, 1, 2), mode="replicate"), 2, 5
    ),
    "causal": plan_of(upsampled(16, 8, (3, 4, 5), frames=(3, 1, 0, 2)), 2, 5, streamed=True),
    "frames_of_a_chunk": plan_of(upsampled(16, 8, (4, 4, 5), frames=(3, 1, 0, 0)), 4, 5),
    "loop": plan_of(upsampled(130, 140, (2, 12, 5)), 2, 5, iteration_spans=1),
    "loop_of_images": plan_of(upsampled(16, 8, (1, 4, 5), batch=4), 4, 3, iteration_spans=2),
    "loop_streamed": plan_of(
        upsampled(130, 140, (2, 12, 5)), 2, 3, iteration_spans=2, streamed=True, gpsimd_rows=True
    ),
    "gpsimd": plan_of(upsampled(16, 8, (1, 9, 5)), 3, 5, gpsimd_rows=True, gpsimd_sums=True),
    "pieces_of_steps": plan_of(upsampled(8, 8, (1, 6, 400)), 6, 400, gpsimd_rows=True),
    "rows_cut_above": plan_of(upsampled(16, 8, (1, 6, 5), rows=(0, 1)), 3, 5),
    "rows_cut_below": plan_of(upsampled(16, 8, (1, 6, 5), rows=(1, 0)), 4, 5),
    "rows_cut": plan_of(upsampled(16, 8, (1, 6, 5), rows=(0, 0)), 4, 5),
    "residual": plan_of(upsampled(16, 8, (2, 6, 5)), 3, 2, epilogue=ADDED),
    "coarse_residual": plan_of(
        upsampled(16, 8, (2, 6, 5)),
        3,
        2,
        epilogue=Epilogue(residual="before", coarse=CELLS["spread"]),
    ),
    "shuffled_residual": plan_of(
        upsampled(16, 8, (3, 12, 5)),
        2,
        3,
        iteration_spans=2,
        epilogue=Epilogue(residual="after", coarse=CELLS["shuffled"]),
    ),
}


def difference_bound(x, w, bias, exact, shape):
    """The largest error of each output of a correct convolution by differences."""
    magnitude = _magnitude(np.abs(x.astype(np.float64)), np.abs(w.astype(np.float64)), shape)
    terms = 4 * shape.c_in * shape.kernel[0] + WAY_OUT
    gamma = terms * FLOAT / (1 - terms * FLOAT)
    relative = (1 + HALF) ** ROUNDINGS * (1 + gamma) - 1
    off = relative * magnitude + gamma * np.abs(bias.astype(np.float64)).max()
    return off + output_rounding(np.abs(exact) + off, x.dtype)


def _magnitude(x, w, shape):
    """The sum of |U| |V| of every output, with moduli of all that U and V are made of."""
    edges = ["edge" if mode == "replicate" else "constant" for mode in shape.modes]
    x = np.pad(x, [(0, 0)] * 3 + [(1, 1), (0, 0)], mode=edges[1])
    x = np.pad(x, [(0, 0)] * 4 + [(1, 1)], mode=edges[2])
    rows, columns = shape.size[1:]
    inputs = {  # of a term, along rows and columns: one value, or two that are subtracted
        "sum": lambda a, axis: _part(a, 1, axis),
        "first": lambda a, axis: _part(a, 1, axis) + _part(a, 0, axis),
        "last": lambda a, axis: _part(a, 1, axis) + _part(a, 2, axis),
    }
    taps = {"sum": [0, 1, 2], "first": [0], "last": [2]}
    whole = np.zeros((shape.batch, shape.c_out, shape.out_size(0), 2 * rows, 2 * columns))
    for row in range(2):
        for column in range(2):
            for down in ("sum", ("first", "last")[row]):
                for right in ("sum", ("first", "last")[column]):
                    v = inputs[right](inputs[down](x, 3), 4) + 4 * HALF_SUBNORMAL / HALF
                    u = w[:, :, :, taps[down]][..., taps[right]].sum(axis=(3, 4))
                    u = u + w.sum(axis=(1, 2, 3, 4), keepdims=True)[..., 0, 0] * 2.0**-27
                    whole[:, :, :, row::2, column::2] += _frames(v, u, shape)
    first = 1 - shape.pad_before[1]
    return whole[:, :, :, first : first + shape.out_size(1)]


def _part(a, first, axis):
    return np.take(a, range(first, first + a.shape[axis] - 2), axis=axis)


def _frames(v, u, shape):
    """Sums over channels and taps along frames."""
    found = []
    for out in range(shape.out_size(0)):
        total = 0.0
        for tap in range(shape.kernel[0]):
            frame = shape.source(0, shape.in_position(0, out, tap))
            if frame >= 0:
                total = total + np.einsum("nchw,oc->nohw", v[:, :, frame], u[:, :, tap])
        found.append(total)
    return np.stack(found, axis=2)

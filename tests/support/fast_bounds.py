"""How far a correct fast convolution may be from the exact one. Nothing here is tuned.

y_o = sum over products p of A_op * m_p, and m_p = sum over channels and the other taps of U_p V_p,
with V = B^T x and U = G w. With u = 2**-11, half a step of fp16, and |.| taken of every entry:

V             is computed in r roundings to fp16, each of something that |B^T| |x| bounds, so it
              carries at most r factors 1 + d, |d| <= u, on terms whose moduli sum to |B^T| |x|.
              (What is scaled by 4 or 2 afterwards is so in |B^T| |x|, too.) Below fp16's normal
              range a rounding is off by 2**-25 at most, and what follows enlarges it by 10 at most.
U             is rounded once. Its scale puts every channel's largest at 2**13 or more, so what
              is lost below the normal range is at most 2**-25 * 2**-13 of that largest.
float32       n terms, a bias, and at most eight operations on the way out. Those form differences
              such as 4 m - 2 (m + m'), whose terms are at most three times what A has there.
pairs         F(2,3) along frames around all this: sums or differences of two frames are rounded
              once more, and every product of the outer transform has such a bound of its own.
output        as in `tolerance.py`.
"""

from dataclasses import replace

import numpy as np

from tolerance import output_rounding
from trnconv.algorithms.winograd.transforms import F23
from trnconv.geometry import ConvShape
from trnconv.reference import forward

HALF = 2.0**-11
HALF_SUBNORMAL = 2.0**-25
FLOAT = 2.0**-24
WAY_OUT = 8
CANCELLATION = 3


def fast_bound(x, w, bias, exact, plan):
    """The largest error of each output of a correct fast convolution."""
    sums = _magnitudes(np.abs(x.astype(np.float64)), np.abs(w.astype(np.float64)), exact, plan)
    roundings = (3 if plan.m > 2 else 2) + plan.frame_pairs
    terms = plan.shape.c_in * plan.shape.taps() + WAY_OUT
    gamma = CANCELLATION * terms * FLOAT / (1 - terms * FLOAT)
    relative = (1 + HALF) ** roundings * (1 + gamma) - 1
    added = 0.0 if bias is None else np.abs(bias.astype(np.float64)).max()
    off = relative * sums + gamma * added
    return off + output_rounding(np.abs(exact) + off, x.dtype)


def _magnitudes(x, w, exact, plan):
    """The moduli of everything that an output is the sum of."""
    if plan.frame_pairs:
        return _magnitudes_of_pairs(x, w, exact, plan)
    transform = plan.transforms
    if plan.axis == 1:
        x, w = x.swapaxes(2, 3), w.swapaxes(2, 3)
    magnitude = _products(_padded(x, plan), w, plan)
    sums = np.einsum("op,pnctij->nctoij", _moduli(transform.a_t), magnitude)
    shape = sums.shape
    sums = sums.reshape(*shape[:2], shape[2] * shape[3], *shape[4:])
    count = exact.shape[2 + plan.axis]
    sums = sums[:, :, plan.phase : plan.phase + count]
    if plan.axis == 1:
        sums = sums.swapaxes(2, 3)
    return sums


def _magnitudes_of_pairs(x, w, exact, plan):
    """The same for each product of the outer transform, and all of them for each of two frames."""
    pairs = -(-exact.shape[2] // 2)
    sides = (plan.shape.pad_before[0], plan.shape.pad_after[0])
    mode = "edge" if plan.shape.modes[0] == "replicate" else "constant"
    long = np.pad(x, ((0, 0), (0, 0), sides, (0, 0), (0, 0)), mode=mode)
    missing = max(0, 2 * pairs + 2 - long.shape[2])
    long = np.pad(long, ((0, 0), (0, 0), (0, missing), (0, 0), (0, 0)))
    frames = [long[:, :, n : n + 2 * pairs - 1 : 2] for n in range(4)]
    shape = replace(
        plan.shape,
        size=(pairs, *plan.shape.size[1:]),
        kernel=(1, *plan.shape.kernel[1:]),
        pad_before=(0, *plan.shape.pad_before[1:]),
        pad_after=(0, *plan.shape.pad_after[1:]),
    )
    one = replace(plan, shape=shape, frame_pairs=False, gpsimd_pairs=False, pieces=())
    found = np.zeros((*exact.shape[:2], 2 * pairs, *exact.shape[3:]))
    outer = _moduli(F23.a_t), _moduli(F23.b_t), _moduli(F23.g)
    for a, b, g in zip(outer[0].T, *outer[1:], strict=True):
        v = sum(b[n] * frames[n] for n in range(4)) + HALF_SUBNORMAL / HALF
        u = np.einsum("t,octij->ocij", g, w)[:, :, None]
        sums = _magnitudes(v, u, exact[:, :, :pairs], one)
        for frame in range(2):
            found[:, :, frame::2] += a[frame] * sums
    return found[:, :, : exact.shape[2]]


def _padded(x, plan):
    """All inputs of all tiles: padding, and zeros for what belongs to no output."""
    axis = plan.axis
    sides = (plan.shape.pad_before[axis], plan.shape.pad_after[axis])
    mode = "edge" if plan.shape.modes[axis] == "replicate" else "constant"
    padded = np.pad(x, ((0, 0), (0, 0), sides, (0, 0), (0, 0)), mode=mode)
    total = plan.tiles * plan.m + 2
    after = max(0, total - plan.phase - padded.shape[2])
    long = np.pad(padded, ((0, 0), (0, 0), (plan.phase, after), (0, 0), (0, 0)))
    return long[:, :, :total]


def _products(x, w, plan):
    """|B^T| |x| against |G| |w| for every product: [p, N, C_out, tiles, rows, columns].

    What is lost below fp16's normal range is added to both.
    """
    b, g = _moduli(plan.transforms.b_t), _moduli(plan.transforms.g)
    n, m = plan.transforms.products, plan.m
    other = 1 - plan.axis
    tiles = [x[:, :, i : i + m * (plan.tiles - 1) + 1 : m] for i in range(n)]
    u_all = np.einsum("pt,octij->pocij", g, w)
    largest = u_all.max(axis=(0, 2, 3, 4), keepdims=True)
    found = []
    for p in range(n):
        v = sum(b[p, i] * tiles[i] for i in range(n)) + 10 * HALF_SUBNORMAL / HALF
        u = u_all[p] + largest[0] * HALF_SUBNORMAL * 2.0**-13 / HALF
        pads = ((plan.shape.pad_before[axis], plan.shape.pad_after[axis]) for axis in (other, 2))
        (row, row_after), (column, column_after) = pads
        shape = ConvShape(
            v.shape[0],
            v.shape[1],
            w.shape[0],
            v.shape[2:],
            (1, *u.shape[2:]),
            pad_before=(0, row, column),
            pad_after=(0, row_after, column_after),
            modes=("zeros", plan.shape.modes[other], plan.shape.modes[2]),
        )
        found.append(forward(v, u[:, :, None], None, shape))
    return np.stack(found)


def _moduli(matrix):
    return np.array([[abs(float(value)) for value in row] for row in matrix])

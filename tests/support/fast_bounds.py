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
output        as in `tolerance.py`.
"""

import numpy as np

from tolerance import output_rounding
from trnconv.geometry import ConvShape
from trnconv.reference import forward

HALF = 2.0**-11
HALF_SUBNORMAL = 2.0**-25
FLOAT = 2.0**-24
WAY_OUT = 8
CANCELLATION = 3


def fast_bound(x, w, bias, exact, plan):
    """The largest error of each output of a correct fast convolution."""
    transform = plan.algorithm
    if plan.axis == 1:
        x, w = x.swapaxes(2, 3), w.swapaxes(2, 3)
    x_long = _padded(np.abs(x.astype(np.float64)), plan)
    magnitude = _products(x_long, np.abs(w.astype(np.float64)), plan)
    sums = np.einsum("op,pnctij->nctoij", _moduli(transform.a_t), magnitude)
    shape = sums.shape
    sums = sums.reshape(*shape[:2], shape[2] * shape[3], *shape[4:])
    count = exact.shape[2 + plan.axis]
    sums = sums[:, :, plan.phase : plan.phase + count]
    if plan.axis == 1:
        sums = sums.swapaxes(2, 3)
    roundings = 3 if plan.m > 2 else 2
    terms = plan.shape.c_in * plan.shape.taps() + WAY_OUT
    gamma = CANCELLATION * terms * FLOAT / (1 - terms * FLOAT)
    relative = (1 + HALF) ** roundings * (1 + gamma) - 1
    added = 0.0 if bias is None else np.abs(bias.astype(np.float64)).max()
    off = relative * sums + gamma * added
    return off + output_rounding(np.abs(exact) + off, x.dtype)


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
    b, g = _moduli(plan.algorithm.b_t), _moduli(plan.algorithm.g)
    n, m = plan.algorithm.products, plan.m
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

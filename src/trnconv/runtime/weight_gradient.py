"""The weight and bias gradient of a convolution, from arrays to arrays, in nkisim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import nkisim
from nkisim import Run, Spec
from nkisim.machine import Machine, Reading, find_machine
from nkisim.timing import Timeline, schedule
from trnconv.errors import ShapeError, UnsupportedError
from trnconv.geometry import Axes, ConvShape, Padding, conv_shape
from trnconv.kernels.weight_gradient import weight_gradient as kernel
from trnconv.plan.ends import ITEM_BYTES
from trnconv.plan.weight_gradient import WeightGradientPlan
from trnconv.plan.weight_gradient_choose import GradientRequest, choose_weight_gradient
from trnconv.plan.weight_gradient_work import mask_image, work_out
from trnconv.runtime.allowance import our_kernel

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class WeightGradient:
    """Both gradients, the plan that made them and what nkisim saw."""

    dw: Array  # [C_out, C_in / groups, ...]
    db: Array  # [C_out], float32
    plan: WeightGradientPlan
    run: Run


def weight_gradient(  # noqa: PLR0913 (torch's own arguments, and where to run)
    x: Array,
    dy: Array,
    kernel_shape: Sequence[int],
    *,
    stride: Axes = 1,
    padding: Padding = 0,
    dilation: Axes = 1,
    groups: int = 1,
    target: str = "trn2",
    wide: bool = True,
    plan: WeightGradientPlan | None = None,
) -> WeightGradient:
    """The gradient of a convolution's weight and bias, simulated.

    x is [N, C_in, ...], dy the gradient of its output [N, C_out, ...], `kernel_shape` the taps
    along each axis. dw is float32, or of the type of x if not `wide`. `plan` replaces the planner's
    choice.
    """
    shape = conv_shape(
        x.shape,
        (dy.shape[1], x.shape[1] // max(1, groups), *kernel_shape),
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
    )
    _require_output(dy, shape, len(kernel_shape))
    if x.dtype != dy.dtype:
        raise ShapeError(f"x is {x.dtype} and dy {dy.dtype}: both must be the same. Cast one.")
    mine = plan or plan_for(shape, target, str(x.dtype), wide=wide)
    work = work_out(mine)
    run = nkisim.run(
        our_kernel(kernel),
        x.reshape(mine.shape.batch, mine.shape.c_in, *mine.shape.size),
        dy.reshape(mine.shape.batch, mine.shape.c_out, *mine.shape.out_sizes()),
        mask_image(mine),
        work.place_table(),
        work.recipe,
        target=mine.machine,
    )
    dw, db = run.outputs
    return WeightGradient(_filters(dw, mine, tuple(kernel_shape)), db.reshape(-1), mine, run)


def plan_for(
    shape: ConvShape, target: str | Machine, dtype: str, *, wide: bool = True
) -> WeightGradientPlan:
    """The planner's choice."""
    if dtype not in ITEM_BYTES:
        raise UnsupportedError(
            f"a weight gradient of {dtype}: the kernel takes {', '.join(ITEM_BYTES)}. Cast x and"
            " dy."
        )
    request = GradientRequest(shape, find_machine(target), dtype, wide)
    return choose_weight_gradient(request).plan


def time_weight_gradient(
    shape: ConvShape,
    machine: str | Machine = "trn2",
    reading: Reading = Reading.default,
    dtype: str = "bfloat16",
    plan: WeightGradientPlan | None = None,
) -> Timeline:
    """The modelled time of a weight gradient, or of one plan of it, without data."""
    mine = plan or plan_for(shape, machine, dtype)
    work = work_out(mine)
    run = nkisim.run(
        our_kernel(kernel),
        Spec((mine.shape.batch, mine.shape.c_in, *mine.shape.size), mine.dtype),
        Spec((mine.shape.batch, mine.shape.c_out, *mine.shape.out_sizes()), mine.dtype),
        Spec(mask_image(mine).shape, "float32"),
        Spec(work.place_table().shape, "int32"),
        work.recipe,
        target=mine.machine,
        values=False,
    )
    return schedule(run.trace, run.machine, reading, memory=run.memory)


def _require_output(dy: Array, shape: ConvShape, rank: int) -> None:
    expected = (shape.batch, shape.c_out, *shape.out_sizes()[3 - rank :])
    if dy.shape != expected:
        raise ShapeError(f"dy is {dy.shape}: the output of this convolution is {expected}.")


def _filters(dw: Array, plan: WeightGradientPlan, kernel_shape: tuple[int, ...]) -> Array:
    """dw as the kernel leaves it -> [C_out, C_in / groups, taps]; off-diagonal groups are dropped.

    A row is an output channel: frame tap, column tap, row tap, input channel of its pack.
    """
    depth, height, width = plan.shape.kernel
    ins, outs = plan.shape.c_in // plan.groups, plan.shape.c_out // plan.groups
    rows = dw.reshape(plan.packs, plan.pack, outs, depth, width, height, plan.pack, ins)
    own = np.arange(plan.pack)
    picked = rows[:, own, :, :, :, :, own]  # [pack, packs, outs, depth, width, height, ins]
    ordered = picked.transpose(1, 0, 2, 6, 3, 5, 4)
    return np.ascontiguousarray(ordered).reshape(plan.shape.c_out, ins, *kernel_shape)

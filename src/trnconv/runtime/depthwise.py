"""A depthwise convolution from arrays to an array, in nkisim, on the engines that do it fastest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import nkisim
from nkisim import Run, Spec
from nkisim.machine import Reading, find_machine
from nkisim.timing import Timeline, schedule
from trnconv.errors import ShapeError, UnsupportedError
from trnconv.geometry import Axes, ConvShape, Padding, conv_shape
from trnconv.kernels.depthwise import depthwise as kernel
from trnconv.plan.conv_plan import ConvPlan
from trnconv.plan.depthwise import DepthwisePlan
from trnconv.plan.depthwise_choose import ANY, choose_depthwise
from trnconv.plan.depthwise_program import filter_image, program
from trnconv.plan.ends import ITEM_BYTES
from trnconv.runtime.allowance import our_kernel
from trnconv.runtime.convolve import LaunchOptions, convolve
from trnconv.runtime.modelled import time_plan

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class DepthwiseResult:
    """An output, the plan that made it (a ConvPlan is the Tensor engine's) and what nkisim saw."""

    y: Array
    plan: DepthwisePlan | ConvPlan
    run: Run


def depthwise(  # noqa: PLR0913 (torch's own arguments, and where to run)
    x: Array,
    w: Array,
    bias: Array | None = None,
    *,
    stride: Axes = 1,
    padding: Padding = 0,
    dilation: Axes = 1,
    target: str = "trn2",
    engines: str = ANY,
    plan: DepthwisePlan | ConvPlan | None = None,
) -> DepthwiseResult:
    """Each channel of x [N, C, ...] with its own filters of w [C * multiplier, 1, ...], simulated.

    `engines` is "any" (whichever are modelled to be fastest), "tensor" or "vector" (Vector, Scalar
    and GpSimd). `plan` replaces the planner's choice.
    """
    options: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation}
    shape = depthwise_shape(x.shape, w.shape, **options)
    mine = plan or plan_depthwise(shape, target, str(x.dtype), engines)
    if isinstance(mine, ConvPlan):
        done = convolve(
            x,
            w,
            bias,
            **options,
            groups=shape.c_in,
            launch=LaunchOptions(target, plans=(mine,)),
        )
        return DepthwiseResult(done.y, mine, done.runs[0])
    run = nkisim.run(
        our_kernel(kernel),
        x.reshape(shape.batch, shape.c_in, *shape.size),
        filter_image(mine, w.astype(x.dtype), bias),
        program(mine),
        target=mine.machine,
    )
    out = np.asarray(run.outputs[0] if isinstance(run.outputs, tuple) else run.outputs)
    y = out.reshape(shape.batch, shape.c_out, *shape.out_sizes()[5 - x.ndim :])
    return DepthwiseResult(y, mine, run)


def depthwise_shape(
    x_shape: tuple[int, ...], w_shape: tuple[int, ...], **options: Any
) -> ConvShape:
    """The problem in integers: as many groups as channels."""
    if len(w_shape) < 2 or w_shape[1] != 1 or w_shape[0] % x_shape[1]:
        raise ShapeError(
            f"depthwise of {tuple(x_shape)} with {tuple(w_shape)}: the weight is"
            f" [{x_shape[1]} * multiplier, 1, ...]. For other groups call convolve."
        )
    return conv_shape(x_shape, w_shape, groups=x_shape[1], **options)


def plan_depthwise(
    shape: ConvShape, target: str, dtype: str, engines: str = ANY
) -> DepthwisePlan | ConvPlan:
    """The planner's choice."""
    if dtype not in ITEM_BYTES:
        raise UnsupportedError(
            f"a depthwise convolution of {dtype}: the kernels take {', '.join(ITEM_BYTES)}. Cast"
            " the input."
        )
    choice = choose_depthwise(shape, find_machine(target), dtype, engines)
    if choice.on_tensor_engine and choice.tensor is not None:
        return choice.tensor.taken.plan
    return choice.priced[0].plan


def time_depthwise(
    plan: DepthwisePlan | ConvPlan, shape: ConvShape, reading: Reading = Reading.default
) -> Timeline:
    """The modelled time of a plan of either kind, without data."""
    if isinstance(plan, ConvPlan):
        return time_plan(plan, shape, reading)
    steps = program(plan)
    run = nkisim.run(
        our_kernel(kernel),
        Spec((shape.batch, shape.c_in, *shape.size), plan.dtype),
        Spec((steps.lines, steps.filter_columns), "float32"),
        steps,
        target=plan.machine,
        values=False,
    )
    return schedule(run.trace, run.machine, reading, memory=run.memory)

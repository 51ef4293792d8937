"""The weight and bias gradient of a convolution, from arrays to arrays, in nkisim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nkisim import Run
from nkisim.machine import Machine, Reading, find_machine
from nkisim.timing import Timeline
from trnconv.algorithms.algorithm import Plan
from trnconv.errors import ShapeError
from trnconv.geometry import ZEROS, Axes, ConvShape, Padding, conv_shape, require_not_upsampled
from trnconv.problem.conv_problem import WEIGHT_GRADIENT, ConvProblem
from trnconv.problem.epilogue import PLAIN_EPILOGUE, Epilogue
from trnconv.runtime import compute
from trnconv.runtime.launch import LaunchOperands, time_plan
from trnconv.runtime.plans import plans_for
from trnconv.runtime.simulator import SimulatedDevice

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class WeightGradient:
    """Both gradients, the plan that made them (the first core's) and what nkisim saw."""

    dw: Array  # [C_out, C_in / groups, ...]
    db: Array  # [C_out], float32
    plan: Plan
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
    padding_mode: str | Sequence[str] = ZEROS,
    machine: str = "trn2",
    wide: bool = True,
    plan: Plan | None = None,
    cores: int | None = None,
) -> WeightGradient:
    """The gradient of a convolution's weight and bias, simulated.

    x is [N, C_in, ...], dy the gradient of its output [N, C_out, ...], `kernel_shape` the taps
    along each axis. dw is float32, or of the type of x if not `wide`. `plan` replaces the planner's
    choice by one for one core; with two `cores`, each computes its part of dw (None: as many as a
    launch of the machine has).
    """
    shape = conv_shape(
        x.shape,
        (dy.shape[1], x.shape[1] // max(1, groups), *kernel_shape),
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        padding_mode=padding_mode,
    )
    _require_output(dy, shape, len(kernel_shape))
    require_not_upsampled(shape, "weight gradient")
    if x.dtype != dy.dtype:
        raise ShapeError(f"x is {x.dtype} and dy {dy.dtype}: both must be the same. Cast one.")
    device = SimulatedDevice(cores, plans=(plan,) if plan else ())
    problem = gradient_problem(shape, machine, str(x.dtype), wide=wide)
    x5 = x.reshape(shape.batch, shape.c_in, *shape.size)
    dy5 = dy.reshape(shape.batch, shape.c_out, *shape.out_sizes())
    dw, db = compute.weight_gradient(problem, LaunchOperands((x5, dy5)), device)
    plans, run = device.launched[0]
    sizes = (shape.c_out, shape.c_in // groups, *kernel_shape)
    return WeightGradient(np.ascontiguousarray(dw).reshape(sizes), db, plans[0], run)


def gradient_problem(
    shape: ConvShape, machine: str | Machine, dtype: str, *, wide: bool = True
) -> ConvProblem:
    """What is asked of the planner; dw in float32 if `wide`."""
    epilogue = Epilogue(dtype="float32") if wide else PLAIN_EPILOGUE
    return ConvProblem(
        shape, find_machine(machine), dtype, epilogue=epilogue, direction=WEIGHT_GRADIENT
    )


def plan_for(shape: ConvShape, machine: str | Machine, dtype: str, *, wide: bool = True) -> Plan:
    """The planner's choice for one core."""
    require_not_upsampled(shape, "weight gradient")
    return plans_for(gradient_problem(shape, machine, dtype, wide=wide), cores=1)[0]


def time_weight_gradient(
    shape: ConvShape,
    machine: str | Machine = "trn2",
    reading: Reading = Reading.default,
    dtype: str = "bfloat16",
    plan: Plan | None = None,
) -> Timeline:
    """The modelled time of a weight gradient on one core, or of a plan of it, without data."""
    return time_plan(plan or plan_for(shape, machine, dtype), reading)


def _require_output(dy: Array, shape: ConvShape, rank: int) -> None:
    expected = (shape.batch, shape.c_out, *shape.out_sizes()[3 - rank :])
    if dy.shape != expected:
        raise ShapeError(f"dy is {dy.shape}: the output of this convolution is {expected}.")

"""A depthwise convolution of NumPy arrays in nkisim, on the engines that one asks for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from nkisim import Run
from trnconv.algorithms.algorithm import Plan
from trnconv.errors import PlanError, ShapeError
from trnconv.geometry import Axes, ConvShape, Padding, conv_shape
from trnconv.runtime.convolve import LaunchOptions, convolve, plan_for

Array = np.ndarray[Any, Any]
ANY, TENSOR, OTHERS = "any", "tensor", "vector"
_ALGORITHMS = {ANY: (), TENSOR: ("direct",), OTHERS: ("depthwise",)}


@dataclass(frozen=True)
class DepthwiseResult:
    """An output, the plan that made it and what nkisim saw."""

    y: Array
    plan: Plan
    run: Run


def depthwise(  # noqa: PLR0913 (torch's own arguments, and where to run)
    x: Array,
    w: Array,
    bias: Array | None = None,
    *,
    stride: Axes = 1,
    padding: Padding = 0,
    dilation: Axes = 1,
    machine: str = "trn2",
    engines: str = ANY,
    plan: Plan | None = None,
) -> DepthwiseResult:
    """Each channel of x [N, C, ...] with its own filters of w [C * multiplier, 1, ...], simulated.

    `engines` is "any" (whichever are modelled to be fastest), "tensor" or "vector" (Vector, Scalar
    and GpSimd). `plan` replaces the planner's choice.
    """
    options: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation}
    shape = depthwise_shape(x.shape, w.shape, **options)
    launch = LaunchOptions(
        machine, plans=(plan,) if plan else None, algorithms=_algorithms(engines)
    )
    with _naming_the_tensor_engine(engines):
        done = convolve(x, w, bias, **options, groups=shape.c_in, launch=launch)
    return DepthwiseResult(done.y, done.plans[0][0], done.runs[0])


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


def plan_depthwise(shape: ConvShape, machine: str, dtype: str, engines: str = ANY) -> Plan:
    """The planner's choice for one core."""
    with _naming_the_tensor_engine(engines):
        return plan_for(shape, dtype, LaunchOptions(machine, 1, algorithms=_algorithms(engines)))[0]


@contextmanager
def _naming_the_tensor_engine(engines: str) -> Iterator[None]:
    """Whoever asked for the other engines and cannot have them is told of this one."""
    try:
        yield
    except PlanError as error:
        if engines != OTHERS:
            raise
        raise PlanError(f"{error} Or use the Tensor engine (engines={TENSOR!r}).") from error


def _algorithms(engines: str) -> tuple[str, ...]:
    if engines not in _ALGORITHMS:
        raise PlanError(f"engines={engines!r}: one of {', '.join(map(repr, _ALGORITHMS))}.")
    return _ALGORITHMS[engines]

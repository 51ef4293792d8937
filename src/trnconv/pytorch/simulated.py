"""The nkisim backend: CPU tensors through the NKI kernels. Plans are kept, one a shape.

Weights are packed at every call: that is a hundredth of the time a simulation takes, and whatever
changed a weight, the result is right.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch

from trnconv.geometry import ConvShape, TransposedShape, input_gradient_shape
from trnconv.plan.accuracy import ALWAYS_DIRECT
from trnconv.plan.question import Plan
from trnconv.plan.weight_gradient import WeightGradientPlan
from trnconv.pytorch.arrays import to_array, to_tensor
from trnconv.pytorch.extras import Extras
from trnconv.pytorch.geometry import Splice, Window
from trnconv.runtime import (
    LaunchOptions,
    convolve,
    convolve_shape,
    convolve_transposed,
    plan_for,
    planned_launches,
)
from trnconv.runtime.weight_gradient import plan_for as plan_gradient
from trnconv.runtime.weight_gradient import weight_gradient

_TARGET = "trn2"
_PLANS = 4096  # shapes of a process; a large model has some hundreds


def convolution(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None,
    window: Window,
    extras: Extras,
) -> torch.Tensor:
    """x * w + bias, and the end that `extras` asks for, in one kernel."""
    values = to_array(x)
    asked = LaunchOptions(_TARGET, end=extras.end, policy=extras.policy)
    plans = _plans(window.forward(x.shape, w.shape), str(values.dtype), asked)
    added = None if extras.residual is None else to_array(extras.residual)
    done = convolve(
        values,
        to_array(w),
        None if bias is None else to_array(bias),
        stride=window.stride,
        padding=window.pads,
        dilation=window.dilation,
        groups=window.groups,
        launch=replace(asked, plans=plans, residual=added),
    )
    return to_tensor(done.y)


def spliced(
    pieces: list[torch.Tensor],
    w: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    splice: Splice,
) -> torch.Tensor:
    """A convolution of frames in several tensors, in one kernel."""
    arrays = [to_array(piece) for piece in pieces]
    shape = splice.shape([piece.shape for piece in pieces], w.shape)
    end = splice.end(residual=residual is not None)
    frames = tuple(piece.shape[2] for piece in pieces) if len(pieces) > 1 else ()
    asked = LaunchOptions(_TARGET, end=end, reproducible=splice.reproducible, policy=splice.policy)
    plans = _plans(shape, str(arrays[0].dtype), asked, frames)
    added = None if residual is None else to_array(residual)
    launch = replace(asked, plans=plans, residual=added)
    own_bias = None if bias is None else to_array(bias)
    return to_tensor(convolve_shape(arrays, to_array(w), own_bias, shape, launch).y)


def input_gradient(
    dy: torch.Tensor, w: torch.Tensor, x_shape: list[int], window: Window
) -> torch.Tensor:
    """The transposed convolution of dy that has the shape of x."""
    shape = input_gradient_shape(window.forward(x_shape, w.shape))
    dy5 = to_array(dy).reshape(shape.batch, shape.c_in, *shape.size)
    w5 = to_array(w).reshape(w.shape[0], w.shape[1], *shape.kernel)
    plans = _transposed_plans(shape, str(dy5.dtype))
    done = convolve_transposed(dy5, w5, None, shape, LaunchOptions(_TARGET, plans=plans))
    return to_tensor(done.y.reshape(x_shape))


def filter_gradient(
    x: torch.Tensor, dy: torch.Tensor, kernel: list[int], window: Window
) -> torch.Tensor:
    """The gradient of w, summed in float32 and rounded once to the type of x."""
    values = to_array(x)
    shape = window.forward(x.shape, [dy.shape[1], x.shape[1] // window.groups, *kernel])
    done = weight_gradient(
        values,
        to_array(dy),
        kernel,
        stride=window.stride,
        padding=window.pads,
        dilation=window.dilation,
        groups=window.groups,
        plan=_gradient_plan(shape, str(values.dtype)),
    )
    return to_tensor(done.dw).to(x.dtype)


@lru_cache(_PLANS)
def _plans(
    shape: ConvShape, dtype: str, launch: LaunchOptions, frames: tuple[int, ...] = ()
) -> tuple[Plan, ...] | None:
    """The plan of a convolution in one part; None for one in several, planned part by part.

    `frames` of an input in several pieces: those are never in several parts.
    """
    if frames:
        return plan_for(shape, dtype, launch, frames)
    parts = list(planned_launches(shape, dtype, launch))
    return parts[0][1] if len(parts) == 1 else None


@lru_cache(_PLANS)
def _transposed_plans(shape: TransposedShape, dtype: str) -> tuple[Plan, ...]:
    return plan_for(shape, dtype, LaunchOptions(_TARGET, policy=ALWAYS_DIRECT))


@lru_cache(_PLANS)
def _gradient_plan(shape: ConvShape, dtype: str) -> WeightGradientPlan:
    return plan_gradient(shape, _TARGET, dtype)

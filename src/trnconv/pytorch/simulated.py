"""The nkisim backend: CPU tensors through the NKI kernels, with plans and packed weights kept."""

from __future__ import annotations

import torch

from trnconv.plan.ends import BEFORE, NO_RESIDUAL, end_of
from trnconv.pytorch.arrays import to_array, to_tensor
from trnconv.pytorch.extras import Extras
from trnconv.pytorch.geometry import Window
from trnconv.runtime import LaunchOptions, convolve, convolve_transposed
from trnconv.runtime.weight_gradient import weight_gradient


def convolution(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None,
    window: Window,
    extras: Extras,
) -> torch.Tensor:
    """x * w + bias, and the end that `extras` asks for, in one kernel."""
    place = NO_RESIDUAL if extras.residual is None else BEFORE
    added = None if extras.residual is None else to_array(extras.residual)
    launch = LaunchOptions(end=end_of(extras.activation, place, ""), residual=added)
    done = convolve(
        to_array(x),
        to_array(w),
        None if bias is None else to_array(bias),
        stride=window.stride,
        padding=window.pads,
        dilation=window.dilation,
        groups=window.groups,
        launch=launch,
    )
    return to_tensor(done.y)


def input_gradient(
    dy: torch.Tensor, w: torch.Tensor, x_shape: list[int], window: Window
) -> torch.Tensor:
    """The transposed convolution of dy that has the shape of x."""
    shape = window.input_gradient(x_shape, w.shape)
    dy5 = to_array(dy).reshape(shape.batch, shape.c_in, *shape.size)
    w5 = to_array(w).reshape(w.shape[0], w.shape[1], *shape.kernel)
    return to_tensor(convolve_transposed(dy5, w5, None, shape).y.reshape(x_shape))


def filter_gradient(
    x: torch.Tensor, dy: torch.Tensor, kernel: list[int], window: Window
) -> torch.Tensor:
    """The gradient of w, summed in float32 and rounded once to the type of x."""
    done = weight_gradient(
        to_array(x),
        to_array(dy),
        kernel,
        stride=window.stride,
        padding=window.pads,
        dilation=window.dilation,
        groups=window.groups,
    )
    return to_tensor(done.dw).to(x.dtype)

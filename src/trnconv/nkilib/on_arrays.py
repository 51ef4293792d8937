"""The library's calls on NumPy arrays: in nkisim."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkisim.numerics.operators import activation_functions as functions
from trnconv.geometry import input_gradient_shape
from trnconv.nkilib.call import VendorCall
from trnconv.problem.policy import policy_of
from trnconv.runtime import weight_gradient as gradients
from trnconv.runtime.convolve import LaunchOptions, convolve_shape, convolve_transposed

Array = np.ndarray[Any, Any]
_AXES = (0, 2, 3, 4)  # all but channels
_ACTIVATIONS = {
    "identity": functions.copy,
    "silu": functions.silu,
    "gelu": functions.gelu,
    "gelu_tanh": functions.gelu_apprx_tanh,
}
_TARGET = "trn2"


def convolution(
    call: VendorCall, x: Array, filters: Array, bias: Array | None, residual: Array | None
) -> Array:
    """y [B, C_out, D', H', W'], of the type of x."""
    launch = LaunchOptions(
        call.machine or _TARGET,
        call.cores,
        epilogue=call.epilogue,
        residual=residual,
        policy=policy_of(call.accuracy),
    )
    shape = call.shape(x.shape, filters.shape)
    return convolve_shape((x,), torch_layout(filters), bias, shape, launch).y


def input_gradient(call: VendorCall, dy: Array, filters: Array, x: Array) -> Array:
    """dx, of the type of dy."""
    shape = input_gradient_shape(call.shape(x.shape, filters.shape))
    launch = LaunchOptions(call.machine or _TARGET, call.cores)
    return convolve_transposed(dy, torch_layout(filters), None, shape, launch).y


def weight_gradient(call: VendorCall, x: Array, dy: Array, filters: Array) -> tuple[Array, Array]:
    """dw [Kd, Kh, Kw, C_in, C_out] and db [C_out], of the type of x."""
    pads = tuple(zip(call.before, call.after, strict=True))
    done = gradients.weight_gradient(
        x,
        dy,
        filters.shape[:3],
        stride=call.stride,
        padding=pads,
        dilation=call.dilation,
        machine=call.machine or _TARGET,
        cores=call.cores,
    )
    dw = np.ascontiguousarray(done.dw.transpose(2, 3, 4, 1, 0))
    return dw.astype(x.dtype), done.db.astype(x.dtype)


def torch_layout(filters: Array) -> Array:
    """[Kd, Kh, Kw, C_in, C_out] as [C_out, C_in, Kd, Kh, Kw]."""
    return filters.transpose(4, 3, 0, 1, 2)


def statistics(y: Array) -> tuple[Array, Array]:
    """Mean and variance (correction 0) of every channel, float32."""
    wide = y.astype(np.float64)
    mean, variance = wide.mean(axis=_AXES), wide.var(axis=_AXES)
    return mean.astype(np.float32), variance.astype(np.float32)


def wide(array: Array) -> Array:
    """As float32."""
    return array.astype(np.float32)


def like(array: Array, other: Array) -> Array:
    """In the type of another."""
    return array.astype(other.dtype)


def activated(y: Array, activation: str) -> Array:
    """float32 in and out."""
    return np.asarray(_ACTIVATIONS[activation](y))

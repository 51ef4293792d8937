"""The gradient of a convolution with respect to its input: a transposed convolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trnconv.errors import UnsupportedError
from trnconv.geometry import NO_MODES, Axes, Padding, conv_shape, input_gradient_shape
from trnconv.runtime.compute import require_shape
from trnconv.runtime.convolve import (
    DEFAULT_LAUNCH,
    Convolved,
    LaunchOptions,
    convolve_transposed,
)

Array = np.ndarray[Any, Any]


def input_gradient(  # noqa: PLR0913 (the arguments of the convolution)
    dy: Array,
    w: Array,
    x_shape: Sequence[int],
    *,
    stride: Axes = 1,
    padding: Padding = 0,
    dilation: Axes = 1,
    groups: int = 1,
    padding_mode: str = "zeros",
    launch: LaunchOptions = DEFAULT_LAUNCH,
) -> Convolved:
    """dx [N, C_in, ...] from dy [N, C_out, ...] and w [C_out, C_in / groups, ...]."""
    shape = conv_shape(
        x_shape,
        w.shape,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        padding_mode=padding_mode,
    )
    if shape.modes != NO_MODES:
        raise UnsupportedError(
            f"the input gradient with {shape.modes} padding: computed for zeros only. Pad the input"
            " before the convolution, and let the padding have its own gradient."
        )
    rank = len(x_shape) - 2
    require_shape("dy", dy, (shape.batch, shape.c_out, *shape.out_sizes()[3 - rank :]))
    turned = input_gradient_shape(shape)
    dy5 = dy.reshape(turned.batch, turned.c_in, *turned.size)
    w5 = w.astype(dy.dtype).reshape(shape.c_out, -1, *shape.kernel)
    done = convolve_transposed(dy5, w5, None, turned, launch)
    return Convolved(done.y.reshape(tuple(x_shape)), done.plans, done.runs)

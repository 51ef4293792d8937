"""The gradient of a convolution with respect to its input: a transposed convolution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trnconv.geometry import Axes, ConvShape, Padding, conv_shape, input_gradient_shape
from trnconv.problem import borders
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
    padding_mode: str | Sequence[str] = "zeros",
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
    rank = len(x_shape) - 2
    require_shape("dy", dy, (shape.batch, shape.c_out, *shape.out_sizes()[3 - rank :]))
    dy5 = dy.reshape(shape.batch, shape.c_out, *shape.out_sizes())
    w5 = w.astype(dy.dtype).reshape(shape.c_out, -1, *shape.kernel)
    launched: list[Convolved] = []

    def computed(padded: ConvShape) -> Array:
        launched.append(convolve_transposed(dy5, w5, None, input_gradient_shape(padded), launch))
        return launched[0].y

    dx = borders.input_gradient(shape, computed)
    return replace(launched[0], y=dx.reshape(tuple(x_shape)))

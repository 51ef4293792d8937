"""`depthwise_conv1d_implicit_gemm`: nki-library's call, on NumPy arrays, without its limits.

Names, order and defaults of the arguments, and the layouts, are those of nki-library 2.32. Besides
what it takes, this one takes any number of channels, padding, stride and dilation of the filter,
several filters for a channel, and a dilated input (a transposed convolution, phase by phase).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trnconv.errors import ShapeError, UnsupportedError
from trnconv.geometry import TransposedShape
from trnconv.runtime.convolve import LaunchOptions, convolve_transposed
from trnconv.runtime.depthwise import depthwise, depthwise_shape

Array = np.ndarray[Any, Any]
Pair = tuple[int, int]
Permutation = tuple[int, ...] | None


def depthwise_conv1d_implicit_gemm(  # noqa: PLR0913, PLR0917 (nki-library's signature)
    img_ref: Array,
    filter_ref: Array,
    padding: tuple[Pair, Pair] = ((0, 0), (0, 0)),
    stride: Pair = (1, 1),
    rhs_dilation: Pair = (1, 1),
    lhs_dilation: Pair = (1, 1),
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    in_perm: Permutation = None,
    kern_perm: Permutation = None,
    out_perm: Permutation = None,
    *,
    machine: str = "trn2",
) -> Array:
    """img_ref [N, C, 1, W], filter_ref [C * multiplier, 1, 1, S] -> [N, C * multiplier, 1, Q].

    Q = (lhs_dilation * (W - 1) + 1 + padding - rhs_dilation * (S - 1) - 1) // stride + 1, each
    along the width. `feature_group_count` must be C.
    """
    _require_layouts(img_ref, filter_ref, feature_group_count)
    _require_line(padding[0], stride[0], rhs_dilation[0], lhs_dilation[0])
    if batch_group_count != 1:
        raise UnsupportedError(
            f"batch_group_count={batch_group_count}: only 1 is computed. Split the batch."
        )
    for name, order in (("in_perm", in_perm), ("kern_perm", kern_perm), ("out_perm", out_perm)):
        if order is not None and tuple(order) != tuple(range(4)):
            raise UnsupportedError(f"{name}={order}: transpose the array before or after the call.")
    x, w = img_ref[:, :, 0], filter_ref[:, :, 0]
    along = (padding[1], stride[1], rhs_dilation[1])
    if lhs_dilation[1] == 1:
        options: dict[str, Any] = {"padding": (along[0],), "stride": along[1], "dilation": along[2]}
        y = depthwise(x, w, **options, machine=machine).y
    else:
        y = _of_dilated_input(x, w, along, lhs_dilation[1], machine)
    return y[:, :, None]


def _of_dilated_input(
    x: Array, w: Array, along: tuple[Pair, int, int], apart: int, machine: str
) -> Array:
    """The convolution of x with `apart - 1` zeros between its elements: the transposed one.

    Element q of x meets output p at tap t where p = apart * q - dilation * t + pad; with the filter
    turned round that is what a transposed convolution of stride `apart` adds up.
    """
    (before, after), stride, dilation = along
    reach = dilation * (w.shape[2] - 1)
    if stride != 1:
        raise UnsupportedError(
            f"lhs_dilation {apart} with stride {stride}: one of them must be 1. Take every"
            f" {stride}th output of stride 1."
        )
    if before > reach:
        raise UnsupportedError(
            f"lhs_dilation {apart} with {before} zeros before a filter that reaches over {reach}:"
            f" at most {reach} are computed. Pad the output."
        )
    dilated = apart * (x.shape[2] - 1) + 1
    depthwise_shape((*x.shape[:2], dilated), w.shape, padding=((before, after),), dilation=dilation)
    shape = TransposedShape(
        batch=x.shape[0],
        c_in=x.shape[1],
        c_out=w.shape[0],
        size=(1, 1, x.shape[2]),
        out=(1, 1, dilated + before + after - reach),
        kernel=(1, 1, w.shape[2]),
        stride=(1, 1, apart),
        dilation=(1, 1, dilation),
        pad_before=(0, 0, reach - before),
        groups=x.shape[1],
    )
    turned = w[:, 0, ::-1].reshape(x.shape[1], -1, 1, 1, w.shape[2])
    done = convolve_transposed(x[:, :, None, None], turned, None, shape, LaunchOptions(machine))
    return done.y[:, :, 0, 0]


def _require_layouts(img: Array, filters: Array, groups: int) -> None:
    for name, array in (("img_ref", img), ("filter_ref", filters)):
        if array.ndim != 4 or array.shape[2] != 1:
            raise ShapeError(
                f"{name} is {array.shape}: the image is [N, C, 1, W], the filter [C, 1, 1, S]."
            )
    if groups != img.shape[1]:
        raise UnsupportedError(
            f"feature_group_count={groups} with {img.shape[1]} channels: a depthwise convolution"
            " has as many groups as channels. For others call trnconv.conv1d."
        )


def _require_line(padding: Pair, stride: int, rhs_dilation: int, lhs_dilation: int) -> None:
    if tuple(padding) != (0, 0) or (stride, rhs_dilation, lhs_dilation) != (1, 1, 1):
        raise UnsupportedError(
            f"padding {padding}, stride {stride}, dilations {rhs_dilation} and {lhs_dilation} along"
            " the height: it is 1, so no padding and 1 for the others. For images call"
            " trnconv.conv2d."
        )

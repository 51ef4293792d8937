"""`depthwise_conv1d` with the arguments of nki-library's `depthwise_conv1d_implicit_gemm`."""

from __future__ import annotations

from typing import Any

from trnconv.nkilib import on_arrays
from trnconv.nkilib.forward import computed_on
from trnconv.runtime.depthwise_conv1d import Pair, Permutation, depthwise_conv1d_implicit_gemm


def depthwise_conv1d(  # noqa: PLR0913, PLR0917 (nki-library's signature)
    img_ref: Any,
    filter_ref: Any,
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
    machine: str | None = None,
) -> Any:
    """img_ref [N, C, 1, W], filter_ref [C * multiplier, 1, 1, S] -> [N, C * multiplier, 1, Q].

    `feature_group_count` must be C. Tensors take no `lhs_dilation`: torch's conv_transpose1d is
    that.
    """
    on = computed_on(img_ref)
    moves = (padding, stride, rhs_dilation, lhs_dilation, feature_group_count)
    options = (*moves, batch_group_count, in_perm, kern_perm, out_perm)
    if on is on_arrays:
        return depthwise_conv1d_implicit_gemm(
            img_ref, filter_ref, *options, machine=machine or "trn2"
        )
    return on.depthwise_conv1d(img_ref, filter_ref, options, machine)

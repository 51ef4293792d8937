"""`conv3d` and `conv1d` with nki-library's arguments."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from types import ModuleType
from typing import Any

import numpy as np

from trnconv.errors import ShapeError, UnsupportedError
from trnconv.nkilib import on_arrays
from trnconv.nkilib.batch_norm import BatchNorm, folded, norm_of, trained
from trnconv.nkilib.call import VendorCall, call_of, refuse_kind, require_one_type
from trnconv.nkilib.modes import BatchNormMode, ResidualAddLoc
from trnconv.nkilib.packed_filters import FiltersInKernel
from trnconv.problem.epilogue import IDENTITY, NO_RESIDUAL
from trnconv.problem.policy import DIRECT

Triple = tuple[int, int, int]
_NO_PADDING = (0, 0, 0, 0, 0, 0)


def conv3d(  # noqa: PLR0913, PLR0917 (nki-library's signature)
    x_in: Any,
    filters: Any,
    bias: Any = None,
    stride: Triple = (1, 1, 1),
    padding: tuple[int, ...] = _NO_PADDING,
    dilation: Triple = (1, 1, 1),
    activation_fn: Enum | None = None,
    lnc_shard: bool = False,  # noqa: FBT001, FBT002 (the library's)
    batch_norm_mode: Enum = BatchNormMode.NONE,
    output_pre_norm: bool = False,  # noqa: FBT001, FBT002 (the library's)
    batch_norm_eps: float = 1e-5,
    gamma: Any = None,
    beta: Any = None,
    momentum: float = 0.1,
    running_means: Any = None,
    running_variances: Any = None,
    residual_add_loc: Enum = ResidualAddLoc.NONE,
    residuals_in: Any = None,
    *,
    machine: str | None = None,
    accuracy: str = DIRECT,
) -> Any:
    """x_in [B, C_in, D, H, W], filters [Kd, Kh, Kw, C_in, C_out] -> y [B, C_out, D', H', W'].

    `padding` has six numbers: before and after depth, height and width. With a batch norm in
    TRAINING mode a tuple is returned, as by the library: y, (the sums,) means, variances, and the
    running statistics. `lnc_shard` plans for both cores of a launch where nkisim computes; on a
    device a launch has the cores that the process has. `filters` may be packed
    (`PackedFilters.inside`) where the call stands inside of a kernel.
    """
    norm = norm_of(
        batch_norm_mode,
        eps=batch_norm_eps,
        gamma=gamma,
        beta=beta,
        momentum=momentum,
        running_means=running_means,
        running_variances=running_variances,
        output_pre_norm=output_pre_norm,
    )
    cores = None if lnc_shard else 1
    ours: dict[str, Any] = {"cores": cores, "machine": machine, "accuracy": accuracy}
    call = call_of(stride, padding, dilation, activation_fn, residual_add_loc, **ours)
    _require_residual(call, residuals_in)
    if isinstance(filters, FiltersInKernel):
        _require_no_norm(norm)
        return filters.compute(call, x_in, bias, residuals_in)
    on = computed_on(x_in)
    require_one_type(x_in=x_in, filters=filters, bias=bias, residuals_in=residuals_in)
    if norm.mode is BatchNormMode.TRAINING:
        sums = on.convolution(_sums_only(call), x_in, filters, bias, None)
        return trained(norm, on, sums, (call.activation, call.residual), residuals_in)
    if norm.mode is BatchNormMode.EVAL:
        filters, bias = folded(norm, on, filters, bias)
    return on.convolution(call, x_in, filters, bias, residuals_in)


def conv1d(  # noqa: PLR0913 (nki-library's signature)
    x_in: Any,
    filters: Any,
    bias: Any = None,
    stride: int = 1,
    padding: tuple[int, int] = (0, 0),
    dilation: int = 1,
    activation_fn: Enum | None = None,
    lnc_shard: bool = False,  # noqa: FBT001, FBT002 (the library's)
    *,
    machine: str | None = None,
    accuracy: str = DIRECT,
) -> Any:
    """x_in [B, C_in, L], filters [K, C_in, C_out] -> y [B, C_out, L']."""
    if isinstance(filters, FiltersInKernel):
        raise UnsupportedError(
            "conv1d inside of a kernel: packed filters are of conv3d. Call conv3d with D = H = 1."
        )
    computed_on(x_in)
    if len(x_in.shape) != 3 or len(filters.shape) != 3:
        raise ShapeError(
            f"x_in {tuple(x_in.shape)} and filters {tuple(filters.shape)}: [B, C_in, L] and"
            " [K, C_in, C_out] are needed."
        )
    y = conv3d(
        x_in[:, :, None, None],
        filters[None, None],
        bias,
        (1, 1, stride),
        (0, 0, 0, 0, *padding),
        (1, 1, dilation),
        activation_fn,
        lnc_shard,
        machine=machine,
        accuracy=accuracy,
    )
    return y[:, :, 0, 0]


def computed_on(x: Any) -> ModuleType:
    """The functions for the kind of x: arrays of NumPy, or tensors of torch."""
    if isinstance(x, np.ndarray):
        return on_arrays
    if type(x).__module__.partition(".")[0] == "torch" or hasattr(x, "__torch_function__"):
        from trnconv.pytorch import nki_library_calls  # noqa: PLC0415 (torch is optional)

        return nki_library_calls
    raise refuse_kind("x_in", x)


def _sums_only(call: VendorCall) -> VendorCall:
    return replace(call, activation=IDENTITY, residual=NO_RESIDUAL)


def _require_residual(call: VendorCall, residual: Any) -> None:
    if (call.residual == NO_RESIDUAL) != (residual is None):
        raise ShapeError(
            f"residual_add_loc says {call.residual}, and residuals_in is"
            f" {'missing' if residual is None else 'given'}: give both, or neither."
        )


def _require_no_norm(norm: BatchNorm) -> None:
    if norm.mode is not BatchNormMode.NONE:
        raise UnsupportedError(
            f"batch_norm_mode {norm.mode.name} inside of a kernel: an EVAL norm goes into `pack`,"
            " TRAINING is computed from a launcher."
        )

"""Batch norms of `conv3d`: folded into the filters (EVAL), or after the convolution (TRAINING).

EVAL: gamma * (sum + bias - mean) / sqrt(variance + eps) + beta is a convolution with scaled filters
and another bias. Scaled filters are rounded to the type of the filters once, so an output differs
from the norm of an exact sum by at most u * scale * sum |w| |x|, u half a step of that type.

TRAINING: the kernel stores the sums, in the type of x as the library does. Statistics, the norm and
the activation are operators of NumPy or torch after it, no kernel of ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import Any

from trnconv.errors import ShapeError, UnsupportedError
from trnconv.nkilib.modes import BatchNormMode, member_of
from trnconv.problem.epilogue import AFTER, IDENTITY, NO_RESIDUAL


@dataclass(frozen=True)
class BatchNorm:
    """The arguments of a batch norm, in the library's order."""

    mode: BatchNormMode
    eps: float
    gamma: Any
    beta: Any
    momentum: float | None
    running_means: Any
    running_variances: Any
    output_pre_norm: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", member_of(BatchNormMode, "batch_norm_mode", self.mode))
        if self.mode is BatchNormMode.NONE:
            return
        needed = ("gamma", "beta", "momentum", "running_means", "running_variances")
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            raise ShapeError(
                f"batch_norm_mode {self.mode.name} without {', '.join(missing)}: the library takes"
                " gamma, beta, momentum and both running statistics together."
            )
        if self.output_pre_norm and self.mode is BatchNormMode.EVAL:
            raise UnsupportedError(
                "output_pre_norm=True in BatchNormMode.EVAL: the norm is inside of the filters, as"
                " in the library it is inside of the eviction; call without a norm for the sums."
            )


NO_NORM = BatchNorm(BatchNormMode.NONE, 1e-5, None, None, 0.1, None, None)


def norm_of(mode: Enum, **arguments: Any) -> BatchNorm:
    """A batch norm of the library's arguments."""
    return BatchNorm(mode, **arguments)  # type: ignore[arg-type] # a member by its name


def folded(norm: BatchNorm, on: ModuleType, filters: Any, bias: Any) -> tuple[Any, Any]:
    """Filters [..., C_out] in their own type, and a bias in float32, that contain the norm."""
    channels = filters.shape[4]
    gamma, beta, mean, variance = (
        _by_channel(on, name, getattr(norm, name), channels)
        for name in ("gamma", "beta", "running_means", "running_variances")
    )
    scale = gamma / (variance + norm.eps) ** 0.5
    shift = -mean if bias is None else on.wide(bias) - mean
    return on.like(on.wide(filters) * scale, filters), shift * scale + beta


def trained(
    norm: BatchNorm, on: ModuleType, sums: Any, end: tuple[str, str], residual: Any
) -> tuple[Any, ...]:
    """y, the sums if asked for, means, variances, and both running statistics [C_out, 1]."""
    activation, place = end
    channels = sums.shape[1]
    gamma, beta, old_mean, old_variance = (
        _by_channel(on, name, getattr(norm, name), channels)
        for name in ("gamma", "beta", "running_means", "running_variances")
    )
    mean, variance = on.statistics(sums)
    scale = gamma / (variance + norm.eps) ** 0.5
    y = on.wide(sums) * _upright(scale) + _upright(beta - mean * scale)
    added = None if place == NO_RESIDUAL else on.wide(residual)
    if added is not None and place != AFTER:
        y = y + added
    if activation != IDENTITY:
        y = on.activated(y, activation)
    if added is not None and place == AFTER:
        y = y + added
    count = sums.shape[0] * sums.shape[2] * sums.shape[3] * sums.shape[4]
    unbiased = variance * (count / max(1, count - 1))
    rate = norm.momentum
    assert rate is not None
    means = (1 - rate) * old_mean + rate * mean
    variances = (1 - rate) * old_variance + rate * unbiased
    raw = (sums,) if norm.output_pre_norm else ()
    running = (means.reshape(channels, 1), variances.reshape(channels, 1))
    return (on.like(y, sums), *raw, mean, variance, *running)


def _by_channel(on: ModuleType, name: str, values: Any, channels: int) -> Any:
    if tuple(values.shape) not in ((channels,), (channels, 1)):
        raise ShapeError(
            f"{name} {tuple(values.shape)}: [{channels}] or [{channels}, 1] is needed."
        )
    return on.wide(values).reshape(channels)


def _upright(values: Any) -> Any:
    return values.reshape(1, -1, 1, 1, 1)

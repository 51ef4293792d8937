"""Derivatives of a norm with its activation, by torch's operators in float32 or wider.

With n the normed x, u = factor * gamma * n + beta and y = act(u):

    du = dy * act'(u)       dbeta = sum of du       dgamma = factor * sum of du * n
    dn = factor * gamma * du
    LENGTH          dx = (dn - n * sum_c(dn * n)) / |x|,   or dn / eps where |x| is at most eps
    MEAN_SQUARE     dx = (dn - n * mean_c(dn * n)) / root
    of groups       dx = (dn - mean(dn) - n * mean(dn * n)) / root

Nothing but the inputs is kept: n and u are computed again. All of it are operators that have
derivatives themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from trnconv.problem.epilogue import IDENTITY
from trnconv.pytorch.operators.norm_call import (
    FRAME_GROUPS,
    GROUPS,
    LENGTH,
    NormCall,
)

Tensor = torch.Tensor
_aten = torch.ops.aten
_CHANNELS = 1
_EACH = (1, -1, 1, 1, 1)
_POSITIONS = (0, 2, 3, 4)


def _silu_slope(dy: Tensor, u: Tensor) -> Tensor:
    """torch's own function for it has no derivative."""
    s = torch.sigmoid(u)
    return dy * s * (1 + u * (1 - s))


def _mish_slope(dy: Tensor, u: Tensor) -> Tensor:
    """torch's own function for it has no derivative."""
    t = torch.tanh(torch.nn.functional.softplus(u))
    return dy * (t + u * (1 - t.square()) * torch.sigmoid(u))


_SLOPES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    IDENTITY: lambda dy, _: dy,
    "relu": lambda dy, u: _aten.threshold_backward(dy, u, 0),
    "silu": _silu_slope,
    "gelu": _aten.gelu_backward,
    "gelu_tanh": lambda dy, u: _aten.gelu_backward(dy, u, approximate="tanh"),
    "tanh": lambda dy, u: _aten.tanh_backward(dy, torch.tanh(u)),
    "sigmoid": lambda dy, u: _aten.sigmoid_backward(dy, torch.sigmoid(u)),
    "softplus": lambda dy, u: _aten.softplus_backward(dy, u, 1, 20),
    "mish": _mish_slope,
}


def norm_gradients(
    call: NormCall, x: Tensor, gamma: Tensor | None, beta: Tensor | None, dy: Tensor
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Of x [N, C, T, H, W], and of gamma and beta if there are any."""
    taken = x.narrow(2, call.first, call.frames) if call.frames else x
    normed = _normed(call, _wide(taken))
    scale = _per_channel(gamma, call.factor)
    u = normed.values * scale
    if beta is not None:
        u = u + _wide(beta).reshape(_EACH)
    du = _SLOPES[call.activation](_wide(dy), u)
    dx = in_all_frames(call, normed.input_gradient(du * scale).to(x.dtype), x)
    dgamma = None
    if gamma is not None:
        products = (du * normed.values).sum(_POSITIONS) * call.factor
        dgamma = products.reshape(gamma.shape).to(gamma.dtype)
    dbeta = None if beta is None else du.sum(_POSITIONS).reshape(beta.shape).to(beta.dtype)
    return dx, dgamma, dbeta


def in_all_frames(call: NormCall, dx: Tensor, x: Tensor) -> Tensor:
    """dx of the frames that are normed, with zeros for the others of x."""
    if not call.frames:
        return dx
    after = x.shape[2] - call.first - call.frames
    return torch.nn.functional.pad(dx, (0, 0, 0, 0, call.first, after))


def _per_channel(gamma: Tensor | None, factor: float) -> Tensor | float:
    return factor if gamma is None else _wide(gamma).reshape(_EACH) * factor


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


@dataclass(frozen=True)
class _Normed:
    """x over its length or root, and all that its derivative needs besides."""

    values: Tensor  # [N, C, T, H, W]
    inverse: Tensor  # 1 over the length or root, as wide as statistics are
    spread: Callable[[Tensor], Tensor]  # the part of a gradient that statistics pass on

    def input_gradient(self, dn: Tensor) -> Tensor:
        """dx of dn."""
        return (dn - self.spread(dn)) * self.inverse


def _normed(call: NormCall, x: Tensor) -> _Normed:
    if call.kind in (GROUPS, FRAME_GROUPS):
        return _of_groups(call, x)
    if call.kind == LENGTH:
        lengths = torch.linalg.vector_norm(x, dim=_CHANNELS, keepdim=True)
        inverse = 1 / lengths.clamp_min(call.eps)
        n, long = x * inverse, (lengths > call.eps).to(x.dtype)
        return _Normed(n, inverse, lambda dn: long * n * (dn * n).sum(_CHANNELS, keepdim=True))
    inverse = torch.rsqrt(x.square().mean(_CHANNELS, keepdim=True) + call.eps)
    n = x * inverse
    return _Normed(n, inverse, lambda dn: n * (dn * n).mean(_CHANNELS, keepdim=True))


def _of_groups(call: NormCall, x: Tensor) -> _Normed:
    """Statistics of groups of channels: of all positions of an image, or of each frame."""
    axes = (2, 4, 5) if call.kind == FRAME_GROUPS else (2, 3, 4, 5)
    images, channels, *rest = x.shape
    grouped = (images, call.groups, channels // call.groups, *rest)

    def mean(of: Tensor) -> Tensor:
        return of.reshape(grouped).mean(axes, keepdim=True).expand(grouped).flatten(1, 2)

    centred = x - mean(x)
    inverse = torch.rsqrt(mean(centred.square()) + call.eps)
    n = centred * inverse
    return _Normed(n, inverse, lambda dn: mean(dn) + n * mean(dn * n))

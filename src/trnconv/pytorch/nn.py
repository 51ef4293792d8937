"""Modules that are torch's own, but for who computes: subclasses, so all else is inherited.

`ChannelRMSNorm` is the exception: torch has no norm over channels with an activation behind it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from trnconv.errors import ShapeError, UnsupportedError
from trnconv.problem.epilogue import ACTIVATIONS, IDENTITY
from trnconv.problem.policy import BF16
from trnconv.pytorch import functional
from trnconv.pytorch.backends.aten import finished
from trnconv.pytorch.backends.choice import asked_for
from trnconv.pytorch.backends.kernel_place import runs_kernels
from trnconv.pytorch.functional.padded_input import padded_input
from trnconv.pytorch.operators.norm_call import MEAN_SQUARE, NormCall
from trnconv.pytorch.operators.norms import normed


class _ModuleOptions:
    """What may be asked of a module besides torch's own arguments."""

    backend: str | None = None  # asked for every call of this module; None: as for functions
    accuracy: str = BF16  # as functions take it
    reproducible: bool = False  # likewise
    machine: str | None = None  # the machine that nkisim simulates; None: trn2
    cores: int | None = None  # of a launch there; None: as many as the machine's has


class _ConvForward(_ModuleOptions):
    """Replaces the one method torch's convolutions compute in."""

    def _conv_forward(self: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: A002
        convolve = getattr(functional, f"conv{weight.dim() - 2}d")
        own = padded_input(self, input)
        y: Tensor = convolve(
            own.x,
            weight,
            bias,
            self.stride,
            own.padding,
            self.dilation,
            self.groups,
            padding_mode=own.mode,
            accuracy=self.accuracy,
            reproducible=self.reproducible,
            backend=self.backend,
            machine=self.machine,
            cores=self.cores,
        )
        return y


class _TransposedForward(_ModuleOptions):
    """The same for torch's transposed convolutions."""

    def forward(self: Any, input: Tensor, output_size: list[int] | None = None) -> Tensor:  # noqa: A002
        """As torch's, up to the call of its function: it reads the weight once."""
        rank = len(self.kernel_size)
        if self.padding_mode != "zeros":
            raise ValueError(f"Only `zeros` padding mode is supported for ConvTranspose{rank}d")
        output_padding = self._output_padding(
            input, output_size, self.stride, self.padding, self.kernel_size, rank, self.dilation
        )
        convolve = getattr(functional, f"conv_transpose{rank}d")
        y: Tensor = convolve(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            output_padding,
            self.groups,
            self.dilation,
            backend=self.backend,
            machine=self.machine,
            cores=self.cores,
        )
        return y


class Conv1d(_ConvForward, nn.Conv1d):
    """torch.nn.Conv1d, on the kernels of trnconv."""


class Conv2d(_ConvForward, nn.Conv2d):
    """torch.nn.Conv2d, on the kernels of trnconv."""


class Conv3d(_ConvForward, nn.Conv3d):
    """torch.nn.Conv3d, on the kernels of trnconv."""


class ConvTranspose1d(_TransposedForward, nn.ConvTranspose1d):
    """torch.nn.ConvTranspose1d, on the kernels of trnconv."""


class ConvTranspose2d(_TransposedForward, nn.ConvTranspose2d):
    """torch.nn.ConvTranspose2d, on the kernels of trnconv."""


class ConvTranspose3d(_TransposedForward, nn.ConvTranspose3d):
    """torch.nn.ConvTranspose3d, on the kernels of trnconv."""


class ChannelRMSNorm(_ModuleOptions, nn.Module):
    """act(weight_c * x / sqrt(mean over channels of x^2 + eps) + bias_c), for x [N, C, ...].

    One kernel forwards and, for SiLU, GELU or no activation, one backwards, which reads x and dy
    and keeps nothing but x. With one to three axes behind the channels.
    """

    def __init__(
        self, channels: int, *, eps: float = 1e-6, activation: str = IDENTITY, bias: bool = False
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise UnsupportedError(
                f"activation {activation!r} behind a norm: one of {', '.join(ACTIVATIONS)}. Apply"
                " it afterwards."
            )
        self.eps, self.activation = eps, activation
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """The norm of x, in its type."""
        if not 3 <= x.dim() <= 5 or x.shape[1] != len(self.weight):
            raise ShapeError(
                f"ChannelRMSNorm of {len(self.weight)} channels for x of shape {tuple(x.shape)}:"
                f" give it [N, {len(self.weight)}, ...] with one to three axes behind."
            )
        backend = asked_for(self.backend, self.machine, self.cores)
        if x.numel() == 0 or not runs_kernels(x, backend):
            return self._by_torch(x)
        video = x.reshape(*x.shape[:2], *(1,) * (5 - x.dim()), *x.shape[2:])
        call = NormCall(MEAN_SQUARE, self.eps, activation=self.activation)
        return normed(video, self.weight, self.bias, call, backend).reshape(x.shape)

    def extra_repr(self) -> str:
        """What it was made with."""
        bias = self.bias is not None
        return f"{len(self.weight)}, eps={self.eps}, activation={self.activation!r}, bias={bias}"

    def _by_torch(self, x: Tensor) -> Tensor:
        wide = x.float()
        n = wide * torch.rsqrt(wide.square().mean(1, keepdim=True) + self.eps)
        each = (-1, *(1,) * (x.dim() - 2))
        u = n * self.weight.float().reshape(each)
        if self.bias is not None:
            u = u + self.bias.float().reshape(each)
        return finished(u, self.activation, None).to(x.dtype)


__all__ = [
    "ChannelRMSNorm",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
]

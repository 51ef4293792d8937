"""Modules that are torch's own, but for who computes: subclasses, so all else is inherited."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from trnconv.ask.policy import BF16
from trnconv.pytorch import functional


class _ModuleOptions:
    """What may be asked of a module besides torch's own arguments."""

    backend: str | None = None  # asked for every call of this module; None: as for functions
    accuracy: str = BF16  # as functions take it
    reproducible: bool = False  # likewise
    target: str | None = None  # the machine that nkisim simulates; None: trn2
    cores: int | None = None  # of a launch there; None: as many as the machine's has


class _ConvForward(_ModuleOptions):
    """Replaces the one method torch's convolutions compute in."""

    def _conv_forward(self: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: A002
        convolve = getattr(functional, f"conv{weight.dim() - 2}d")
        y: Tensor = convolve(
            input,
            weight,
            bias,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            padding_mode=self.padding_mode,
            accuracy=self.accuracy,
            reproducible=self.reproducible,
            backend=self.backend,
            target=self.target,
            cores=self.cores,
        )
        return y


class _TransposedForward(_ModuleOptions):
    """The same for torch's transposed convolutions."""

    def forward(self: Any, input: Tensor, output_size: list[int] | None = None) -> Tensor:  # noqa: A002
        """As torch's, up to the call of its function."""
        rank = self.weight.dim() - 2
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
            target=self.target,
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


__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
]

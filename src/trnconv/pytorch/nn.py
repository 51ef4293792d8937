"""Modules that are torch's own, but for who computes: subclasses, so all else is inherited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from trnconv.plan.accuracy import BF16
from trnconv.pytorch import functional


class _OnKernels:
    """Replaces the one method torch's convolutions compute in."""

    backend: str | None = None  # asked for every call of this module; None: as for functions
    accuracy: str = BF16  # as functions take it


def _forward(
    convolve: Callable[..., Tensor], module: Any, operands: tuple[Tensor, Tensor, Tensor | None]
) -> Tensor:
    """The function with a module's own arguments."""
    return convolve(
        *operands,
        module.stride,
        module.padding,
        module.dilation,
        module.groups,
        padding_mode=module.padding_mode,
        accuracy=module.accuracy,
        backend=module.backend,
    )


class Conv1d(_OnKernels, nn.Conv1d):
    """torch.nn.Conv1d, on the kernels of trnconv."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: A002
        return _forward(functional.conv1d, self, (input, weight, bias))


class Conv2d(_OnKernels, nn.Conv2d):
    """torch.nn.Conv2d, on the kernels of trnconv."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: A002
        return _forward(functional.conv2d, self, (input, weight, bias))


class Conv3d(_OnKernels, nn.Conv3d):
    """torch.nn.Conv3d, on the kernels of trnconv."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: A002
        return _forward(functional.conv3d, self, (input, weight, bias))


def _transposed(rank: int, module: Any, x: Tensor, output_size: list[int] | None) -> Tensor:
    """What torch's forward does up to the call of its function."""
    if module.padding_mode != "zeros":
        raise ValueError(f"Only `zeros` padding mode is supported for ConvTranspose{rank}d")
    output_padding = module._output_padding(  # noqa: SLF001 (torch's own, inherited)
        x,
        output_size,
        module.stride,
        module.padding,
        module.kernel_size,
        rank,
        module.dilation,
    )
    convolve = getattr(functional, f"conv_transpose{rank}d")
    y: Tensor = convolve(
        x,
        module.weight,
        module.bias,
        module.stride,
        module.padding,
        output_padding,
        module.groups,
        module.dilation,
        backend=module.backend,
    )
    return y


class ConvTranspose1d(_OnKernels, nn.ConvTranspose1d):
    """torch.nn.ConvTranspose1d, on the kernels of trnconv."""

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:  # noqa: A002
        """As torch's."""
        return _transposed(1, self, input, output_size)


class ConvTranspose2d(_OnKernels, nn.ConvTranspose2d):
    """torch.nn.ConvTranspose2d, on the kernels of trnconv."""

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:  # noqa: A002
        """As torch's."""
        return _transposed(2, self, input, output_size)


class ConvTranspose3d(_OnKernels, nn.ConvTranspose3d):
    """torch.nn.ConvTranspose3d, on the kernels of trnconv."""

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:  # noqa: A002
        """As torch's."""
        return _transposed(3, self, input, output_size)


__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
]

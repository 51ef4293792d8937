"""What trnconv adds to torch's convolutions: padding modes, activation, residual, backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from trnconv.errors import UnsupportedError
from trnconv.plan.accuracy import DEFAULT_POLICY, Policy
from trnconv.plan.ends import ACTIVATIONS, BEFORE, IDENTITY, NO_RESIDUAL, End, end_of
from trnconv.pytorch.geometry import Window

Tensor = torch.Tensor
_TORCH_MODES = {"replicate": "replicate", "reflect": "reflect", "circular": "circular"}
_TORCH_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda z: torch.nn.functional.gelu(z, approximate="tanh"),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": torch.nn.functional.softplus,
    "mish": torch.nn.functional.mish,
}


@dataclass(frozen=True)
class Extras:
    """y = activation(conv(pad(x)) + bias + residual)."""

    padding_mode: str = "zeros"
    activation: str = IDENTITY
    residual: Tensor | None = None
    backend: str = "auto"  # as ops take it
    policy: Policy = DEFAULT_POLICY

    def __post_init__(self) -> None:
        if self.padding_mode not in ("zeros", *_TORCH_MODES):
            raise ValueError(
                f"padding_mode {self.padding_mode!r}: zeros, {', '.join(_TORCH_MODES)}."
            )
        if self.activation not in ACTIVATIONS:
            raise UnsupportedError(
                f"activation {self.activation!r}: one of {', '.join(ACTIVATIONS)}."
            )

    def with_batch(self) -> Extras:
        """The same for an input that was given a batch axis."""
        added = None if self.residual is None else self.residual.unsqueeze(0)
        return replace(self, residual=added)

    @property
    def end(self) -> End:
        """What a kernel fuses: the residual comes before the activation."""
        return end_of(self.activation, NO_RESIDUAL if self.residual is None else BEFORE, "")

    def finish(self, y: Tensor) -> Tensor:
        """What follows the convolution and its bias, by torch's operators."""
        if self.residual is not None:
            y = y + self.residual
        return y if self.activation == IDENTITY else _TORCH_ACTIVATIONS[self.activation](y)

    def around(
        self, convolution: Callable[[Tensor, Window], Tensor], x: Tensor, window: Window
    ) -> Tensor:
        """The same by torch's operators around a plain convolution: each has its own gradient."""
        if self.padding_mode != "zeros":
            pads = [side for pair in reversed(window.pads) for side in pair]
            x = torch.nn.functional.pad(x, pads, mode=_TORCH_MODES[self.padding_mode])
            none = (0,) * len(window.stride)
            window = Window(window.stride, none, none, window.dilation, window.groups)
        return self.finish(convolution(x, window))

"""Adapters: the documented ways to call an NKI kernel from PyTorch on a Neuron device.

With torch-xla, a kernel decorated with `nki.jit` is called on XLA tensors. With TorchNeuron, a
function that calls it is made an op by `torch_neuronx.nki_op`. Neither has been run by us: no
device was at hand. Tests drive them with doubles that hold both to what is documented.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from trnconv import _nki
from trnconv.errors import UnsupportedError

Tensor = torch.Tensor
Given = tuple[Tensor | None, ...]


class Adapter(Protocol):
    """Calls a kernel with device tensors, and a recipe last."""

    def call(self, kernel: Callable[..., Any], tensors: Given, recipe: Any) -> Any:
        """The kernel's output or outputs, on the device."""


class XlaAdapter:
    """torch-xla: a jitted kernel is called like a function."""

    def __init__(self, jit: Callable[..., Any]) -> None:
        self._jit = jit  # nki.jit

    def call(self, kernel: Callable[..., Any], tensors: Given, recipe: Any) -> Any:
        """Compile and call; the result stays lazy until torch-xla synchronises."""
        return self._jit(kernel)(*tensors, recipe)


class TorchNeuronAdapter:
    """TorchNeuron: an op for each kernel and recipe, because ops take tensors and no recipes."""

    def __init__(self, nki_op: Callable[..., Any], jit: Callable[..., Any]) -> None:
        self._nki_op = nki_op  # torch_neuronx.nki_op
        self._jit = jit
        self._ops: dict[tuple[Callable[..., Any], Any], Any] = {}

    def call(self, kernel: Callable[..., Any], tensors: Given, recipe: Any) -> Any:
        """Call the op, made the first time."""
        key = (kernel, recipe)
        if key not in self._ops:
            name = f"trnconv_neuron::{kernel.__name__}_{len(self._ops)}"
            wrapper = _WRAPPERS[kernel.__name__](self._jit(kernel), recipe)
            self._ops[key] = self._nki_op(name, mutates_args={})(wrapper)
        return self._ops[key](*tensors)


def _forward_wrapper(jitted: Callable[..., Any], recipe: Any) -> Callable[..., Any]:
    def forward(
        x: torch.Tensor,
        weights: torch.Tensor,
        bias: torch.Tensor,
        places: torch.Tensor,
        residual: torch.Tensor | None,
    ) -> torch.Tensor:
        y: torch.Tensor = jitted(x, weights, bias, places, residual, recipe)
        return y

    return forward


def _wrapper_of_two(jitted: Callable[..., Any], recipe: Any) -> Callable[..., Any]:
    def forward_of_two(
        first: torch.Tensor,
        second: torch.Tensor,
        weights: torch.Tensor,
        bias: torch.Tensor,
        places: torch.Tensor,
        residual: torch.Tensor | None,
    ) -> torch.Tensor:
        y: torch.Tensor = jitted(first, second, weights, bias, places, residual, recipe)
        return y

    return forward_of_two


def _wrapper_of_three(jitted: Callable[..., Any], recipe: Any) -> Callable[..., Any]:
    def forward_of_three(
        first: torch.Tensor,
        second: torch.Tensor,
        third: torch.Tensor,
        weights: torch.Tensor,
        bias: torch.Tensor,
        places: torch.Tensor,
        residual: torch.Tensor | None,
    ) -> torch.Tensor:
        y: torch.Tensor = jitted(first, second, third, weights, bias, places, residual, recipe)
        return y

    return forward_of_three


def _gradient_wrapper(jitted: Callable[..., Any], recipe: Any) -> Callable[..., Any]:
    def weight_gradient(
        x: torch.Tensor, dy: torch.Tensor, masks: torch.Tensor, places: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        dw, db = jitted(x, dy, masks, places, recipe)
        return dw, db

    return weight_gradient


_WRAPPERS = {
    "forward": _forward_wrapper,
    "forward_of_two": _wrapper_of_two,
    "forward_of_three": _wrapper_of_three,
    "fast_of_one": _forward_wrapper,
    "fast_of_two": _wrapper_of_two,
    "fast_of_three": _wrapper_of_three,
    "weight_gradient": _gradient_wrapper,
}
_adapter: Adapter | None = None


def use_adapter(adapter: Adapter | None) -> None:
    """The adapter for this process; None forgets it."""
    global _adapter  # noqa: PLW0603 (one device runtime a process)
    _adapter = adapter


def require_adapter() -> Adapter:
    """The one in use; without one, torch-xla's, if the vendor's nki is there."""
    if _adapter is not None:
        return _adapter
    if not _nki.SOURCE.startswith("nki "):  # "nki <version> at <path>" is the vendor's
        raise UnsupportedError(
            "a Neuron tensor, but no Neuron toolchain: `import nki` finds nkisim. Install the"
            " vendor's nki, or move the tensor to the CPU to simulate."
        )
    import nki  # noqa: PLC0415 (the vendor's, present by now)

    return XlaAdapter(nki.jit)

"""Adapters: the documented ways to call an NKI kernel from PyTorch on a Neuron device.

With torch-xla, a kernel decorated with `nki.jit` is called on XLA tensors. With TorchNeuron, a
function that calls it is made an op by `torch_neuronx.nki_op`. Neither has been run by us: no
device was at hand. Tests drive them with doubles that hold both to what is documented.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any, Protocol

import torch

from nkisim.machine import TRN2
from trnconv import _nki
from trnconv.ask.cores import cores_of
from trnconv.errors import UnsupportedError

LNC_VARIABLE = "NEURON_LOGICAL_NC_CONFIG"  # of the Neuron runtime: cores of a logical core
Tensor = torch.Tensor
Given = tuple[Tensor | None, ...]


class Adapter(Protocol):
    """Calls a kernel with device tensors, and a recipe last."""

    cores: int  # of a launch: as many as a logical core of the device has

    def call(self, kernel: Callable[..., Any], tensors: Given, recipe: Any, outputs: int) -> Any:
        """The kernel's output or outputs, on the device; there are so many."""


class XlaAdapter:
    """torch-xla: a jitted kernel is called like a function."""

    def __init__(
        self, jit: Callable[..., Any], *, legalise: bool = True, cores: int | None = None
    ) -> None:
        self.cores = launch_cores(cores)
        self._jit = _building(jit, self.cores, legalise=legalise)  # of nki.jit

    def call(self, kernel: Callable[..., Any], tensors: Given, recipe: Any, outputs: int) -> Any:
        """Compile and call; the result stays lazy until torch-xla synchronises."""
        del outputs
        return self._jit(kernel)(*tensors, recipe)


class TorchNeuronAdapter:
    """TorchNeuron: an op for each kernel and recipe, because ops take tensors and no recipes."""

    def __init__(
        self,
        nki_op: Callable[..., Any],
        jit: Callable[..., Any],
        *,
        legalise: bool = True,
        cores: int | None = None,
    ) -> None:
        self.cores = launch_cores(cores)
        self._nki_op = nki_op  # torch_neuronx.nki_op
        self._jit = _building(jit, self.cores, legalise=legalise)
        self._ops: dict[tuple[Callable[..., Any], Any], Any] = {}

    def call(self, kernel: Callable[..., Any], tensors: Given, recipe: Any, outputs: int) -> Any:
        """Call the op, made the first time."""
        key = (kernel, recipe)
        if key not in self._ops:
            name = f"trnconv_neuron::{kernel.__name__}_{len(self._ops)}"
            typed = _typed(self._jit(kernel), tensors, recipe, outputs)
            self._ops[key] = self._nki_op(name, mutates_args={})(typed)
        return self._ops[key](*tensors)


def launch_cores(asked: int | None = None) -> int:
    """Cores of a launch: as asked, else as the runtime is configured, else as trn2's default is."""
    configured = os.environ.get(LNC_VARIABLE, "")
    return cores_of(TRN2, int(configured) if asked is None and configured.isdigit() else asked)


def _building(jit: Callable[..., Any], cores: int, *, legalise: bool) -> Callable[..., Any]:
    """nki.jit on so many cores, with the pass for tensors that are written more than once.

    The pass is asked for where there is a switch for it: NKI 0.7 has one, and it is off by default.
    All kernels write tensors so (docs/guides/on-a-device.md).
    """

    def build(kernel: Callable[..., Any]) -> Any:
        made = jit(kernel)
        enable = getattr(made, "enable_non_ssa_legalization", None)
        made = enable() if legalise and enable is not None else made
        return made if cores == 1 else made[cores]

    return build


def _typed(jitted: Callable[..., Any], tensors: Given, recipe: Any, outputs: int) -> Any:
    """A function of so many tensors that `nki_op` can make an op of: it reads the annotations."""

    def call(*given: Tensor | None) -> Any:
        return jitted(*given, recipe)

    kinds = [Tensor | None if tensor is None else Tensor for tensor in tensors]
    call.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter(f"tensor_{number}", Parameter.POSITIONAL_OR_KEYWORD, annotation=kind)
            for number, kind in enumerate(kinds)
        ],
        return_annotation=Tensor if outputs == 1 else tuple.__class_getitem__((Tensor,) * outputs),
    )
    return call


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

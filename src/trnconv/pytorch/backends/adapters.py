"""Adapters: the documented ways to call an NKI kernel from PyTorch on a Neuron device.

Which one is taken follows from the type of the device and from what can be imported:

    device "neuron"   torch_neuronx.nki_op around a typed launcher (TorchNeuron)
                      wrap_nki(kernel)[lnc] where there is no nki_op (libtorch_neuronx_lite)
    device "xla"      a jitted kernel, called on XLA tensors (torch-xla, in maintenance)

None of them has been run by us: no device was at hand. Tests drive them with doubles that hold each
to what is documented. NumPy arrays need none of this: `nki.jit(kernel)(*arrays, recipe)`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any, Protocol

import torch

from nkisim.machine import TRN2, Machine, find_machine
from trnconv import _nki
from trnconv.errors import UnsupportedError
from trnconv.host.builder import built, short_key, with_recipe
from trnconv.host.detect import LNC_VARIABLE, TARGET_VARIABLE, detect
from trnconv.host.record import read_host
from trnconv.host.vendor import Vendor, find_vendor
from trnconv.host.workarounds import NO_LEGALISATION, ONE_CORE, WRAP_NKI
from trnconv.problem.cores import cores_of

Tensor = torch.Tensor
Given = tuple[Tensor | None, ...]
Present = tuple[bool, ...]  # which of a kernel's tensors there are
Workarounds = frozenset[str]
NAMESPACE = "trnconv_neuron"  # of the ops that `nki_op` makes
_NEURON = ("neuron", "privateuseone")


_ops: dict[Any, dict[str, Any]] = {}  # of each nki_op by name: a name is registered once a process


class Adapter(Protocol):
    """Calls a kernel with device tensors, and a recipe last."""

    cores: int  # of a launch: as many as a logical core of the device has
    workarounds: Workarounds  # of the host

    @property
    def machine(self) -> Machine:
        """What plans are made for."""

    def call(self, kernel: Callable[..., Any], tensors: Given, recipe: Any, outputs: int) -> Any:
        """The kernel's output or outputs, on the device; there are so many."""

    def launcher(
        self, kernel: Callable[..., Any], present: Present, recipe: Any, outputs: int
    ) -> Callable[..., Any]:
        """What is called with the tensors that are present: one node of a graph."""

    def wait(self) -> None:
        """Until everything that was called has ended: before anything is copied to the host."""


class _Built:
    """What adapters have in common: cores, workarounds, a machine, kernels that are built once."""

    def __init__(
        self,
        jit: Callable[..., Any],
        *,
        legalise: bool = True,
        cores: int | None = None,
        machine: str | Machine = "",
        workarounds: Workarounds = frozenset(),
    ) -> None:
        detected = detect(default=TRN2.name)
        chosen = find_machine(machine) if machine else detected.machine
        self.cores = detected.lnc if cores is None else cores_of(chosen, cores)
        self.workarounds = workarounds if legalise else workarounds | {NO_LEGALISATION}
        self._jit = jit  # nki.jit
        self._machine = machine
        self._known: dict[tuple[Callable[..., Any], str], Any] = {}

    @property
    def machine(self) -> Machine:
        """The machine that was given, else that of the host."""
        return find_machine(self._machine or detect().target)

    def _kernel(self, kernel: Callable[..., Any], recipe: Any) -> Callable[..., Any]:
        """A function of tensors alone, made the first time. The digest of a recipe is its key."""
        key = (kernel, repr(recipe))
        if key not in self._known:
            function, passed = with_recipe(kernel, recipe, self.workarounds)
            made = self._made(function)
            self._known[key] = lambda *tensors: made(*tensors, *passed)
        found: Callable[..., Any] = self._known[key]
        return found

    def launcher(
        self, kernel: Callable[..., Any], present: Present, recipe: Any, outputs: int
    ) -> Callable[..., Any]:
        """A function of the tensors that are present."""
        del outputs
        return of_present(self._kernel(kernel, recipe), present)

    def call(self, kernel: Callable[..., Any], tensors: Given, recipe: Any, outputs: int) -> Any:
        """By the launcher; the result stays where the runtime has it."""
        launched = self.launcher(kernel, present_in(tensors), recipe, outputs)
        return launched(*(tensor for tensor in tensors if tensor is not None))

    def wait(self) -> None:
        """As the runtime of the process does it; where it has no such call, a copy waits itself."""
        synchronize = getattr(getattr(torch, "neuron", None), "synchronize", None)
        if synchronize is not None:
            synchronize()

    def _made(self, function: Callable[..., Any]) -> Any:
        """Jitted, for the cores of a launch."""
        return built(self._jit, function, self.cores, self.workarounds)


class XlaAdapter(_Built):
    """torch-xla: a jitted kernel is called like a function; its result is lazy until it syncs."""


class WrapNkiAdapter(XlaAdapter):
    """Stacks without `nki_op`: `wrap_nki(kernel)[lnc]`, called like a function."""

    def __init__(
        self, wrap_nki: Callable[..., Any], jit: Callable[..., Any], **options: Any
    ) -> None:
        super().__init__(jit, **options)
        self._wrap_nki = wrap_nki

    def _made(self, function: Callable[..., Any]) -> Any:
        """With a grid in any case: what wrap_nki returns is not called without."""
        return self._wrap_nki(built(self._jit, function, 1, self.workarounds))[self.cores]


class TorchNeuronAdapter(_Built):
    """TorchNeuron: an op for each kernel and recipe, because ops take tensors and no recipes."""

    def __init__(self, nki_op: Callable[..., Any], jit: Callable[..., Any], **options: Any) -> None:
        super().__init__(jit, **options)
        self._nki_op = nki_op  # torch_neuronx.nki_op

    def launcher(
        self, kernel: Callable[..., Any], present: Present, recipe: Any, outputs: int
    ) -> Callable[..., Any]:
        """The op, made the first time; what is None is no argument of it."""
        given = "".join("ny"[is_present] for is_present in present)
        how = short_key((self.cores, sorted(self.workarounds)))
        name = f"{kernel.__name__}_{short_key(recipe)}_{given}_{how}"
        made = _ops.setdefault(self._nki_op, {})
        if name not in made:
            typed = typed_launcher(self._kernel(kernel, recipe), present, outputs)
            made[name] = self._nki_op(f"{NAMESPACE}::{name}", mutates_args={})(typed)
        op: Callable[..., Any] = made[name]
        return op


def present_in(tensors: Given) -> Present:
    """Which of a kernel's tensors there are."""
    return tuple(tensor is not None for tensor in tensors)


def of_present(jitted: Callable[..., Any], present: Present) -> Callable[..., Any]:
    """A function of the tensors that are present; the others are None."""

    def call(*given: Tensor) -> Any:
        left = iter(given)
        return jitted(*(next(left) if is_present else None for is_present in present))

    return call


def typed_launcher(jitted: Callable[..., Any], present: Present, outputs: int) -> Any:
    """A function of so many tensors that `nki_op` can make an op of: it reads the annotations.

    It calls the kernel and does nothing else, so that it can be traced with fake tensors.
    """
    call = of_present(jitted, present)
    call.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter(f"tensor_{number}", Parameter.POSITIONAL_OR_KEYWORD, annotation=Tensor)
            for number in range(sum(present))
        ],
        return_annotation=Tensor if outputs == 1 else tuple.__class_getitem__((Tensor,) * outputs),
    )
    return call


_adapter: Adapter | None = None


def use_adapter(adapter: Adapter | None) -> None:
    """The adapter for this process; None forgets it, and lets the device decide."""
    global _adapter  # noqa: PLW0603 (one device runtime a process)
    _adapter = adapter


def require_adapter(device_type: str = "xla") -> Adapter:
    """The one in use; without one, the one that fits the device and what can be imported."""
    if _adapter is not None:
        _require_logical_cores(_adapter)
        return _adapter
    if not _nki.SOURCE.startswith("nki "):  # "nki <version> at <path>" is the vendor's
        raise UnsupportedError(
            "a Neuron tensor, but no Neuron toolchain: `import nki` finds nkisim. Install the"
            " vendor's nki, or move the tensor to the CPU to simulate."
        )
    detected, host = detect(), read_host()
    os.environ.setdefault(
        TARGET_VARIABLE, detected.target
    )  # some versions ask neuron-ls at each call
    workarounds = frozenset(host.workarounds)
    how = {
        "cores": 1 if ONE_CORE in workarounds else detected.lnc,
        "machine": host.machine(detected.target),
        "workarounds": workarounds,
    }
    use_adapter(fitting_adapter(device_type, find_vendor(), **how))
    return require_adapter(device_type)


def fitting_adapter(device_type: str, vendor: Vendor, **how: Any) -> Adapter:
    """By the type of the device and by what there is; `how`: cores, machine, workarounds."""
    jit = vendor.nki.jit
    if device_type not in _NEURON:
        return XlaAdapter(jit, **how)
    if hasattr(vendor.torch_neuronx, "nki_op") and WRAP_NKI not in how["workarounds"]:
        return TorchNeuronAdapter(vendor.torch_neuronx.nki_op, jit, **how)
    for module in (vendor.torch_neuronx, vendor.lite):
        if hasattr(module, "wrap_nki") and WRAP_NKI in how["workarounds"]:
            return WrapNkiAdapter(module.wrap_nki, jit, **how)
    if hasattr(vendor.lite, "wrap_nki") and vendor.torch_neuronx is None:
        return WrapNkiAdapter(vendor.lite.wrap_nki, jit, **how)
    raise UnsupportedError(
        f'a tensor on device "{device_type}", and no way to call a kernel there: torch_neuronx has'
        " no nki_op. Where it has wrap_nki, run `trnconv bringup --apply wrap-nki`; else install"
        " torch-neuronx 2.13.3 or newer, or name an adapter with use_adapter."
    )


def _require_logical_cores(adapter: Adapter) -> None:
    """Refuse launches on other cores than the environment states."""
    stated = os.environ.get(LNC_VARIABLE)
    if stated is not None and stated != str(adapter.cores):
        raise UnsupportedError(
            f"launches on {adapter.cores} cores with {LNC_VARIABLE}={stated}: a grid has to be as"
            f" large as a logical core. Give the adapter cores={stated}, or run"
            f" `export {LNC_VARIABLE}={adapter.cores}`."
        )

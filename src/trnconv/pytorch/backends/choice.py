"""Which machine computes: the one asked for, or the device the tensor is on. Never guessed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import torch

from nkisim.machine import find_machine
from trnconv.errors import UnsupportedError
from trnconv.problem.cores import cores_of

ENVIRONMENT = "TRNCONV_BACKEND"
NEURON_DEVICES = ("neuron", "xla", "privateuseone")


class Backend(Enum):
    """Who runs a convolution."""

    auto = "auto"
    neuron = "neuron"  # a Neuron device, with the vendor's toolchain
    nkisim = "nkisim"  # the NKI kernels, in NumPy
    torch = "torch"  # torch's own operators


@dataclass(frozen=True)
class BackendChoice:
    """A backend, and why it was taken."""

    backend: Backend
    reason: str


class _BackendAsked(threading.local):
    """What the innermost `with backend(...)` of this thread asks for.

    Not a ContextVar: torch.compile watches this one, and compiles again when it changes.
    """

    name: str = Backend.auto.value


_surroundings = _BackendAsked()


@contextmanager
def backend(name: str | Backend) -> Iterator[None]:
    """Everything this thread calls inside the `with` runs here, unless a call says otherwise."""
    before, _surroundings.name = _surroundings.name, _named(name).value
    try:
        yield
    finally:
        _surroundings.name = before


@dataclass(frozen=True)
class Simulated:
    """The machine that nkisim is, and how many of its cores a launch has."""

    machine: str = "trn2"
    cores: int | None = None  # None: as many as a launch of it has


DEFAULT_SIMULATED = Simulated()


def asked_for(
    call: str | Backend | None, machine: str | None = None, cores: int | None = None
) -> str:
    """What the call, else its surroundings, ask for; as ops take it, so gradients ask the same.

    A machine that was asked for is part of it: `nkisim@trn3*2`.
    """
    asked = Backend.auto.value if call is None else _named(call).value
    name = _surroundings.name if asked == Backend.auto.value else asked
    if machine is None and cores is None:
        return name
    simulated = find_machine(machine or DEFAULT_SIMULATED.machine)
    return _on_machine(name, Simulated(simulated.name, cores_of(simulated, cores)))


def _on_machine(name: str, simulated: Simulated) -> str:
    if name in (Backend.torch.value, Backend.neuron.value):
        raise UnsupportedError(
            f'machine="{simulated.machine}", cores={simulated.cores} on backend "{name}": they are'
            " the machine that nkisim simulates. torch has none, and a Neuron device is what it is."
            " Leave them out."
        )
    return f"{name}@{simulated.machine}*{simulated.cores}"


def machine_of(asked: str) -> tuple[str, Simulated | None]:
    """The backend's name of what was asked for, and the machine, if one was."""
    name, _, simulated = asked.partition("@")
    if not simulated:
        return name, None
    machine, _, cores = simulated.rpartition("*")
    return name, Simulated(machine, int(cores))


class HasDevice(Protocol):
    """A tensor, or what knows where one is."""

    @property
    def device(self) -> torch.device:
        """Where it is."""


def on_neuron(tensor: HasDevice) -> bool:
    """Whether it is on a Neuron device."""
    return tensor.device.type in NEURON_DEVICES


def choose_backend(tensor: HasDevice, asked: str | Backend | None = None) -> BackendChoice:
    """Asked for by the call, else by the context, else by the environment, else the device's."""
    for given, source in (
        (asked, "the call asked for it"),
        (_surroundings.name, "the surrounding trnconv.pytorch.backend(...) asked for it"),
        (os.environ.get(ENVIRONMENT), f"{ENVIRONMENT} asks for it"),
    ):
        named = Backend.auto if given is None else _named(given)
        if named is not Backend.auto:
            return BackendChoice(_possible(named, tensor), source)
    if on_neuron(tensor):
        return BackendChoice(Backend.neuron, f"the tensor is on {tensor.device}")
    if tensor.device.type in ("cpu", "meta"):
        return BackendChoice(Backend.nkisim, f"the tensor is on {tensor.device.type}: simulated")
    raise UnsupportedError(
        f"a tensor on {tensor.device}: trnconv runs on Neuron devices, and on a CPU in nkisim."
        ' Move it, or ask for backend="torch".'
    )


def _possible(named: Backend, tensor: HasDevice) -> Backend:
    on_device = on_neuron(tensor)
    if named is Backend.neuron and not on_device:
        raise UnsupportedError(
            f'backend="neuron" for a tensor on {tensor.device}: move it to a Neuron device first.'
        )
    if named is Backend.nkisim and on_device:
        raise UnsupportedError(
            f'backend="nkisim" for a tensor on {tensor.device}: it simulates CPU tensors. Call'
            " .cpu() first."
        )
    return named


def _named(name: str | Backend) -> Backend:
    for member in Backend:
        if name in (member, member.value):
            return member
    known = ", ".join(member.value for member in Backend)
    raise UnsupportedError(f"backend {name!r}: one of {known}.")

"""Which machine computes: the one asked for, or the device the tensor is on. Never guessed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum

import torch

from trnconv.errors import UnsupportedError

ENVIRONMENT = "TRNCONV_BACKEND"
NEURON_DEVICES = ("neuron", "xla", "privateuseone")


class Backend(Enum):
    """Who runs a convolution."""

    auto = "auto"
    neuron = "neuron"  # a Neuron device, with the vendor's toolchain
    nkisim = "nkisim"  # the NKI kernels, in NumPy
    torch = "torch"  # torch's own operators


@dataclass(frozen=True)
class Choice:
    """A backend, and why it was taken."""

    backend: Backend
    reason: str


_asked: ContextVar[Backend | None] = ContextVar("trnconv_backend", default=None)


@contextmanager
def backend(name: str | Backend) -> Iterator[None]:
    """Everything inside the `with` runs on this backend, unless a call says otherwise."""
    token = _asked.set(_named(name))
    try:
        yield
    finally:
        _asked.reset(token)


def choose_backend(tensor: torch.Tensor, asked: str | Backend | None = None) -> Choice:
    """Asked for by the call, else by the context, else by the environment, else the device's."""
    for given, source in (
        (asked, "the call asked for it"),
        (_asked.get(), "the surrounding trnconv.pytorch.backend(...) asked for it"),
        (os.environ.get(ENVIRONMENT), f"{ENVIRONMENT} asks for it"),
    ):
        named = None if given is None else _named(given)
        if named not in (None, Backend.auto):
            return Choice(_possible(named, tensor), source)
    if tensor.device.type in NEURON_DEVICES:
        return Choice(Backend.neuron, f"the tensor is on {tensor.device}")
    if tensor.device.type in ("cpu", "meta"):
        return Choice(Backend.nkisim, f"the tensor is on {tensor.device.type}: simulated")
    raise UnsupportedError(
        f"a tensor on {tensor.device}: trnconv runs on Neuron devices, and on a CPU in nkisim."
        ' Move it, or ask for backend="torch".'
    )


def _possible(named: Backend, tensor: torch.Tensor) -> Backend:
    on_device = tensor.device.type in NEURON_DEVICES
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
    try:
        return Backend(name)
    except ValueError:
        known = ", ".join(one.value for one in Backend)
        raise UnsupportedError(f"backend {name!r}: one of {known}.") from None

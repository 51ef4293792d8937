"""Where kernels between convolutions are launched for torch tensors: in nkisim, or on a device."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from nkisim.machine import Machine, find_machine
from trnconv.errors import UnsupportedError
from trnconv.fused_ops.launch import FusedOpLaunch
from trnconv.problem.cores import cores_of
from trnconv.pytorch.backends.adapters import Adapter, require_adapter
from trnconv.pytorch.backends.arrays import Array, to_array, to_tensor
from trnconv.pytorch.backends.choice import (
    DEFAULT_SIMULATED,
    Backend,
    HasDevice,
    choose_backend,
    machine_of,
)
from trnconv.pytorch.backends.packed_weights import kept_tables

Tensor = torch.Tensor


@dataclass(frozen=True)
class SimulatedPlace:
    """Launches in nkisim."""

    machine: Machine
    cores: int  # of a launch

    def launch(self, launch: FusedOpLaunch, tensors: tuple[Tensor, ...]) -> Tensor:
        """One kernel, with the constants that its launch has."""
        return to_tensor(launch.run(*map(to_array, tensors)).outputs)

    def call_all(
        self, launch: FusedOpLaunch, tensors: tuple[Tensor, ...], outputs: int
    ) -> tuple[Tensor, ...]:
        """The kernel with all its tensors, constants included; there are so many outputs."""
        bare = replace(launch, arguments=launch.arguments[-1:])
        done = bare.run(*map(to_array, tensors)).outputs
        return (to_tensor(done),) if outputs == 1 else tuple(map(to_tensor, done))


@dataclass(frozen=True)
class DevicePlace:
    """Launches on a Neuron device."""

    adapter: Adapter

    @property
    def machine(self) -> Machine:
        """What plans are made for."""
        return self.adapter.machine

    @property
    def cores(self) -> int:
        """Of a launch."""
        return self.adapter.cores

    def launch(self, launch: FusedOpLaunch, tensors: tuple[Tensor, ...]) -> Tensor:
        """One kernel; its constants are the same for every call, and stay on the device."""
        device = tensors[0].device
        packed = launch.arguments[:-1]
        use = (launch.kernel, tuple(map(_array_key, packed)), device)
        constants = kept_tables(use, lambda: tuple(to_tensor(array).to(device) for array in packed))
        return self.call(launch, (*tensors, *constants))

    def call(self, launch: FusedOpLaunch, tensors: tuple[Tensor, ...]) -> Tensor:
        """The kernel with all its tensors, constants included."""
        done = self.adapter.call(launch.kernel, tensors, launch.arguments[-1], 1)
        result: Tensor = done[0] if isinstance(done, tuple) else done
        return result

    def call_all(
        self, launch: FusedOpLaunch, tensors: tuple[Tensor, ...], outputs: int
    ) -> tuple[Tensor, ...]:
        """The same of a kernel that has so many outputs."""
        if outputs == 1:
            return (self.call(launch, tensors),)
        return tuple(self.adapter.call(launch.kernel, tensors, launch.arguments[-1], outputs))


def runs_kernels(x: HasDevice, backend: str) -> bool:
    """Whether the backend is one of ours."""
    return choose_backend(x, machine_of(backend)[0]).backend is not Backend.torch


def kernel_place(x: HasDevice, backend: str, what: str) -> SimulatedPlace | DevicePlace:
    """Where x is worked on; `what` is for the words that refuse the torch backend."""
    name, machine = machine_of(backend)
    chosen = choose_backend(x, name).backend
    if chosen is Backend.neuron:
        return DevicePlace(require_adapter(x.device.type))
    if chosen is Backend.torch:
        raise UnsupportedError(
            f'{what} on backend "torch": it has torch\'s own operators, call those.'
        )
    simulated = machine or DEFAULT_SIMULATED
    found = find_machine(simulated.machine)
    return SimulatedPlace(found, cores_of(found, simulated.cores))


def _array_key(array: Array) -> tuple[object, ...]:
    """Equal for equal constants."""
    return (array.shape, str(array.dtype), array.tobytes())

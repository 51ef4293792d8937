"""Instances with Neuron devices, as AWS documents them, read from `data/instances.json`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from trnconv.errors import UnsupportedError


@dataclass(frozen=True)
class Instance:
    """What one instance has."""

    name: str
    machine: str  # of nkisim
    chips: int
    cores_per_chip: int  # physical NeuronCores
    vcpus: int
    host_gib: int
    device_gib: int
    source: str

    @property
    def cores(self) -> int:
        """Physical NeuronCores."""
        return self.chips * self.cores_per_chip


@lru_cache(maxsize=1)
def instances() -> tuple[Instance, ...]:
    """Every instance of the file."""
    source = resources.files("trnconv.corpus") / "data" / "instances.json"
    return tuple(Instance(**record) for record in json.loads(source.read_text(encoding="utf-8")))


def find_instance(name: str) -> Instance:
    """The instance of this name; an UnsupportedError lists those there are."""
    for instance in instances():
        if instance.name == name:
            return instance
    known = ", ".join(instance.name for instance in instances())
    raise UnsupportedError(f"instance {name!r} is not listed. There are {known}.")

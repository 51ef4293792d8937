"""Which machine this host is: found in its firmware and environment, never assumed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nkisim.machine import Machine, find_machine
from trnconv.errors import UnsupportedError

TARGET_VARIABLE = "NEURON_PLATFORM_TARGET_OVERRIDE"
LNC_VARIABLE = "NEURON_LOGICAL_NC_CONFIG"
PRODUCT = Path("/sys/devices/virtual/dmi/id/product_name")  # an EC2 instance's type
_FAMILIES = {"trn1": "trn1", "trn1n": "trn1", "inf2": "trn1", "trn2": "trn2", "trn3": "trn3"}


@dataclass(frozen=True)
class DetectedHost:
    """A target and the cores of a logical NeuronCore, each with where it was found."""

    target: str
    target_source: str
    lnc: int
    lnc_source: str

    @property
    def machine(self) -> Machine:
        """The machine of the target."""
        return find_machine(self.target)

    def exports(self, environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """The lines for a shell that say what was found, without those that are there already."""
        variables = os.environ if environment is None else environment
        wanted = {TARGET_VARIABLE: self.target, LNC_VARIABLE: str(self.lnc)}
        return tuple(
            f"export {name}={value}" for name, value in wanted.items() if name not in variables
        )


def detect(
    environment: Mapping[str, str] | None = None,
    product: str | None = None,
    default: str | None = None,
) -> DetectedHost:
    """The machine: what firmware says, which the environment may state but not contradict.

    `product` stands for the firmware's name of the instance. Where nothing says what this is,
    `default` is taken, and without one it is refused.
    """
    variables = os.environ if environment is None else environment
    instance = _product() if product is None else product
    family = _FAMILIES.get(instance.partition(".")[0].partition("u-")[0])
    stated = variables.get(TARGET_VARIABLE, "")
    target, source = _target(stated, family, instance, default)
    machine = find_machine(target)
    lnc, lnc_source = _logical_cores(variables.get(LNC_VARIABLE), machine)
    return DetectedHost(target, source, lnc, lnc_source)


def _product() -> str:
    try:
        return PRODUCT.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _target(stated: str, family: str | None, instance: str, default: str | None) -> tuple[str, str]:
    if stated and family and find_machine(stated) is not find_machine(family):
        raise UnsupportedError(
            f"{TARGET_VARIABLE}={stated} on an instance {instance}, which is a {family}: kernels"
            f" would be compiled for another machine. Run `export {TARGET_VARIABLE}={family}`."
        )
    if stated:
        return find_machine(stated).name, f"{TARGET_VARIABLE} says so"
    if family:
        return family, f"the instance is a {instance}"
    if default is not None:
        return default, "nothing says which machine this is"
    raise UnsupportedError(
        f"a Neuron device of an unknown kind: the firmware calls this host {instance!r}, which is"
        f" none of {', '.join(_FAMILIES)}. Run `export {TARGET_VARIABLE}=trn2` (or trn1, trn3)."
    )


def _logical_cores(stated: str | None, machine: Machine) -> tuple[int, str]:
    if stated is None:
        return machine.lnc_max, f"the default of {machine.name}"
    if not stated.isdigit() or not 1 <= int(stated) <= machine.lnc_max:
        raise UnsupportedError(
            f"{LNC_VARIABLE}={stated} on {machine.name}: a logical core has 1 to {machine.lnc_max}"
            f" cores. Run `export {LNC_VARIABLE}={machine.lnc_max}`."
        )
    return int(stated), f"{LNC_VARIABLE} says so"

"""Cores of a launch: as many as were asked for, else as a launch of the machine has."""

from __future__ import annotations

from nkisim.machine import Machine
from trnconv.errors import UnsupportedError

_IN_WORDS = {1: "one core", 2: "two cores (LNC2)"}


def cores_of(machine: Machine, asked: int | None = None) -> int:
    """Refuse more than a launch has; None asks for the machine's default."""
    if asked is None:
        return machine.launch_cores
    if asked not in range(1, machine.lnc_max + 1):
        raise UnsupportedError(
            f"{asked} cores on {machine.name}: a launch has 1 to {machine.lnc_max}. Ask for fewer."
        )
    return asked


def describe_cores(cores: int) -> str:
    """How a launch is named where times are shown."""
    return _IN_WORDS[cores]

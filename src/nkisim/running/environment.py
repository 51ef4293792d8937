"""Which machine is meant when nobody says: the environment's choice, else the vendor's default."""

from __future__ import annotations

import os

from nkisim.errors import refuse
from nkisim.machine import TRN3, Machine, find_machine
from nkisim.running.session import current_or_none

TARGET_VARIABLE = "NEURON_PLATFORM_TARGET_OVERRIDE"
PRECISION_VARIABLE = "NKI_PRECISE_FP"
LNC_VARIABLE = "NEURON_LOGICAL_NC_CONFIG"
TRANSPOSE_VARIABLE = "NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE"


def default_machine() -> Machine:
    """The machine of NEURON_PLATFORM_TARGET_OVERRIDE, else trn3 as in the vendor's simulator."""
    name = os.environ.get(TARGET_VARIABLE)
    return find_machine(name) if name else TRN3


def logical_cores(machine: Machine, lnc: int | None) -> int:
    """Cores of the logical NeuronCore that kernels are compiled for.

    As asked, else as NEURON_LOGICAL_NC_CONFIG says, else the machine's default: 2 from trn2 on.
    """
    cores: object = lnc
    name = f"lnc={lnc!r}"
    if lnc is None:
        text = os.environ.get(LNC_VARIABLE)
        if text is None:
            return machine.lnc_max
        cores = int(text) if text.isdigit() else text
        name = f"{LNC_VARIABLE}={text}"
    if not isinstance(cores, int) or isinstance(cores, bool) or not 1 <= cores <= machine.lnc_max:
        refuse(
            "nkisim.run",
            f"{name} on {machine.name}",
            f"1..{machine.lnc_max} cores of a logical NeuronCore",
            "pass one of them, or leave it out",
        )
    return cores


def machine_in_use() -> Machine:
    """The running kernel's machine, else the default one."""
    session = current_or_none()
    return session.machine if session is not None else default_machine()


def default_precise() -> bool:
    """Whether low-precision tensors are stored rounded (NKI_PRECISE_FP, on unless 0)."""
    return os.environ.get(PRECISION_VARIABLE, "1") != "0"

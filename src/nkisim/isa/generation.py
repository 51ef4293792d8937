"""Which NeuronCore a kernel runs on: get_nc_version and get_nc_sub_version."""

from __future__ import annotations

from nkisim.enums import nc_version
from nkisim.running.environment import machine_in_use


def get_nc_version() -> nc_version:
    """The generation of the machine in use; outside of kernels, of the default machine."""
    return nc_version(machine_in_use().generation)


def get_nc_sub_version() -> int:
    """The silicon revision: the first one, 0. The documents give no limit that differs by it."""
    return 0

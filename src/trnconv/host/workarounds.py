"""Workarounds of a host: those of its machine, and those of the way from a call to a kernel.

Machine workarounds (`nkisim.machine_workarounds`) change plans and kernels. Launch workarounds
change how a kernel is built and called. `trnconv bringup` names the one that a failed probe asks
for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from nkisim.machine_workarounds import SEPARATOR
from nkisim.machine_workarounds import WORKAROUNDS as MACHINE_WORKAROUNDS
from trnconv.errors import UnsupportedError


@dataclass(frozen=True)
class LaunchWorkaround:
    """Another way to build or call a kernel: what it does, and why it may be needed."""

    name: str
    effect: str
    evidence: str


RECIPE_IN_CLOSURE: Final = "recipe-in-closure"
NO_LEGALISATION: Final = "no-legalisation"
NO_ROTATION: Final = "no-address-rotation"
NO_COMPILE_CACHE: Final = "no-compile-cache"
ONE_CORE: Final = "one-core"
WRAP_NKI: Final = "wrap-nki"
NO_COMPILE: Final = "no-compile"
HOST_COPIES: Final = "host-copies"
PLAIN_TENSORS: Final = "plain-tensors"
POINT_TO_POINT: Final = "point-to-point"

LAUNCH_WORKAROUNDS: Final = {
    workaround.name: workaround
    for workaround in (
        LaunchWorkaround(
            RECIPE_IN_CLOSURE,
            "a kernel is specialised to its recipe by a closure; only tensors are arguments",
            "objects are legal arguments of NKI 0.6 and 0.7; a 0.7 beta lost closures (3P)",
        ),
        LaunchWorkaround(
            NO_LEGALISATION,
            "enable_non_ssa_legalization() is not called",
            "off by default since 0.7; nki-library's conv3d_bwd asks for it",
        ),
        LaunchWorkaround(
            NO_ROTATION,
            "disable_address_rotation() is called",
            "on by default; what it does to tensors with addresses is not documented",
        ),
        LaunchWorkaround(
            NO_COMPILE_CACHE,
            "NKI_DISABLE_COMPILE_CACHE=1 is set before kernels are built",
            "caches miss edits of what a kernel calls (KILN, JIN)",
        ),
        LaunchWorkaround(
            ONE_CORE,
            "launches on one core; export NEURON_LOGICAL_NC_CONFIG=1 beside it",
            "programs of two cores have to be alike block by block (KILN, LDC)",
        ),
        LaunchWorkaround(
            WRAP_NKI,
            "kernels are called by wrap_nki(kernel)[lnc], no op is made of them",
            "nki_op is missing before TorchNeuron 2.33, and in libtorch_neuronx_lite",
        ),
        LaunchWorkaround(
            NO_COMPILE,
            "models run eagerly: torch.compile is not used",
            "kernels inside of a compiled graph are traced with fake tensors",
        ),
        LaunchWorkaround(
            HOST_COPIES,
            "views are made contiguous on the host, not on the device",
            ".contiguous() of a permuted device tensor raises on the Lite runtime",
        ),
        LaunchWorkaround(
            PLAIN_TENSORS,
            "patch_ leaves caches, padding and upsampling to torch: no tensors of ours are there",
            "nobody was seen to use a dispatch mode of torch above device neuron, as patch_ does",
        ),
        LaunchWorkaround(
            POINT_TO_POINT,
            "neighbours exchange rows by send and receive on backend neuron, not by all_gather",
            "pages of 2.33 list send and receive; an older beta had none",
        ),
    )
}
# These change how a kernel is called and not what it does: what they are for is asked again.
ASKED_AGAIN: Final = frozenset(
    (
        RECIPE_IN_CLOSURE,
        NO_LEGALISATION,
        NO_ROTATION,
        NO_COMPILE_CACHE,
        WRAP_NKI,
        HOST_COPIES,
        PLAIN_TENSORS,
    )
)
KNOWN: Final = (*MACHINE_WORKAROUNDS, *LAUNCH_WORKAROUNDS)


def require_known(names: Iterable[str]) -> frozenset[str]:
    """The workarounds of these names; unknown ones are refused."""
    required = frozenset(names)
    unknown = sorted(required - set(KNOWN))
    if unknown:
        raise UnsupportedError(f"a workaround {unknown[0]!r}: one of {', '.join(KNOWN)}.")
    return required


def of_machine(names: Iterable[str]) -> tuple[str, ...]:
    """Those that change the machine that is planned for."""
    return tuple(sorted(name for name in names if name in MACHINE_WORKAROUNDS))


def workarounds_of(machine: str) -> tuple[str, ...]:
    """The workarounds in the name of a machine."""
    return tuple(machine.split(SEPARATOR)[1:])


def describe(name: str) -> str:
    """What a workaround does, and why it is there."""
    workaround = LAUNCH_WORKAROUNDS.get(name) or MACHINE_WORKAROUNDS[name]
    return f"{workaround.name}: {workaround.effect} (open because: {workaround.evidence})"

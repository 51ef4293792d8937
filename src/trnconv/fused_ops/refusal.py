"""Why a problem has no plan, in words: what all problems have in common."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from nkisim.machine import V3, Machine
from trnconv.algorithms.kernel_parts import SLOPES
from trnconv.problem.epilogue import IDENTITY, ITEM_BYTES
from trnconv.problem.limits import MAX_OFFSET


def shape_reasons(sizes: tuple[int, ...], dtype: str) -> Iterator[str]:
    """A tensor of these sizes."""
    if min(sizes) < 1:
        yield f"sizes {sizes}: each is at least 1"
    if prod(sizes) > MAX_OFFSET:
        yield f"a tensor of {prod(sizes)} elements: offsets have 32 bits; split it"
    yield from choice_reasons("dtype", dtype, tuple(ITEM_BYTES))


def choice_reasons(name: str, value: str, known: tuple[str, ...]) -> Iterator[str]:
    """One of several words."""
    if value not in known:
        yield f"{name} {value}: one of {', '.join(known)}"


def sbuf_reason(what: str, position_bytes: int, remedy: str, machine: Machine) -> str:
    """A step of one position, or of the fewest that are worth it, does not fit."""
    return (
        f"{what}: {position_bytes} bytes a position in SBUF, which has"
        f" {machine.sbuf_usable_bytes_per_partition} a partition; {remedy}"
    )


def slope_reasons(activation: str) -> Iterator[str]:
    """An activation whose gradient is asked for."""
    known = (IDENTITY, *SLOPES)
    if activation not in known:
        yield (
            f"the gradient of activation {activation}: the Scalar engine has those of"
            f" {', '.join(known)}"
        )


def has_kernels(machine: Machine) -> bool:
    """Whether the kernels of this package are for such a machine at all."""
    return machine.generation >= V3


def machine_reasons(machine: Machine, cores: int) -> Iterator[str]:
    """A machine, and cores of a launch."""
    if not has_kernels(machine):
        yield f"{machine.name}: planned for trn2 and trn3; its engines share one port to PSUM"
    if not 1 <= cores <= machine.lnc_max:
        yield f"{cores} cores: a launch on {machine.name} has 1 to {machine.lnc_max}"
    if not machine.accepts.loads_ahead:
        yield f"loads ahead of stores: {machine.name} has them switched off"


def bias_reasons(machine: Machine, activation: str) -> Iterator[str]:
    """A bias that the Scalar engine adds."""
    if activation == IDENTITY and not machine.accepts.scalar_bias:
        yield f"a bias without an activation: {machine.name} has that switched off"


def takes_loops(machine: Machine) -> bool:
    """Whether there are hardware loops; kernels here have no fence behind them."""
    return machine.accepts.loops and machine.accepts.unfenced_loops

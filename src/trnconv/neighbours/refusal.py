"""Why a problem has no plan, in words: what all problems have in common."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Protocol

from nkisim.machine import V3, Machine
from trnconv.ask.ends import ITEM_BYTES
from trnconv.ask.limits import MAX_OFFSET
from trnconv.errors import PlanError


class Refusing(Protocol):
    """A problem that says what it refuses."""

    def refuses(self, machine: Machine, cores: int = 1) -> str:
        """Why there is no plan; empty if there is one."""


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


def machine_reasons(machine: Machine, cores: int) -> Iterator[str]:
    """A machine, and cores of a launch."""
    if machine.generation < V3:
        yield f"{machine.name}: planned for trn2 and trn3; its engines share one port to PSUM"
    if not 1 <= cores <= machine.lnc_max:
        yield f"{cores} cores: a launch on {machine.name} has 1 to {machine.lnc_max}"


def require(problem: Refusing, machine: Machine, cores: int) -> None:
    """PlanError with what a problem refuses, if it does."""
    why = problem.refuses(machine, cores)
    if why:
        raise PlanError(f"{problem} on {cores} cores of {machine.name}: {why}.")

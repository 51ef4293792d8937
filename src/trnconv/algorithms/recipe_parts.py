"""Parts that recipes of several algorithms have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trnconv._nki import NKIObject

if TYPE_CHECKING:  # kernels are frozen with this file, for places without nkisim
    from nkisim.machine import Machine

_UNPLACED = -(2**30)  # bytes: whatever is added to it stays negative


def loop_spans(iterations: int, machine: Machine) -> list[tuple[int, int]]:
    """Iterations in loops that a machine goes through to the end, about equal: first and end."""
    most = machine.loop_trips_max or iterations
    loops = max(1, -(-iterations // max(1, most)))
    return [(iterations * n // loops, iterations * (n + 1) // loops) for n in range(loops)]


def first_address(machine: Machine) -> int:
    """Where tiles begin in SBUF; far below 0 if the compiler is to place each of them."""
    return 0 if machine.accepts.fixed_addresses else _UNPLACED


@dataclass(frozen=True)
class Place(NKIObject):
    """Where a block is: what to add to the offsets of its loads and stores."""

    x: tuple[int, ...]  # for each tensor the input lies in
    y: int


@dataclass(frozen=True)
class Ring(NKIObject):
    """SBUF for windows of one level: `slots` of `elems` elements a partition, from `address` on."""

    slots: int
    elems: int
    address: int
    pitch: int  # bytes from slot to slot


@dataclass(frozen=True)
class Rectangle(NKIObject):
    """Rows and columns, first and end."""

    row: int
    row_end: int
    column: int
    column_end: int


@dataclass(frozen=True)
class RecipePair(NKIObject):
    """What each of two cores does, by its number; the last argument of a kernel on both."""

    cores: tuple[Any, Any]  # recipes of one algorithm

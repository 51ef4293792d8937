"""SBUF that is handed out, one ring after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnconv.algorithms.recipe_parts import Ring, first_address

if TYPE_CHECKING:
    from nkisim.machine import Machine


def aligned(size: int, align: int) -> int:
    """The next multiple."""
    return -(-size // align) * align


class SbufSpace:
    """Bytes of every partition, from where a machine's tiles begin; `at` is the next one."""

    def __init__(self, machine: Machine, align: int) -> None:
        self._align = align
        self._first = self.at = first_address(machine)

    @property
    def taken(self) -> int:
        """Bytes that were handed out."""
        return self.at - self._first

    def ring(self, slots: int, elems: int, item_bytes: int) -> Ring:
        """Slots of so many elements, each of them aligned."""
        pitch, address = aligned(elems * item_bytes, self._align), self.at
        self.at += slots * pitch
        return Ring(slots, elems, address, pitch)

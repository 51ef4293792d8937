"""HBM of one launch: arguments, results and scratch tensors of both cores lie in one stack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nkisim.errors import MemoryLimitError

if TYPE_CHECKING:
    from nkisim.machine import Machine


class HbmRoom:
    """How much of the stack is taken. Tensors keep their bytes to the end of the launch."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._taken_bytes = 0

    def take(self, name: str, size_bytes: int) -> None:
        """Place a tensor, or refuse it."""
        self._taken_bytes += size_bytes
        capacity = self._machine.hbm_bytes
        if self._taken_bytes > capacity:
            before = self._taken_bytes - size_bytes
            raise MemoryLimitError(
                f"tensor {name!r} of {size_bytes} bytes, beside {before} bytes of other tensors",
                instruction="nl.ndarray",
                limit=f"the HBM of one launch on {self._machine.name} holds {capacity} bytes",
                remedy="launch on parts of the data, or use narrower types",
            )

"""Who has to wait for whom: RAW, WAR and WAW by partition range and byte interval.

Automatic tensors have memory of their own; manually placed ones share theirs by address. HBM
tensors that a kernel only reads take no part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nkisim.memory.layout import ON_CHIP
from nkisim.timing.boxes import Box, hbm_box, on_chip_box, outer_pitch_bytes, whole_box
from nkisim.timing.ledger import Ledger, Settled, Who
from nkisim.trace import Access, Instruction


class Waits(NamedTuple):
    """What an instruction waits for. The same instruction may be listed more than once."""

    results: list[Who]  # it reads what they wrote
    writers: list[Who]  # it overwrites what they wrote, or was told to come after them
    readers: list[Who]  # it overwrites what they read


class _TensorLedger(NamedTuple):
    """Where the accesses to one tensor are kept; no ledger for a tensor that is only read."""

    ledger: Ledger | None
    pitch_bytes: int  # of a row in HBM; 0 on chip


class Hazards:
    """All memories of one core; told each instruction in program order.

    `iterations` holds, by loop number, the iteration that is now running. `per_tensor`: whoever
    touches any part of an on-chip tensor touches all of it, as the compiler is said to see it.
    """

    def __init__(self, read_only: set[int], settled: Settled, *, per_tensor: bool) -> None:
        self.iterations: dict[int, int] = {}
        self._per_tensor = per_tensor
        self._settled = settled
        self._read_only = read_only
        self._places: dict[int, _TensorLedger] = {}
        self._placed_by_hand: dict[object, Ledger] = {}

    def waits(self, instruction: Instruction, row: int) -> Waits:
        """The rows that `instruction`, which runs as `row`, has to wait for."""
        waits = Waits([], [], [])
        who = (row, instruction.engine)
        index, some_dead = instruction.index, False
        for access in instruction.reads:
            allocation = access.allocation
            ledger, pitch = self._places.get(id(allocation)) or self._new_place(access)
            if ledger is not None:
                ledger.read(self._box(access, pitch), who, waits.results)
                some_dead = some_dead or allocation.last_use == index
        for access in instruction.writes:
            allocation = access.allocation
            ledger, pitch = self._places.get(id(allocation)) or self._new_place(access)
            assert ledger is not None, "it is written, so it is not only read"
            ledger.write(self._box(access, pitch), who, waits.writers, waits.readers)
            some_dead = some_dead or allocation.last_use == index
        if some_dead and instruction.loop < 0:
            self._drop_dead(instruction)
        return waits

    def drain(self) -> None:
        """Everything so far has ended: nobody has to wait for it."""
        self._places.clear()
        self._placed_by_hand.clear()

    def _new_place(self, access: Access) -> _TensorLedger:
        allocation = access.allocation
        ledger: Ledger | None
        pitch = 0
        if id(allocation) in self._read_only:
            ledger = None
        elif allocation.region not in ON_CHIP:
            ledger, pitch = Ledger(self._settled), outer_pitch_bytes(access)
        elif allocation.address_bytes is None:
            ledger = Ledger(self._settled)
        else:
            ledger = self._placed_by_hand.setdefault(allocation.region, Ledger(self._settled))
        place = self._places[id(allocation)] = _TensorLedger(ledger, pitch)
        return place

    def _box(self, access: Access, pitch: int) -> Box:
        if self._per_tensor and not pitch:
            return whole_box(access, pitch)
        if access.step:
            return _box_at(access, access.step * self.iterations.get(access.loop, 0), pitch)
        return _box_at(access, 0, pitch)

    def _drop_dead(self, instruction: Instruction) -> None:
        """Forget automatic tensors that no later instruction uses."""
        for access, _ in _accesses(instruction):
            if access.allocation.last_use == instruction.index and access.layout.on_chip:
                self._places.pop(id(access.allocation), None)


def _box_at(access: Access, shift: int, pitch: int) -> Box:
    if access.anywhere:
        return whole_box(access, pitch)
    return hbm_box(access, shift, pitch) if pitch else on_chip_box(access, shift)


def _accesses(instruction: Instruction) -> Iterator[tuple[Access, bool]]:
    for access in instruction.reads:
        yield access, False
    for access in instruction.writes:
        yield access, True


def read_only_allocations(instructions: Iterable[Instruction]) -> set[int]:
    """HBM allocations (by id) that are never written."""
    read: set[int] = set()
    written: set[int] = set()
    for instruction in instructions:
        for access in instruction.writes:
            written.add(id(access.allocation))
        for access in instruction.reads:
            if not access.layout.on_chip:
                read.add(id(access.allocation))
    return read - written

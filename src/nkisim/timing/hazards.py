"""Who has to wait for whom: RAW, WAR and WAW by partition range and byte interval.

Automatic tensors have memory of their own; manually placed ones share theirs by address. HBM
tensors that a kernel only reads take no part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from nkisim.enums import engine
from nkisim.layout import ON_CHIP
from nkisim.timing.boxes import Box, covers, hbm_box, on_chip_box, outer_pitch_bytes, overlap
from nkisim.trace import Access, Instruction


class Entry(NamedTuple):
    """One remembered access: its box, the instruction's number and its engine."""

    box: Box
    number: int
    engine: engine


class Waits(NamedTuple):
    """What an instruction waits for: results to be visible, and readers to be done."""

    results: list[Entry]
    readers: list[Entry]


_MOST_CELLS = 16


class Ledger:
    """Accesses to one memory since they were overwritten, found again through a grid of cells."""

    __slots__ = ("_cell", "_large_reads", "_large_writes", "_reads", "_writes")

    def __init__(self) -> None:
        self._cell: tuple[int, int] | None = None  # rows and bytes of a cell, from the first box
        self._writes: dict[tuple[int, int], list[Entry]] = {}
        self._reads: dict[tuple[int, int], list[Entry]] = {}
        self._large_writes: list[Entry] = []
        self._large_reads: list[Entry] = []

    def read(self, entry: Entry, waits: Waits) -> None:
        """Add the writers this reader waits for, and remember the reader."""
        cells = self._cells(entry.box)
        waits.results.extend(self._meeting(entry.box, cells, self._writes, self._large_writes))
        self._remember(entry, cells, self._reads, self._large_reads)

    def write(self, entry: Entry, waits: Waits) -> None:
        """Add the writers and readers this writer waits for; what it covers is forgotten."""
        cells = self._cells(entry.box)
        waits.results.extend(self._meeting(entry.box, cells, self._writes, self._large_writes))
        waits.readers.extend(self._meeting(entry.box, cells, self._reads, self._large_reads))
        self._forget(entry.box, cells)
        self._remember(entry, cells, self._writes, self._large_writes)

    def _cells(self, box: Box) -> list[tuple[int, int]] | None:
        """The cells a box lies in, or None if they are too many to list."""
        if self._cell is None:
            self._cell = (max(1, box.row_end - box.row), max(1, box.byte_end - box.byte))
        rows, size = self._cell
        first, last = box.row // rows, (box.row_end - 1) // rows
        low, high = box.byte // size, (box.byte_end - 1) // size
        if first == last and low == high:
            return [(first, low)]
        if (last - first + 1) * (high - low + 1) > _MOST_CELLS:
            return None
        return [(r, c) for r in range(first, last + 1) for c in range(low, high + 1)]

    def _meeting(
        self,
        box: Box,
        cells: list[tuple[int, int]] | None,
        grid: dict[tuple[int, int], list[Entry]],
        large: list[Entry],
    ) -> Iterator[Entry]:
        candidates: Iterable[list[Entry]]
        if cells is None:
            candidates = list(grid.values())
        else:
            candidates = [grid[cell] for cell in cells if cell in grid]
        for entries in candidates:
            for entry in entries:
                if overlap(entry[0], box):
                    yield entry
        for entry in large:
            if overlap(entry[0], box):
                yield entry

    @staticmethod
    def _remember(
        entry: Entry,
        cells: list[tuple[int, int]] | None,
        grid: dict[tuple[int, int], list[Entry]],
        large: list[Entry],
    ) -> None:
        if cells is None:
            large.append(entry)
            return
        for cell in cells:
            entries = grid.setdefault(cell, [])
            # The Tensor engine keeps program order, so its latest read of a box stands for all.
            if entries and entry.engine is engine.tensor and _same_reader(entries[-1], entry):
                entries[-1] = entry
            else:
                entries.append(entry)

    def _forget(self, box: Box, cells: list[tuple[int, int]] | None) -> None:
        for grid in (self._writes, self._reads):
            for cell in list(grid) if cells is None else cells:
                if cell in grid:
                    grid[cell] = [e for e in grid[cell] if not covers(box, e[0])]
        self._large_writes = [e for e in self._large_writes if not covers(box, e[0])]
        self._large_reads = [e for e in self._large_reads if not covers(box, e[0])]


def _same_reader(one: Entry, two: Entry) -> bool:
    return one[0] == two[0] and one[2] is two[2]


class Hazards:
    """All memories of one core; asks each instruction, in program order, what it waits for."""

    def __init__(self, read_only: set[int]) -> None:
        self._ledgers: dict[object, Ledger] = {}
        self._pitches: dict[int, int] = {}
        self._read_only = read_only

    def waits(self, instruction: Instruction, number: int, shift: Callable[[Access], int]) -> Waits:
        """The instructions that `instruction`, the number-th to run, has to wait for."""
        waits = Waits([], [])
        for access in instruction.reads:
            if id(access.allocation) not in self._read_only:
                ledger, box = self._place(access, shift(access))
                ledger.read(Entry(box, number, instruction.engine), waits)
        for access in instruction.writes:
            ledger, box = self._place(access, shift(access))
            ledger.write(Entry(box, number, instruction.engine), waits)
        return waits

    def _place(self, access: Access, shift: int) -> tuple[Ledger, Box]:
        allocation = access.allocation
        if allocation.region in ON_CHIP:
            manual = allocation.address_bytes is not None
            key: object = allocation.region if manual else id(allocation)
            box = on_chip_box(access, shift)
        else:
            key = id(allocation)
            pitch = self._pitches.setdefault(id(allocation), outer_pitch_bytes(access))
            box = hbm_box(access, shift, pitch)
        ledger = self._ledgers.get(key)
        if ledger is None:
            ledger = self._ledgers[key] = Ledger()
        return ledger, box


def read_only_allocations(instructions: Iterable[Instruction]) -> set[int]:
    """HBM allocations (by id) that are never written."""
    read: set[int] = set()
    written: set[int] = set()
    for instruction in instructions:
        written.update(id(access.allocation) for access in instruction.writes)
        for access in instruction.reads:
            if access.allocation.region not in ON_CHIP:
                read.add(id(access.allocation))
    return read - written

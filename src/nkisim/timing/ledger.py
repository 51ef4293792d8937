"""Ledger: who touched one memory since it was overwritten, found again through a grid of cells."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

from nkisim.enums import engine
from nkisim.timing.boxes import Box, covers, overlap

Who = tuple[int, engine]  # the row of an instruction and its engine

_MOST_CELLS = 16  # a box in more cells than this is kept apart
_CROWDED = 64  # entries of a cell that make it worth looking for a better grid


@dataclass(slots=True)
class Settled:
    """Rows [0, rows) have their final times; `released_ns`: their inputs may be overwritten."""

    rows: int
    released_ns: array[float]

    def last(self, many: list[Who]) -> Who:
        """Of settled readers on one engine, the one that stands for all: the last to be done."""
        return max(many, key=lambda who: self.released_ns[who[0]])


class _Cell:
    """A part of the memory: its latest writers, and everyone who has read from it since."""

    __slots__ = ("reads", "writes")

    def __init__(self) -> None:
        self.writes: list[tuple[Box, Who]] = []
        self.reads: dict[tuple[Box, engine], list[Who]] = {}

    @property
    def crowd(self) -> int:
        """Entries to look through."""
        return len(self.writes) + len(self.reads)

    def writers(self, box: Box, users: list[Who]) -> None:
        """Add everyone who wrote into a box."""
        for other, who in self.writes:
            if other == box or overlap(other, box):
                users.append(who)

    def readers(self, box: Box, users: list[Who]) -> None:
        """Add everyone who read from a box."""
        for (other, _), many in self.reads.items():
            if other == box or overlap(other, box):
                users.extend(many)

    def forget(self, box: Box) -> None:
        """Drop what lies inside a box that is overwritten."""
        if self.writes:
            self.writes = [entry for entry in self.writes if not covers(box, entry[0])]
        if self.reads:
            for key in [key for key in self.reads if covers(box, key[0])]:
                del self.reads[key]

    def add_reader(self, box: Box, who: Who, settled: Settled) -> None:
        """Remember a reader; earlier ones of the same box and engine are merged once settled."""
        many = self.reads.get((box, who[1]))
        if many is None:
            self.reads[box, who[1]] = [who]
            return
        if len(many) > 1 and many[-1][0] < settled.rows:
            many[:] = [settled.last(many)]
        many.append(who)


class Ledger:
    """Accesses to one memory since they were overwritten.

    An access is searched for in the cells its box touches. The first box decides how large cells
    are; a crowded cell makes the ledger choose again.
    """

    __slots__ = ("_apart", "_bytes", "_cells", "_crowded", "_rows", "_settled")

    def __init__(self, settled: Settled) -> None:
        self._settled = settled
        self._cells: dict[tuple[int, int], _Cell] = {}
        self._apart = _Cell()  # boxes that reach over many cells
        self._rows = 0
        self._bytes = 0
        self._crowded = _CROWDED

    def read(self, box: Box, who: Who, results: list[Who]) -> None:
        """Add the writers this reader waits for, and remember the reader."""
        homes = self._homes(box)
        for cell in self._beside(homes):
            if cell.writes:
                cell.writers(box, results)
        if self._apart.writes:
            self._apart.writers(box, results)
        for cell in homes:
            cell.add_reader(box, who, self._settled)
        if homes[0].crowd > self._crowded:
            self._choose_grid(box)

    def write(self, box: Box, who: Who, writers: list[Who], readers: list[Who]) -> None:
        """Add the writers and readers this writer waits for; what it covers is forgotten."""
        homes = self._homes(box)
        for cell in (*self._beside(homes), self._apart):
            if cell.writes:
                cell.writers(box, writers)
            if cell.reads:
                cell.readers(box, readers)
            cell.forget(box)
        self._add_writer(homes, box, who)

    def _add_writer(self, homes: list[_Cell], box: Box, who: Who) -> None:
        entry = (box, who)
        for cell in homes:
            cell.writes.append(entry)
        if homes[0].crowd > self._crowded:
            self._choose_grid(box)

    def _homes(self, box: Box) -> list[_Cell]:
        """The cells that remember a box."""
        row, row_end, byte, byte_end = box
        if not self._rows:
            self._rows, self._bytes = row_end - row, byte_end - byte
        first, last = row // self._rows, (row_end - 1) // self._rows
        low, high = byte // self._bytes, (byte_end - 1) // self._bytes
        if first == last and low == high:
            return [self._cell((first, low))]
        if (last - first + 1) * (high - low + 1) > _MOST_CELLS:
            return [self._apart]
        return [self._cell((r, c)) for r in range(first, last + 1) for c in range(low, high + 1)]

    def _cell(self, key: tuple[int, int]) -> _Cell:
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = _Cell()
        return cell

    def _beside(self, homes: list[_Cell]) -> Iterable[_Cell]:
        """The cells in which boxes that overlap may be remembered, besides those kept apart."""
        return self._cells.values() if homes[0] is self._apart else homes

    def _choose_grid(self, box: Box) -> None:
        """Cells of the size of `box`, everything sorted into them anew."""
        cells = [self._apart, *self._cells.values()]
        writes = {id(entry): entry for cell in cells for entry in cell.writes}
        reads = {key: many for cell in cells for key, many in cell.reads.items()}
        self._rows, self._bytes = box[1] - box[0], box[3] - box[2]
        self._cells, self._apart = {}, _Cell()
        for entry in writes.values():
            for cell in self._homes(entry[0]):
                cell.writes.append(entry)
        for key, many in reads.items():
            for cell in self._homes(key[0]):
                cell.reads[key] = list(many)
        fullest = max(cell.crowd for cell in (self._apart, *self._cells.values()))
        self._crowded = max(self._crowded, 2 * fullest)

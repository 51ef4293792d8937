"""What a run can say on request: reads before any write, stores in vain, the first NaN or Inf.

It costs time, so `nkisim.run(..., inspect=True)` asks for it. None of them is an error: kernels
read tiles whose gaps were never written, and overwrite the result of the gaps. Shape-only runs
find the same reads, except through an index, whose place is data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nkisim.memory.footprint import Runs, joined, runs_of, view_at
from nkisim.numerics import dtypes
from nkisim.running.store_monitor import StoreMonitor, UnreadStore
from nkisim.tensors.indirection import read_held

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nkisim.memory.storage import Storage
    from nkisim.source_lines import SourceLine
    from nkisim.tensors.tensor import NkiTensor
    from nkisim.trace import Access, Instruction

_MOST_READS = 100  # nobody looks at more

Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class UninitialisedRead:
    """An instruction read bytes that nothing had written; `never` of the `asked` ones."""

    tensor: str
    op: str
    instruction: int
    never_bytes: int
    asked_bytes: int
    place: SourceLine | None = None  # of the kernel's source

    def __str__(self) -> str:
        part = f"{self.never_bytes} of {self.asked_bytes} bytes"
        label = _label(self.op, self.instruction, self.place)
        return f"{label} reads {part} of {self.tensor!r} unset"


@dataclass(frozen=True)
class NotFinite:
    """The first write of a NaN or an infinity: the value, and its element in the view written."""

    tensor: str
    op: str
    instruction: int
    value: float
    element: tuple[int, ...]
    place: SourceLine | None = None  # of the kernel's source

    def __str__(self) -> str:
        where = f"{self.tensor!r} at {self.element}"
        label = _label(self.op, self.instruction, self.place)
        return f"{label} writes {self.value} to {where}"


def _label(op: str, instruction: int, place: SourceLine | None) -> str:
    return f"{op} (instruction {instruction}{f', {place.short}' if place else ''})"


@dataclass(frozen=True)
class Inspection:
    """What was seen: reads of bytes nobody had set, and the first value that is not finite.

    `unread` are stores that were overwritten or left and never read, of runs with values.
    """

    uninitialised: tuple[UninitialisedRead, ...]
    not_finite: NotFinite | None
    unread: tuple[UnreadStore, ...] = ()


class Inspector:
    """Follows the instructions of one launch."""

    def __init__(self) -> None:
        self._set: dict[Storage, _SetBytes] = {}
        self._reads: dict[tuple[int, int, str], UninitialisedRead] = {}
        self._not_finite: NotFinite | None = None
        self._stores = StoreMonitor()
        self._results: dict[int, tuple[Instruction, tuple[NkiTensor, ...]]] = {}  # of a core's last

    def record(
        self,
        core: int,
        instruction: Instruction,
        reads: tuple[NkiTensor, ...],
        writes: tuple[NkiTensor, ...],
    ) -> None:
        """An instruction is about to run; the one before it has."""
        self.look_at_results(core)
        for tensor, access in zip(reads, instruction.reads, strict=True):
            if not access.anywhere and not tensor.storage.given:
                self._note_read(core, instruction, tensor, access)
        for tensor, access in zip(writes, instruction.writes, strict=True):
            self._set_bytes(tensor.storage).add(tensor, access)
        self._stores.record(core, instruction, reads, writes)
        self._results[core] = (instruction, writes)

    def look_at_results(self, core: int) -> None:
        """Look for the first value that is not finite in what a core's last instruction wrote."""
        if self._not_finite is not None or core not in self._results:
            return
        instruction, written = self._results.pop(core)
        for tensor in written:
            if tensor.storage.has_values and dtypes.is_float(tensor.dtype):
                self._look_at(instruction, tensor)

    def found(self, returned: Sequence[NkiTensor]) -> Inspection:
        """What was seen in a kernel that returned these tensors."""
        reads = tuple(self._reads.values())[:_MOST_READS]
        kept = {tensor.storage for tensor in returned}
        return Inspection(reads, self._not_finite, tuple(self._stores.found(kept))[:_MOST_READS])

    def _look_at(self, instruction: Instruction, tensor: NkiTensor) -> None:
        values = dtypes.to_float32(read_held(tensor), tensor.dtype)
        wrong = ~np.isfinite(values)
        if wrong.any():
            element = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
            place = tuple(int(i) for i in element)
            value = float(values[place])
            label = (tensor.name, instruction.op, instruction.index)
            self._not_finite = NotFinite(*label, value, place, instruction.place)

    def _note_read(
        self, core: int, instruction: Instruction, tensor: NkiTensor, access: Access
    ) -> None:
        size_bytes = access.layout.partitions * runs_of(access.layout).size_bytes
        never = size_bytes - self._set_bytes(tensor.storage).count(access)
        if never:
            key = (core, instruction.index, tensor.name)
            label = (tensor.name, instruction.op, instruction.index)
            read = UninitialisedRead(*label, never, size_bytes, instruction.place)
            self._reads.setdefault(key, read)

    def _set_bytes(self, storage: Storage) -> _SetBytes:
        written = self._set.get(storage)
        if written is None:
            written = self._set[storage] = _SetBytes(storage)
        return written


class _SetBytes:
    """Which bytes of a storage were written: a mask on chip, runs in HBM."""

    def __init__(self, storage: Storage) -> None:
        place = storage.allocation
        self._row_bytes = place.bytes_per_partition
        self._mask: Mask | None = None
        self._partitions = place.partitions
        self._all = False
        self._runs: list[Runs] = []

    def add(self, tensor: NkiTensor, access: Access) -> None:
        """A view was written; of one whose place is data, all counts as written."""
        layout = access.layout
        moving = tensor.indirection is not None and (access.anywhere or access.step)
        if self._all or moving:
            self._all = True
        elif layout.on_chip:
            for rows, low, high in self._rows(access):
                self._marks[rows, low:high] = True
        else:
            self._runs.append(runs_of(layout).moved(access.offset * layout.itemsize_bytes))

    def count(self, access: Access) -> int:
        """How many bytes of a view were written."""
        layout = access.layout
        if self._all:
            return layout.partitions * runs_of(layout).size_bytes
        if layout.on_chip:
            return sum(
                int(self._marks[rows, low:high].sum()) for rows, low, high in self._rows(access)
            )
        view_runs = runs_of(layout).moved(access.offset * layout.itemsize_bytes)
        if not self._runs:
            return 0
        starts = np.concatenate([runs.starts for runs in self._runs])
        self._runs = [joined(starts, np.concatenate([runs.ends for runs in self._runs]))]
        return view_runs.size_bytes - view_runs.minus(self._runs[0]).size_bytes

    @property
    def _marks(self) -> Mask:
        if self._mask is None:
            self._mask = np.zeros((self._partitions, self._row_bytes), np.bool_)
        return self._mask

    def _rows(self, access: Access) -> list[tuple[slice, int, int]]:
        layout = access.layout
        view = view_at(layout, access.offset, self._row_bytes)
        rows = slice(view.partition, view.partition + layout.partitions)
        runs = runs_of(layout).moved(view.byte)
        pairs = zip(runs.starts.tolist(), runs.ends.tolist(), strict=True)
        return [(rows, low, high) for low, high in pairs]

"""Stores in vain: what an instruction wrote was overwritten, or left, and never read.

A store counts as read with its first byte, so that setting a tile to zero before loading into the
middle of it is none; and an instruction of two results with one that is read is none either. Only
runs with values are monitored: a shape-only run goes through a loop once, and does not see what the
next iteration reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from nkisim.memory.footprint import Runs, joined, runs_of, view_at
from nkisim.running.provenance import KEEPING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from nkisim.memory.storage import Storage
    from nkisim.source_lines import SourceLine
    from nkisim.tensors.tensor import NkiTensor
    from nkisim.trace import Access, Instruction

_OVERWRITES_UNLESS_TOLD = ("nc_matmul", "nc_matmul_mx")


@dataclass(frozen=True)
class UnreadStore:
    """A line that wrote in vain, so many times; without an `overwriter`, nothing wrote over it."""

    tensor: str
    store: str  # "dma_copy (instruction 3, first.py:12)", of the first time
    overwriter: str
    times: int
    place: SourceLine | None

    def __str__(self) -> str:
        times = "" if self.times == 1 else f", {self.times:,} times"
        end = f"{self.overwriter} overwrites" if self.overwriter else "nothing reads"
        before = " before anything reads it" if self.overwriter else ""
        return f"{self.store} writes {self.tensor!r}, which {end}{before}{times}"


@dataclass(eq=False)
class _Store:
    """What one instruction wrote: still there, unread, in so many places."""

    instruction: Instruction
    core: int
    tensors: list[NkiTensor] = field(default_factory=list)
    places: int = 0
    read: bool = False


@dataclass(eq=False)
class _StoredBytes:
    """Bytes of a store in one storage that nothing has written over."""

    store: _Store
    bytes: Runs


class StoreMonitor:
    """Follows stores until their first reader."""

    def __init__(self) -> None:
        self._parts: dict[Storage, list[_StoredBytes]] = {}
        self._overwritten: list[tuple[_Store, Instruction]] = []

    def record(
        self,
        core: int,
        instruction: Instruction,
        reads: tuple[NkiTensor, ...],
        writes: tuple[NkiTensor, ...],
    ) -> None:
        """An instruction runs."""
        for tensor, access in zip(reads, instruction.reads, strict=True):
            self._read(tensor, access)
        store = _Store(instruction, core)
        for tensor, access in zip(writes, instruction.writes, strict=True):
            if keeps(instruction):
                self._read(tensor, access)
            elif tensor.storage.has_values and not access.anywhere:
                self._overwrite(tensor, access, store)
            self._begin(tensor, access, store)

    def found(self, kept: Collection[Storage]) -> Iterator[UnreadStore]:
        """Stores in vain, those of one line together; what is `kept` is read by the caller."""
        groups: dict[tuple[object, ...], list[tuple[_Store, Instruction | None]]] = {}
        for store, overwriter in (*self._overwritten, *self._left(kept)):
            if store.read:
                continue
            lines = (store.instruction.place, overwriter and overwriter.place)
            ops = (store.instruction.op, overwriter and overwriter.op)
            groups.setdefault((*lines, *ops), []).append((store, overwriter))
        for group in groups.values():
            store, overwriter = group[0]
            label = store.tensors[0].storage.allocation.label
            over = "" if overwriter is None else overwriter.label
            place = store.instruction.place
            yield UnreadStore(label, store.instruction.label, over, len(group), place)

    def _left(self, kept: Collection[Storage]) -> Iterator[tuple[_Store, None]]:
        seen: dict[_Store, None] = {}
        for storage, parts in self._parts.items():
            for part in parts:
                if storage.given or storage in kept:
                    part.store.read = True
                seen[part.store] = None
        yield from ((store, None) for store in seen)

    def _read(self, tensor: NkiTensor, access: Access) -> None:
        parts = self._parts.get(tensor.storage)
        if not parts:
            return
        bytes_read = None if access.anywhere else _bytes(tensor.storage, access)
        for part in parts:
            if bytes_read is None or part.bytes.meets(bytes_read):
                part.store.read = True
        self._parts[tensor.storage] = [part for part in parts if not part.store.read]

    def _overwrite(self, tensor: NkiTensor, access: Access, by: _Store) -> None:
        """Take the bytes of a write from older stores; those that lose their last are in vain."""
        parts, written = self._parts.get(tensor.storage, []), _bytes(tensor.storage, access)
        left: list[_StoredBytes] = []
        for part in parts:
            if part.store is not by and part.bytes.meets(written):
                part.bytes = part.bytes.minus(written)
            if part.bytes.starts.size:
                left.append(part)
                continue
            part.store.places -= 1
            # Both cores may write one value: kernels that know nothing of cores do.
            if not part.store.places and part.store.core == by.core:
                self._overwritten.append((part.store, by.instruction))
        self._parts[tensor.storage] = left

    def _begin(self, tensor: NkiTensor, access: Access, store: _Store) -> None:
        store.tensors.append(tensor)
        store.places += 1
        if access.anywhere or not tensor.storage.has_values:
            store.read = True  # nobody knows where it is
            return
        part = _StoredBytes(store, _bytes(tensor.storage, access))
        self._parts.setdefault(tensor.storage, []).append(part)


def keeps(instruction: Instruction) -> bool:
    """Whether what an instruction writes depends on what was there."""
    if instruction.op in _OVERWRITES_UNLESS_TOLD:
        return instruction.option("accumulate") is not False
    # A gather may skip rows, and leave what it finds there.
    return instruction.op in KEEPING or any(access.anywhere for access in instruction.reads)


def _bytes(storage: Storage, access: Access) -> Runs:
    """The bytes of a view, counted through all partitions of its storage."""
    layout, pitch = access.layout, storage.allocation.bytes_per_partition
    view = view_at(layout, access.offset, pitch)
    runs = runs_of(layout).moved(view.byte)
    if not layout.on_chip:
        return runs
    rows = pitch * np.arange(view.partition, view.partition + layout.partitions, dtype=np.int64)
    return joined(*((rows[:, None] + ends).ravel() for ends in runs))

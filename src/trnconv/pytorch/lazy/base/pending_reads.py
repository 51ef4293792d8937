"""What was recorded and still has to read memory, so that it is read before anybody changes it."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Iterable
from typing import Protocol

import torch

from trnconv.pytorch.lazy.base.memory import about_to_change


class Reader(Protocol):
    """Something that will read memory later."""

    def reads(self) -> frozenset[int]:
        """Storages that must not change before; none once it is done."""

    def settle(self) -> None:
        """Read them now."""


class _Waiting:
    """All readers of the process: a stream may go on in another thread than it began in."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: weakref.WeakSet[Reader] = weakref.WeakSet()

    def add(self, reader: Reader) -> None:
        with self._lock:
            self._readers.add(reader)

    def remove(self, reader: Reader) -> None:
        with self._lock:
            self._readers.discard(reader)

    def of(self, storages: Iterable[int]) -> list[Reader]:
        wanted = frozenset(storages)
        with self._lock:
            listed = list(self._readers)
        return [reader for reader in listed if not wanted.isdisjoint(reader.reads())]


_waiting = _Waiting()
_changes: Counter[int] = Counter()  # by storage; an address that is used again counts on
add, remove, readers = _waiting.add, _waiting.remove, _waiting.of


def settle_readers(storages: Iterable[int]) -> None:
    """Whoever still has to read this memory reads it now: it is about to change."""
    listed = list(storages)
    with about_to_change(listed):
        for reader in _waiting.of(listed):
            reader.settle()
    _changes.update(listed)


def changes_of(storage: int) -> int:
    """How often a patched model has changed this memory; equal numbers mean: not in between."""
    return _changes[storage]


def alias_of(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory, to be read later: `tensor.data = other` gives other memory to the tensor."""
    with unseen():
        return tensor.detach()


def unseen() -> torch._C._DisableTorchDispatch:
    """Operators inside are seen by no mode: they are bookkeeping, and make no memory."""
    return torch._C._DisableTorchDispatch()  # noqa: SLF001

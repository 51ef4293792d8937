"""Which tensors share memory, who else holds it, and which were changed unseen."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from trnconv.errors import UnsupportedError

UNKNOWN = -1  # torch does not count for tensors made in inference mode


def storage_of(tensor: torch.Tensor) -> int:
    """Which memory a tensor lies in. It works on the meta device too."""
    key: int = torch.Tensor.untyped_storage(tensor)._cdata  # noqa: SLF001 (there is no public name)
    return key


def same_memory(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether both are views of one storage."""
    return storage_of(tensor) == storage_of(other)


def holders(tensor: torch.Tensor) -> int:
    """Tensors (views and aliases, ours and anybody's) that hold the memory of this one."""
    storage = torch.Tensor.untyped_storage(tensor)
    count: int = torch._C._storage_Use_Count(storage._cdata)  # noqa: SLF001 (torch's only count)
    return count - 1  # the storage's own object


def written(tensor: torch.Tensor) -> int:
    """How often the tensor, or one that shares its memory, was changed in place, as torch counts.

    After `parameter.data = other`, `is_inference()` does not tell whether there is a count.
    """
    try:
        return tensor._version  # noqa: SLF001 (torch's name)
    except RuntimeError:
        return UNKNOWN


class _Announced(threading.local):
    """Storages that this thread is about to change: torch may have counted that already."""

    storages: frozenset[int] = frozenset()


_announced = _Announced()


@contextmanager
def about_to_change(storages: Iterable[int]) -> Iterator[None]:
    """While all that reads these storages reads them."""
    before, _announced.storages = _announced.storages, frozenset(storages)
    try:
        yield
    finally:
        _announced.storages = before


@dataclass(frozen=True)
class Counted:
    """A tensor whose changes torch counts, as it was when its memory was recorded."""

    tensor: weakref.ref[torch.Tensor]
    times: int
    storage: int

    @staticmethod
    def of(tensor: torch.Tensor) -> Counted:
        """As it is now."""
        return Counted(weakref.ref(tensor), written(tensor), storage_of(tensor))

    def require_unchanged(self) -> None:
        """Refuse to read what was changed since, by code that a patched model cannot see.

        A tensor that was given other memory since (`.data = other`) counts changes of that.
        """
        tensor = self.tensor()
        if tensor is None or self.times in (UNKNOWN, written(tensor)):
            return
        if storage_of(tensor) == self.storage and self.storage not in _announced.storages:
            raise UnsupportedError(
                f"a tensor {list(tensor.shape)} was changed in place while a patched model still"
                " had to read it, by code that it does not see (another thread, or outside of the"
                " model). Change a clone of it instead."
            )


def require_present(tensor: torch.Tensor) -> None:
    """Refuse to read memory that was given back (`storage.resize_(0)`), as FSDP does."""
    held = torch.Tensor.untyped_storage(tensor).nbytes()
    if held == 0 < tensor.numel() and tensor.device.type != "meta":
        raise UnsupportedError(
            f"the memory of a tensor {list(tensor.shape)} was freed while a patched model still had"
            " to read it. Use patch_(model, lazy=False)."
        )

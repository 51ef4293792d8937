"""Values of index tensors, known without a look at a device: what comes of `arange` and numbers.

A mask says which tokens an attention hides, and to skip those their values must be known. They are
on a device, or nowhere (meta). So while a patched model runs, operators on small tensors that start
with `arange` or a number are done a second time, on the host.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import Any

import torch

from trnconv.pytorch.lazy.base.memory import storage_of, written
from trnconv.pytorch.lazy.base.pending_reads import changes_of, unseen
from trnconv.pytorch.lazy.base.traits import Traits, mapped, tensors_in
from trnconv.pytorch.lazy.tensors.tensor import LazyTensor

Tensor = torch.Tensor
_STARTS = ("aten::arange", "aten::scalar_tensor")
_MOST = 1 << 20  # elements: positions of a video, and not their pairs


@dataclass(frozen=True)
class _Memory:
    """Values of a storage."""

    holder: weakref.ref[Any]
    changes: tuple[int, int]  # that were seen, and those that torch counts
    values: Tensor

    def is_of(self, tensor: Tensor) -> bool:
        """Whether it is what the memory of a tensor holds."""
        alive = self.holder() is not None and tensor.dtype == self.values.dtype
        return alive and self.changes == _changes(tensor)


class _Known(threading.local):
    """Memories of this thread, by storage."""

    def __init__(self) -> None:
        self.memories: dict[int, _Memory] = {}


_known = _Known()


def follow(func: Any, traits: Traits, args: Any, kwargs: Any, result: Any) -> None:
    """An operator that torch did: if all it read is known, so is its result."""
    memories = _known.memories
    if traits.name not in _STARTS and not memories:
        return
    if traits.view or not isinstance(result, Tensor) or result.numel() > _MOST:
        return
    read = list(tensors_in((args, kwargs)))
    if (not read and traits.name not in _STARTS) or torch.Tag.nondeterministic_seeded in func.tags:
        return
    values = [values_of(tensor) for tensor in read]
    if any(value is None for value in values):
        return
    on_host = {id(tensor): value for tensor, value in zip(read, values, strict=True)}
    with unseen():
        values_read, options = mapped(Tensor, lambda tensor: on_host[id(tensor)], (args, kwargs))
        if "device" in options:
            options = {**options, "device": torch.device("cpu")}
        made = func(*values_read, **options)
    _remember(result, made)


def values_of(tensor: Tensor) -> Tensor | None:
    """What a tensor holds, on the host and as it lies; None if that is not known."""
    if isinstance(tensor, LazyTensor):
        return None
    memory = _known.memories.get(storage_of(tensor))
    if memory is None or not memory.is_of(tensor):
        return None
    with unseen():
        return memory.values.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _changes(tensor: Tensor) -> tuple[int, int]:
    return changes_of(storage_of(tensor)), written(tensor)


def _remember(tensor: Tensor, values: Tensor) -> None:
    """The memory of a new tensor, all of it."""
    if tensor.storage_offset() or tensor.untyped_storage().nbytes() != tensor.nbytes:
        return
    with unseen():
        memory = torch.empty_strided(tensor.shape, tensor.stride(), dtype=values.dtype)
        flat = memory.copy_(values).as_strided((tensor.numel(),), (1,))
    storage, memories = storage_of(tensor), _known.memories
    holder = weakref.ref(tensor.untyped_storage(), lambda _: memories.pop(storage, None))
    memories[storage] = _Memory(holder, _changes(tensor), flat)

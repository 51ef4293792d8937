"""LiveMemory: bytes of tensors that are alive while a model runs, and their peak.

It works on the meta device, where tensors have sizes and no memory.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts every new storage from its creation until nobody refers to it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live_bytes = 0
        self.peak_bytes = 0
        self.largest_bytes = 0
        self.largest_shape: tuple[int, ...] = ()
        self._known: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the operator; its outputs may be new storages."""
        del types
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._count(leaf)
        return result

    def _count(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata  # noqa: SLF001 (no public identity)
        known = self._known.get(key)
        if known is not None and known() is not None:
            return
        size = storage.nbytes()

        def freed(_reference: Any) -> None:
            self.live_bytes -= size
            self._known.pop(key, None)

        self._known[key] = weakref.ref(storage, freed)
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        if size > self.largest_bytes:
            self.largest_bytes, self.largest_shape = size, tuple(tensor.shape)

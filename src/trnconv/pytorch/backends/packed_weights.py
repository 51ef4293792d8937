"""Packed weights, kept on their device for as long as what they were made of is unchanged.

A tensor is changed when its version is: in-place operations, optimizers and load_state_dict move
it. Writing through `.data` does not, for autograd neither; then call `forget_packed_weights`. Where
only a bias is another one, the weights stay where they are.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Hashable, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

Images = tuple[torch.Tensor, ...]
Filters = tuple[torch.Tensor, torch.Tensor | None]  # weight and bias
_Bias = Callable[[], torch.Tensor | None]  # a weak reference


class Packing(Protocol):
    """How images are made of a weight and a bias."""

    def pack(self) -> tuple[Images, Any]:
        """All of them, and what `rebias` will want."""

    def rebias(self, images: Images, kept: Any) -> Images | None:
        """The same with another bias; None if that takes packing all."""


@dataclass(frozen=True)
class _Packed:
    """Images, and the versions of what they were made of."""

    weight_version: int
    bias: _Bias
    bias_version: int
    images: Images
    kept: Any  # for another bias

    def has_weight(self, w: torch.Tensor) -> bool:
        """Whether the weight has not changed since."""
        return self.weight_version == _version(w)

    def has_bias(self, bias: torch.Tensor | None) -> bool:
        """Whether it is this one, unchanged."""
        return self.bias() is bias and self.bias_version == _version(bias)


_Kept = dict[Hashable, _Packed]  # by use
_QUEUED = 64  # calls that a runtime may have queued (KILN: at most 63): they still read old images
_MOST_TABLES = 4096
_retired: deque[Images] = deque(maxlen=_QUEUED)
_tables: dict[Hashable, Images] = {}
_kept: MutableMapping[torch.Tensor, _Kept] = torch.utils.weak.WeakTensorKeyDictionary()


def packed_once(filters: Filters, use: Hashable, packing: Packing) -> Images:
    """What `packing` gives, or gave for these versions and this use; w is not kept alive.

    A view is known by the tensor it looks at: whoever reshapes a parameter makes a new one each
    time.
    """
    w, bias = filters
    if any(tensor is not None and tensor.is_inference() for tensor in filters):  # has no version
        return packing.pack()[0]
    owner = w if w._base is None else w._base  # noqa: SLF001 (torch documents it by this name)
    kept: _Kept = _kept.setdefault(owner, {})
    look = (use, tuple(w.shape), w.stride(), w.storage_offset())
    packed = kept.get(look)
    if packed is None or not (packed.has_weight(w) and packed.has_bias(bias)):
        kept[look] = _packed(w, bias, packing, packed)
        if packed is not None:
            _retired.append(packed.images)
    return kept[look].images


def _packed(
    w: torch.Tensor, bias: torch.Tensor | None, packing: Packing, before: _Packed | None
) -> _Packed:
    alive: _Bias = (lambda: None) if bias is None else weakref.ref(bias)
    images = None
    if before is not None and before.has_weight(w):
        images, kept = packing.rebias(before.images, before.kept), before.kept
    if images is None:
        images, kept = packing.pack()
    return _Packed(_version(w), alive, _version(bias), images, kept)


def kept_tables(use: Hashable, pack: Callable[[], Images]) -> Images:
    """What `pack` made for this use the first time: tables that no tensor of a caller changes."""
    if use not in _tables:
        if len(_tables) >= _MOST_TABLES:
            _retired.append(_tables.pop(next(iter(_tables))))
        _tables[use] = pack()
    return _tables[use]


def _version(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor._version  # noqa: SLF001 (torch documents it by this name)


def forget_packed_weights() -> None:
    """Pack again at the next call."""
    _kept.clear()
    _tables.clear()

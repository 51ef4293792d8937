"""copy.copy of a patched module: a module of its class, without our methods.

Methods on an instance know their instance, and `copy.copy` hands them on: the copy would run as its
origin. So a patched instance has a `__getstate__` of ours. Deep copies and pickles get everything,
and are patched; a shallow copy gets what the instance had before, and shares its patched children.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch


class State(dict[str, Any]):
    """Attributes of an instance: all of them, but to `update`, which reads them by keys."""

    def __init__(self, attributes: dict[str, Any], ours: set[str], before: dict[str, Any]) -> None:
        super().__init__(attributes)
        self._ours = ours
        self._before = before

    def __iter__(self) -> Iterator[str]:
        return (
            name for name in super().__iter__() if name not in self._ours or name in self._before
        )

    def keys(self) -> Any:
        """Of a shallow copy."""
        return list(self)

    def __getitem__(self, name: str) -> Any:
        return self._before[name] if name in self._before else super().__getitem__(name)

    def _all(self) -> dict[str, Any]:
        return dict(dict.items(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return copy.deepcopy(self._all(), memo)

    def __reduce__(self) -> Any:
        return (dict, (), None, None, iter(self._all().items()))


def state_of(module: torch.nn.Module, ours: set[str], before: dict[str, Any]) -> Any:
    """What `copy` and `pickle` ask a patched module for; a class's own answer counts."""
    own = getattr(type(module), "__getstate__", None)
    is_theirs = own is not None and own is not getattr(object, "__getstate__", None)
    state = own(module) if is_theirs else module.__dict__  # type: ignore[misc]
    return State(state, ours, before) if isinstance(state, dict) else state

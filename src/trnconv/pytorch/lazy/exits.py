"""The end of a run: lazy tensors become plain ones, in whatever object they hide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import torch

from trnconv.errors import TrnconvError
from trnconv.pytorch.lazy import tensor as registry
from trnconv.pytorch.lazy.bypass import passing
from trnconv.pytorch.lazy.deferred_result import Pending
from trnconv.pytorch.lazy.tensor import LazyTensor
from trnconv.pytorch.lazy.traits import mapped

Tensor = torch.Tensor
_OURS = "view_of"


def settled(lazy: LazyTensor) -> bool:
    """The very object becomes a plain tensor; False where torch refuses, and it stays a wrapper.

    It refuses where somebody has a weak reference to it, or C++ holds it, as a view does.
    """
    plain = lazy.solid().detach()
    own = {name: value for name, value in vars(lazy).items() if name != _OURS}
    vars(plain).update(own)
    if lazy.requires_grad:
        plain.requires_grad_()
    registry.taken_out(id(lazy))  # it has a weak reference too
    try:
        torch.utils.swap_tensors(lazy, plain)  # type: ignore[no-untyped-call]
    except RuntimeError:
        registry.put_back(lazy)
        return False
    return True


def settle_since(before: frozenset[int], kept: frozenset[int]) -> None:
    """All that came to be since, youngest first: a view holds what it is a view of.

    `kept` are what the model keeps on itself, by id: they may stay lazy, while nobody else can
    change what they have to read.
    """
    waiting = _settle_all(before | kept)
    while waiting and waiting != (waiting := _settle_all(before | kept)):
        pass  # those that held others are gone
    _settle_unless_safe([key for key in registry.alive() if key in kept and key not in before])


def _settle_all(left_alone: frozenset[int]) -> list[int]:
    """Keys of those that torch has refused to change."""
    refused = []
    for key in reversed(registry.alive()):
        lazy = registry.known(key) if key not in left_alone else None
        if lazy is not None and not settled(lazy):
            refused.append(key)
        del lazy
    return refused


def settle_after_failure(before: frozenset[int]) -> None:
    """The same when a model has failed: what cannot be made says why when it is looked at."""
    for key in reversed(registry.alive()):
        lazy = registry.known(key) if key not in before else None
        if lazy is None:
            continue
        try:
            settled(lazy)
        except (TrnconvError, RuntimeError, ValueError):
            continue
        finally:
            del lazy


def _settle_unless_safe(keys: list[int]) -> None:
    """One that is made may hold memory that another reads: until nothing changes."""
    changed = True
    while changed:
        changed = False
        for key in reversed(keys):
            lazy = registry.known(key)
            if lazy is not None and not lazy.view_of.cell.may_wait():
                changed = settled(lazy) or changed
            del lazy


def made_plain(value: Any) -> Any:
    """The same with plain tensors in it, for hooks: the very objects, if torch allows it."""
    for lazy in list(lazies_in(value)):
        if isinstance(lazy, LazyTensor):  # not twice
            settled(lazy)
    return mapped(LazyTensor, LazyTensor.solid, value)


def convolved_now(value: Any) -> Any:
    """The same object; convolutions that its tensors are made of have run."""
    for lazy in lazies_in(value):
        video = lazy.video() if lazy.view_of.cell.video is not None else None
        for run in () if video is None else video.runs:
            if isinstance(run.base, Pending):
                with passing():
                    run.base.result()
    return value


def lazies_in(value: Any, depth: int = 6) -> Iterator[LazyTensor]:
    """Lazy tensors in lists, tuples, dictionaries and records."""
    if isinstance(value, LazyTensor):
        yield value
    elif isinstance(value, Tensor) or depth == 0:
        return
    elif isinstance(value, dict):
        yield from _in_all(value.values(), depth)
    elif isinstance(value, (list, tuple, set)):
        yield from _in_all(value, depth)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from _in_all([getattr(value, field.name, None) for field in fields(value)], depth)


def _in_all(values: Iterable[Any], depth: int) -> Iterator[LazyTensor]:
    for value in list(values):
        yield from lazies_in(value, depth - 1)


def kept_by(model: torch.nn.Module, containers: Iterable[Any]) -> frozenset[int]:
    """Ids of lazy tensors in attributes of a model, and in lists and dictionaries it was given."""
    found = [lazy for value in containers for lazy in lazies_in(value)]
    for module in model.modules():
        for name, value in vars(module).items():
            if name not in _MODULES_OWN and isinstance(value, (Tensor, list, dict, tuple)):
                found.extend(lazies_in(value))
    return frozenset(id(lazy) for lazy in found)


_MODULES_OWN = frozenset(vars(torch.nn.Module())) - {"_buffers"}

"""The end of a run: lazy tensors become plain ones, in whatever object they hide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import torch

from trnconv.errors import TrnconvError
from trnconv.pytorch.lazy.base.bypass import passing
from trnconv.pytorch.lazy.base.deferred_result import Pending
from trnconv.pytorch.lazy.tensors import tensor as registry
from trnconv.pytorch.lazy.tensors.autograd import plain_of
from trnconv.pytorch.lazy.tensors.tensor import LazyTensor

Tensor = torch.Tensor
_OURS = ("view_of", "becomes")
_MARKS_PARAMETERS = "_is_param"  # what torch.nn.Parameter gives to tensors of other classes


def settled(lazy: LazyTensor) -> bool:
    """The very object becomes a plain tensor; False where C++ holds it, as a view and a graph do.

    Not by `torch.utils.swap_tensors`, which refuses weak references: it cannot know that theirs is
    the same tensor as before.
    """
    plain = plain_of(lazy)
    if lazy._use_count() > 1:  # type: ignore[attr-defined] # noqa: SLF001 (swap_tensors asks it too)
        return False
    attributes = {name: value for name, value in vars(lazy).items() if name not in _OURS}
    if attributes.pop(_MARKS_PARAMETERS, False):  # nn.Parameter(lazy) has marked it
        plain = torch.nn.Parameter(plain, lazy.requires_grad)
    vars(plain).update(attributes)
    registry.taken_out(id(lazy))
    lazy.__class__, plain.__class__ = plain.__class__, lazy.__class__
    lazy.__dict__, plain.__dict__ = plain.__dict__, lazy.__dict__
    torch._C._swap_tensor_impl(lazy, plain)  # noqa: SLF001 (what swap_tensors ends with)
    return True


def settle_since(before: frozenset[int], kept: frozenset[int]) -> None:
    """All that came to be since, youngest first: a view holds what it is a view of.

    `kept` are what the model keeps on itself, by id: they may stay lazy, while nobody else can
    change what they have to read, and unless one that leaves is held by a view among them.
    """
    waiting = _settle_until_none_can(before | kept)
    if waiting:
        kept -= _of_the_same_memory(waiting)
        _settle_until_none_can(before | kept)
    _settle_unless_safe([key for key in registry.alive() if key in kept and key not in before])


def _settle_until_none_can(left_alone: frozenset[int]) -> list[int]:
    """Keys of those that torch has refused to change, when those that held others are gone."""
    waiting = _settle_all(left_alone)
    while waiting and waiting != (waiting := _settle_all(left_alone)):
        pass
    return waiting


def _of_the_same_memory(waiting: list[int]) -> frozenset[int]:
    """Keys of these and of all that are views of the same cells."""
    cells = {lazy.view_of.cell for key in waiting if (lazy := registry.known(key)) is not None}
    tensors = ((key, registry.known(key)) for key in registry.alive())
    return frozenset(
        key for key, lazy in tensors if lazy is not None and lazy.view_of.cell in cells
    )


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


def settle(value: Any) -> None:
    """Its lazy tensors become plain, if torch allows it."""
    for lazy in list(lazies_in(value)):
        if isinstance(lazy, LazyTensor) and not settled(lazy):  # a view of it holds it
            _settle_all(frozenset(registry.alive()) - _of_the_same_memory([id(lazy)]))


def made_plain(value: Any) -> Any:
    """The same with plain tensors in it: the very objects, if torch allows it."""
    settle(value)
    return _with_plain(value) if any(True for _ in lazies_in(value)) else value


def _with_plain(value: Any) -> Any:
    """Where torch does not allow it, other tensors: in the same lists, dictionaries and records."""
    if isinstance(value, dict):
        for key, inner in list(value.items()):
            value[key] = _with_plain(inner)
        return value
    if isinstance(value, list):
        value[:] = map(_with_plain, value)
        return value
    if isinstance(value, tuple):
        items = map(_with_plain, value)
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            object.__setattr__(value, field.name, _with_plain(getattr(value, field.name)))
        return value
    return plain_of(value)


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
    lazies = [lazy for value in containers for lazy in lazies_in(value)]
    for module in model.modules():
        for name, value in vars(module).items():
            if name not in _MODULES_OWN and isinstance(value, (Tensor, list, dict, tuple)):
                lazies.extend(lazies_in(value))
    return frozenset(id(lazy) for lazy in lazies)


_MODULES_OWN = frozenset(vars(torch.nn.Module())) - {"_buffers"}

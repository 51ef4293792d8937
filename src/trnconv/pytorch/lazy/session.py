"""A session: from where a patched model is entered to where it is left, in one thread."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules import module as torch_module
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import _FlopCounterMode

from trnconv.pytorch.lazy.exits import kept_by, lazies_in, settle_after_failure, settle_since
from trnconv.pytorch.lazy.functions import LazyFunctions
from trnconv.pytorch.lazy.mode import LazyMode
from trnconv.pytorch.lazy.tensors import tensor as registry
from trnconv.pytorch.lazy.tensors.context import PatchContext
from trnconv.pytorch.lazy.tensors.tensor import LazyTensor

Tensor = torch.Tensor
GRADIENTS = "gradients are on: rewrites and fast algorithms were off"
_GLOBAL_HOOKS = ("_global_forward_pre_hooks", "_global_forward_hooks")


class _Current(threading.local):
    """The innermost session of this thread."""

    context: PatchContext | None = None
    by_halves = False  # entered by a method that encodes or decodes


_current = _Current()


def inside(context: PatchContext) -> bool:
    """Whether this thread is in a session of this model."""
    return _current.context is context


def is_half(module: str) -> bool:
    """Whether a module is an encoder or decoder that runs once for every chunk.

    Convolutions at its end run when it returns: waiting for the chunks that follow, they would keep
    the largest tensors of each.
    """
    return _current.by_halves and "." not in module


def why_eager(args: Any, kwargs: Any) -> str:
    """Why nothing may be recorded here; empty if it may."""
    if torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]
        return "torch.jit.trace sees tensors only"
    if is_transformed():
        return "a transform of torch.func or forward-mode differentiation is active"
    if kind := foreign_kind(tree_leaves((args, kwargs))):
        return f"an argument is a {kind}"
    for mode in _get_current_dispatch_mode_stack():
        if mode.is_infra_mode() or isinstance(mode, _FlopCounterMode):
            return f"{type(mode).__name__} is active"
    global_hooks = any(getattr(torch_module, name) for name in _GLOBAL_HOOKS)
    return "hooks of all modules are active" if global_hooks else ""


def is_transformed() -> bool:
    """Whether tensors stand for something else: for batches, or for values with tangents."""
    transforms = torch._C._functorch.peek_interpreter_stack()  # noqa: SLF001 (no public problem)
    return transforms is not None or torch.autograd.forward_ad._current_level >= 0  # noqa: SLF001


def foreign_kind(values: Iterable[Any]) -> str:
    """A subclass of torch's tensors among values, that has rules of its own; empty if none has."""
    for value in values:
        if isinstance(value, Tensor) and type(value) not in (
            Tensor,
            torch.nn.Parameter,
            LazyTensor,
        ):
            return type(value).__name__
    return ""


@contextmanager
def session(
    model: torch.nn.Module, context: PatchContext, arguments: Any, *, by_halves: bool = False
) -> Iterator[list[Any]]:
    """Data movement inside is recorded; at the end nothing lazy is left but what the model keeps.

    The caller puts results into the list: they become plain, also where the model keeps them.
    """
    outer, before = (_current.context, _current.by_halves), frozenset(registry.alive())
    results: list[Any] = []
    _current.context, _current.by_halves = context, by_halves
    try:
        with LazyMode(context), LazyFunctions(context), context.within():
            yield results
    except BaseException:
        _current.context, _current.by_halves = outer
        if context.spread is None:  # else other ranks may be waited for, that have failed too
            with torch.no_grad():
                settle_after_failure(before)
        raise
    _current.context, _current.by_halves = outer
    settle_since(before, _kept(model, arguments, results))


def _kept(model: torch.nn.Module, arguments: Any, results: list[Any]) -> frozenset[int]:
    args, kwargs = arguments
    containers = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, (list, dict))]
    if not registry.alive():
        return frozenset()
    leaving = {id(lazy) for lazy in lazies_in(results)}
    return kept_by(model, containers) - leaving

"""Every function of torch that meets a lazy tensor passes here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch

from trnconv.pytorch import functional
from trnconv.pytorch.lazy.context import Surroundings
from trnconv.pytorch.lazy.convolutions import (
    Filters,
    activated,
    convolved,
    plus,
    unsupported_type,
)
from trnconv.pytorch.lazy.frame_by_frame import on_each_frame
from trnconv.pytorch.lazy.memory import same_memory
from trnconv.pytorch.lazy.movements import CONCATENATIONS, COPIES, ON_VIDEOS, cat
from trnconv.pytorch.lazy.noting import note_forward, note_transposed
from trnconv.pytorch.lazy.tensor import LazyTensor, Seen, lazy, real, settle
from trnconv.pytorch.lazy.video import Video

_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
_TRANSPOSED = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
_FIRST = ("input", "tensors")  # torch's names of a first argument
_SUMS = ("add", "__add__", "__radd__")
_IN_PLACE = ("__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__")
_ACTIVATIONS = ("silu", "relu", "tanh", "sigmoid")
_COPIES = {
    "clone": "cache",
    "cat": "cat",
    "concatenate": "cat",
    "pad": "pad",
    "interpolate": "upsample",
    "repeat": "repeat",
    "repeat_interleave": "repeat",
    "reshape": "permute",
    "contiguous": "contiguous",
    "flatten": "permute",
    "stack": "cat",
}
Args = tuple[Any, ...]
Named = dict[str, Any]


def dispatch(around: Surroundings, func: Callable[..., Any], args: Args, kwargs: Named) -> Any:
    """Note a movement, ask for a convolution, or do it on tensors."""
    for first in _FIRST if not args else ():
        if first in kwargs:
            args, kwargs = (kwargs[first],), {k: v for k, v in kwargs.items() if k != first}
    name = getattr(func, "__name__", "")
    if name in _CONVOLUTIONS + _TRANSPOSED:
        reason = _why_kept(around, args, kwargs)
        if not reason:
            return _convolution(around, name, args, kwargs)
        around.book.kept[around.book.module, reason] += 1
    noted = _noted(around, func, args, kwargs)
    return _on_tensors(around, func, args, kwargs) if noted is None else noted


def _noted(around: Surroundings, func: Callable[..., Any], args: Args, kwargs: Named) -> Any:
    name = getattr(func, "__name__", "")
    if around.rewrites.fuse_ends:
        if name in _SUMS and len(args) == 2 and not kwargs:
            return plus(*args)
        if name in _ACTIVATIONS and len(args) == 1 and kwargs in ({}, {"inplace": False}):
            return activated(args[0], name)
    if not around.rewrites.splice:
        return None
    if name in CONCATENATIONS:
        found = _bound(cat, args, kwargs)
        return None if found is None else _copied(cat(*found.args, **found.kwargs), around)
    return _moved(func, args, kwargs) if name in ON_VIDEOS else None


def _moved(func: Callable[..., Any], args: Args, kwargs: Named) -> Any:
    """A movement of one tensor: a copy of it, or a view."""
    x, handler = args[0], ON_VIDEOS[func.__name__]
    video = x.video() if isinstance(x, LazyTensor) else None
    found = None if video is None else _bound(handler, (video, *args[1:]), kwargs)
    moved = None if found is None else handler(*found.args, **found.kwargs)
    if moved is None or func.__name__ in COPIES:
        return _copied(moved, x.around) if isinstance(x, LazyTensor) else None
    return _views(moved, Seen(x, func, args[1:], kwargs))


def _copied(moved: Any, around: Surroundings) -> LazyTensor | None:
    return LazyTensor(moved, around) if isinstance(moved, Video) else None


def _bound(handler: Callable[..., Any], args: Args, kwargs: Named) -> Any:
    """The arguments, if the handler knows them all."""
    try:
        return _signature(handler).bind(*args, **kwargs)
    except TypeError:
        return None


@lru_cache
def _signature(handler: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(handler)


def _views(moved: Video | tuple[Video, ...], seen: Seen) -> Any:
    around = seen.of.around
    if isinstance(moved, Video):
        return LazyTensor(moved, around, seen)
    return tuple(
        LazyTensor(each, around, replace(seen, part=part)) for part, each in enumerate(moved)
    )


def _why_kept(around: Surroundings, args: Args, kwargs: Named) -> str:
    """Why a convolution called as a function stays torch's; empty if it does not."""
    if around.book.module in around.refused:
        return "filter_fn refused it"
    weight = args[1] if len(args) > 1 else kwargs["weight"]
    return unsupported_type(weight.dtype)


def _convolution(around: Surroundings, name: str, args: Args, kwargs: Named) -> Any:
    """A convolution called as a function."""
    module = around.book.module
    tensors, options = args[1:], {key: real(value) for key, value in kwargs.items()}
    rest = [real(each) for each in tensors]
    if name in _CONVOLUTIONS:
        filters = Filters(*rest, **options)
        found = convolved(args[0], filters) if isinstance(args[0], LazyTensor) else None
        if found is not None:
            return found
    convolve = getattr(functional, name)
    if name in _CONVOLUTIONS:
        policy = around.policy_for(module)
        options["accuracy"] = policy
        note_forward(around.book, module, real(args[0]), filters, policy)
    else:
        note_transposed(around.book, module, real(args[0]), *rest, **options)
    return lazy(convolve(real(args[0]), *rest, **options, backend=around.backend), around)


def _on_tensors(around: Surroundings, func: Callable[..., Any], args: Args, kwargs: Named) -> Any:
    changed = _changed(func, args, kwargs)
    for each in changed:
        settle(each)
    tensors, named = real(args), {key: real(value) for key, value in kwargs.items()}
    result = on_each_frame(func, tensors, named) if around.reproducible else None
    if result is None:
        result = func(*tensors, **named)
    kind = _COPIES.get(getattr(func, "__name__", ""))
    if kind is not None:
        _note_copy(around, kind, tensors[0], result)
    for each in changed:
        if isinstance(each, LazyTensor) and result is each.real():
            return each
    if args and isinstance(args[0], LazyTensor):
        return args[0].as_view(result, Seen(args[0], func, args[1:], kwargs))
    return lazy(result, around)


def _note_copy(around: Surroundings, kind: str, given: Any, result: Any) -> None:
    read = list(given) if isinstance(given, (list, tuple)) else [given]
    tensors = [each for each in read if isinstance(each, torch.Tensor)]
    if not isinstance(result, torch.Tensor) or not tensors:
        return
    if not any(same_memory(each, result) for each in tensors):
        around.book.moved(kind, sum(each.nbytes for each in tensors) + result.nbytes)


def _changed(func: Callable[..., Any], args: Args, kwargs: Named) -> list[Any]:
    """Tensors that the function changes in place."""
    name = getattr(func, "__name__", "")
    in_place = name in _IN_PLACE or (name.endswith("_") and not name.startswith("__"))
    named = kwargs.get("out", ())
    changed = list(named) if isinstance(named, (list, tuple)) else [named]
    if in_place or kwargs.get("inplace"):
        changed.append(args[0])
    return [each for each in changed if isinstance(each, (torch.Tensor, LazyTensor))]

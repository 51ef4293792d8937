"""LazyMode: sees every operator of ATen while a patched model runs, of plain tensors too.

The first that fits decides what becomes of an operator:

1. `movements.RECORDED` has a recorder of this overload: of data movement, of a convolution, or of
   an epilogue. Nothing is computed. A recorder that cannot take this call over returns
   NotImplemented, and the next is asked. Operators that autograd records, or runs, are left to it.
2. It is made of other operators: each of those comes here in its turn.
3. It writes: whoever still has to read what it changes does so first.
4. It is a view of a lazy tensor: the same view of its meta tensor, on the meta device (`cell.py`).
5. Any other is computed by torch, on tensors.

Where torch computes, it gets a lazy tensor's value (`LazyTensor.value`: to look at, maybe in memory
that others use) or its solid (`LazyTensor.solid`: memory made for good, that may be written to, or
be kept by code that is not seen here).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trnconv.pytorch.lazy.attention.index_values import follow
from trnconv.pytorch.lazy.base.bypass import is_passing
from trnconv.pytorch.lazy.base.frame_by_frame import on_each_frame
from trnconv.pytorch.lazy.base.memory import same_memory, storage_of
from trnconv.pytorch.lazy.base.pending_reads import settle_readers, unseen
from trnconv.pytorch.lazy.base.traits import Traits, mapped, parts, tensors_in, traits_of
from trnconv.pytorch.lazy.movements import RECORDED, asked_by_a_model, count_copy
from trnconv.pytorch.lazy.tensors.autograd import autograd_records, is_differentiating
from trnconv.pytorch.lazy.tensors.cell import laid_out_as
from trnconv.pytorch.lazy.tensors.context import PatchContext
from trnconv.pytorch.lazy.tensors.strides import (
    as_torch_lays,
    in_order,
    recorded_as_torch_lays,
)
from trnconv.pytorch.lazy.tensors.tensor import LazyTensor, define_dispatch

Tensor = torch.Tensor
_OURS = (Tensor, LazyTensor, torch.nn.Parameter)  # other subclasses have rules of their own


class LazyMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """On while a patched model runs in this thread."""

    supports_higher_order_operators = True  # else torch.cond is refused

    def __init__(self, context: PatchContext) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.context = context

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Else torch.compile runs a compiled part of a model eagerly, without a word."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note it, or do it on tensors: what is no operator of ATen, or of ours, at once."""
        options = kwargs or {}
        ours = all(kind in _OURS for kind in types)
        if not isinstance(func, torch._ops.OpOverload) or not ours:  # noqa: SLF001
            return func(*_solid(args), **_solid(options))
        if is_passing():
            return func(*_values(args), **_values(options))
        return self._dispatched(func, args, options, lazy=LazyTensor in types)

    def _dispatched(self, func: Any, args: Any, kwargs: Any, *, lazy: bool) -> Any:
        """By the first of the five cases above; `lazy`: whether an argument is."""
        traits = traits_of(func)
        by_autograd = autograd_records((args, kwargs))
        record = None if by_autograd or is_differentiating() else RECORDED.get(traits.overload)
        if record is not None:
            result = record(self.context, func, args, kwargs)
            if result is not NotImplemented:
                return recorded_as_torch_lays(result, func, args, kwargs)
        if traits.composite:
            with self:  # torch has this mode off while it is asked
                return parts(func, *args, **kwargs)
        if traits.written:
            return _changed(func, args, kwargs, traits)
        if lazy and traits.view and isinstance(args[0], LazyTensor):
            return _viewed(func, args, kwargs)
        if by_autograd:
            self.context.stats.left_to_autograd()
            args, kwargs = _solid(args), _solid(kwargs)  # autograd may read them much later
        return self._computed(func, traits, args, kwargs, lazy=lazy)

    def _computed(self, func: Any, traits: Traits, args: Any, kwargs: Any, *, lazy: bool) -> Any:
        """By torch, and counted if it only moved data."""
        if lazy and traits.any_order:
            return self._computed_anywhere(func, traits, args, kwargs)
        if lazy:
            args, kwargs = mapped(LazyTensor, _in_order, (args, kwargs))
        return self._by_torch(func, traits, args, kwargs)

    def _computed_anywhere(self, func: Any, traits: Traits, args: Any, kwargs: Any) -> Any:
        """On elements wherever they lie; the result has the strides of torch's all the same."""
        given_tensors = tensors_in((args, kwargs))
        lazies = [tensor for tensor in given_tensors if isinstance(tensor, LazyTensor)]
        elements = {id(lazy): lazy.elements() for lazy in lazies}
        operands, options = mapped(LazyTensor, lambda lazy: elements[id(lazy)], (args, kwargs))
        result = self._by_torch(func, traits, operands, options)
        if all(laid_out_as(elements[id(lazy)], lazy.view_of.meta) for lazy in lazies):
            return result
        return as_torch_lays(result, func, args, kwargs, self.context)

    def _by_torch(self, func: Any, traits: Traits, args: Any, kwargs: Any) -> Any:
        if self.context.reproducible:
            framed = on_each_frame(traits.name, func, args, kwargs)
            if framed is not None:
                return framed
        result = func(*args, **kwargs)
        count_copy(self.context, traits.name, (args, kwargs), result)
        follow(func, traits, args, kwargs, result)
        return result


def outside(func: Any, args: Any, kwargs: Any) -> Any:
    """An operator on a lazy tensor where no patched model runs: cases 2 to 5 above."""
    if not isinstance(func, torch._ops.OpOverload):  # noqa: SLF001
        return func(*_solid(args), **_solid(kwargs))
    traits = traits_of(func)
    if traits.composite:
        return parts(func, *args, **kwargs)
    if traits.written:
        return _changed(func, args, kwargs, traits)
    if traits.view and isinstance(args[0], LazyTensor):
        return _viewed(func, args, kwargs)
    return func(*_values(args), **_values(kwargs))


def _solid(value: Any) -> Any:
    return mapped(LazyTensor, LazyTensor.solid, value)


def _in_order(lazy: LazyTensor) -> Tensor:
    return in_order(lazy, lambda: not asked_by_a_model())


def _values(value: Any) -> Any:
    return mapped(LazyTensor, LazyTensor.value, value)


def _viewed(func: Any, args: Any, kwargs: Any) -> Any:
    """A view of a lazy tensor: of its meta tensor."""
    x: LazyTensor = args[0]
    with unseen():
        metas = func(x.view_of.meta, *args[1:], **kwargs)
    return mapped(Tensor, lambda meta: LazyTensor(x.view_of.of(meta), x.device), metas)


def _changed(func: Any, args: Any, kwargs: Any, traits: Traits) -> Any:
    """An operator that writes: on tensors, after all that reads what it writes."""
    if traits.reshapes and isinstance(args[0], LazyTensor):
        return _reshaped(func, args, kwargs)
    targets = [args[at] if at < len(args) else kwargs.get(name) for at, name in traits.written]
    lazies = [tensor for tensor in tensors_in((args, kwargs)) if isinstance(tensor, LazyTensor)]
    solids = {id(lazy): lazy.solid() for lazy in lazies}
    written = [solids.get(id(tensor), tensor) for tensor in tensors_in(targets)]
    if written:
        settle_readers(storage_of(tensor) for tensor in written)
    tensors, named = mapped(LazyTensor, lambda each: solids[id(each)], (args, kwargs))
    result = func(*tensors, **named)
    if not traits.counted:
        torch.autograd.graph.increment_version(tuple(tensors_in(targets)))
    for lazy in lazies:
        if lazy.shape != solids[id(lazy)].shape:
            raise RuntimeError(
                f"{func} gave {list(solids[id(lazy)].shape)} elements to a tensor of"
                f" {list(lazy.shape)} while a patched model runs: give it a new tensor."
            )
    back = {id(solids[id(lazy)]): lazy for lazy in lazies}  # add_ returns what it was given
    return mapped(Tensor, lambda each: back.get(id(each), each), result)


def _reshaped(func: Any, args: Any, kwargs: Any) -> Any:
    """unsqueeze_, transpose_, ...: other sizes and strides of the same elements."""
    lazy: LazyTensor = args[0]
    meta = lazy.view_of.meta
    with unseen():
        other = func(meta.detach(), *_solid(args[1:]), **kwargs)
        if not same_memory(other, meta):
            raise RuntimeError(
                f"{func} gives other memory to a tensor while a patched model runs: give the"
                " model's code a new tensor instead."
            )
        func(*args, **kwargs)
    lazy.show(lazy.view_of.of(other))
    return lazy


define_dispatch(outside)  # `tensor.py` is below this file, and cannot import it

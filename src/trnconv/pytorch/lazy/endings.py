"""Convolutions called as functions, and what happens at the end of one: sums and activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from trnconv.pytorch import functional
from trnconv.pytorch.lazy.bypass import passing
from trnconv.pytorch.lazy.context import PatchContext
from trnconv.pytorch.lazy.convolutions import activated, convolved, plus, unsupported_type
from trnconv.pytorch.lazy.filters import Filters
from trnconv.pytorch.lazy.record import note_forward, note_transposed
from trnconv.pytorch.lazy.tensor import LazyTensor
from trnconv.pytorch.lazy.traits import mapped

Tensor = torch.Tensor
Note = Callable[[PatchContext, Any, Any, Any], Any]


def _convolution(around: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
    """aten::convolution: input, weight, bias, stride, padding, dilation, transposed, ..."""
    del func, kwargs
    x, weight, bias, stride, padding, dilation, transposed, added, groups = args
    module = around.book.module
    if module in around.kept:
        return NotImplemented
    reason = "filter_fn refused it" if module in around.refused else unsupported_type(weight.dtype)
    if reason:
        around.book.kept[module, reason] += 1
        return NotImplemented
    weight, bias = mapped(LazyTensor, LazyTensor.value, (weight, bias))
    rank = weight.dim() - 2
    if transposed:
        options = (stride, padding, added, groups, dilation)
        given = value_of(x)
        with passing():
            convolve = getattr(functional, f"conv_transpose{rank}d")
            y = convolve(given, weight, bias, *options, backend=around.backend)
        note_transposed(around.book, module, given, weight, None, *options)
        return y
    filters = Filters(weight, bias, stride, padding, dilation, groups)
    found = convolved(x, filters, around)
    return eager(value_of(x), filters, around) if found is None else found


def eager(x: Tensor, filters: Filters, around: PatchContext) -> Tensor:
    """At once, on a tensor that is no video."""
    policy = around.policy_for(filters.module or around.book.module)
    with passing():
        y: Tensor = getattr(functional, f"conv{filters.rank}d")(
            x,
            filters.weight,
            filters.bias,
            filters.stride,
            filters.padding,
            filters.dilation,
            filters.groups,
            padding_mode=filters.mode,
            accuracy=policy,
            reproducible=around.reproducible,
            backend=around.backend,
        )
    note_forward(around.book, filters.module or around.book.module, x, filters, policy)
    return y


def value_of(x: Any) -> Any:
    """A tensor to look at; anything else as it is."""
    return x.value() if isinstance(x, LazyTensor) else x


def _sum(around: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
    del func
    if not around.rewrites.fuse_ends or kwargs or len(args) != 2:
        return NotImplemented
    found = plus(*args)
    return NotImplemented if found is None else found


def _activation(name: str) -> Note:
    """For an operator without options: it looks at the input only."""

    def note(around: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
        del func, kwargs
        found = activated(args[0], name) if around.rewrites.fuse_ends else None
        return NotImplemented if found is None else found

    return note


# Not gelu and softplus: their operators have options (`approximate`, `beta`), torch computes them.
NOTED_ENDS: dict[str, Note] = {
    "aten::convolution": _convolution,
    "aten::add": _sum,
    **{f"aten::{name}": _activation(name) for name in ("silu", "relu", "tanh", "sigmoid")},
}

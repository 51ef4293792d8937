"""Convolutions called as functions, and their epilogues: sums and activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from trnconv.problem.epilogue import ELU, leaky_relu
from trnconv.pytorch import functional
from trnconv.pytorch.lazy.base.bypass import passing
from trnconv.pytorch.lazy.base.frame_by_frame import on_each_frame
from trnconv.pytorch.lazy.base.traits import mapped, traits_of
from trnconv.pytorch.lazy.convolutions.counts import count_forward, count_transposed
from trnconv.pytorch.lazy.convolutions.filters import Filters
from trnconv.pytorch.lazy.fusion.convolution import (
    activated,
    convolved,
    plus,
    unsupported_type,
)
from trnconv.pytorch.lazy.tensors.context import PatchContext, Recorder
from trnconv.pytorch.lazy.tensors.tensor import LazyTensor

Tensor = torch.Tensor


def _convolution(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
    """aten::convolution: input, weight, bias, stride, padding, dilation, transposed, ..."""
    del func, kwargs
    x, weight, bias, stride, padding, dilation, transposed, added, groups = args
    module = context.stats.module
    if module in context.left_to_torch:
        return NotImplemented
    reason = "filter_fn refused it" if module in context.refused else unsupported_type(weight.dtype)
    if reason:
        context.stats.left_to_torch[module, reason] += 1
        return NotImplemented
    weight, bias = mapped(LazyTensor, LazyTensor.value, (weight, bias))
    rank = weight.dim() - 2
    if transposed:
        options = (stride, padding, added, groups, dilation)
        operand = value_of(x)
        with passing():
            convolve = getattr(functional, f"conv_transpose{rank}d")
            y = convolve(operand, weight, bias, *options, backend=context.backend)
        count_transposed(context.stats, module, operand, weight, None, *options)
        return y
    filters = Filters(weight, bias, stride, padding, dilation, groups)
    result = convolved(x, filters, context)
    return eager(value_of(x), filters, context) if result is None else result


def eager(x: Tensor, filters: Filters, context: PatchContext) -> Tensor:
    """At once, on a tensor that is no video."""
    policy = context.policy_for(filters.module or context.stats.module)
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
            reproducible=context.reproducible,
            backend=context.backend,
        )
    count_forward(context.stats, filters.module or context.stats.module, x, filters, policy)
    return y


def value_of(x: Any) -> Any:
    """A tensor to look at, with any strides; anything else as it is."""
    return x.elements() if isinstance(x, LazyTensor) else x


def _sum(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
    del func
    if not context.rewrites.fuse_epilogues or kwargs or len(args) != 2:
        return NotImplemented
    fused = plus(*args)
    return NotImplemented if fused is None else fused


def _activation(named: Callable[..., str]) -> Recorder:
    """For an operator whose activation is `named` by its options; empty: kernels do not have it."""

    def record(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
        x, *options = args
        name = named(*options, **kwargs) if context.rewrites.fuse_epilogues else ""

        def by_torch(y: Tensor) -> Tensor:
            with passing():
                operands = (y, *options)
                framed = None
                if context.reproducible:
                    framed = on_each_frame(traits_of(func).name, func, operands, kwargs)
                result: Tensor = func(*operands, **kwargs) if framed is None else framed
                return result

        fused = activated(x, name, by_torch) if name else None
        return NotImplemented if fused is None else fused

    return record


def _leaky_relu(negative_slope: float = 0.01) -> str:
    return leaky_relu(float(negative_slope)) if 0 < negative_slope <= 1 else ""


def _elu(alpha: float = 1, scale: float = 1, input_scale: float = 1) -> str:
    return ELU if (alpha, scale, input_scale) == (1, 1, 1) else ""


def _without_options(name: str) -> Callable[[], str]:
    return lambda: name


# Not gelu and softplus: their operators have options (`approximate`, `beta`), torch computes them.
RECORDED_EPILOGUES: dict[str, Recorder] = {
    "aten::convolution": _convolution,
    "aten::add.Tensor": _sum,
    "aten::leaky_relu": _activation(_leaky_relu),
    "aten::elu": _activation(_elu),
    **{
        f"aten::{name}": _activation(_without_options(name))
        for name in ("silu", "relu", "tanh", "sigmoid")
    },
}

"""Derivatives of the three maps: each one's are the other two, so those of any order are made.

An op brings its formula to autograd, torch.compile and torch.export. Under torch.func (grad,
jacrev, vmap of them) torch takes formulas from an autograd.Function only, so the same ones are
there too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from trnconv.pytorch.operators import convolutions

Gradients = tuple[Any, ...]


def convolution(x: torch.Tensor, w: torch.Tensor, *rest: Any) -> torch.Tensor:
    """`convolutions.convolution`, with derivatives everywhere."""
    return _call(convolutions.convolution, _Convolution, x, w, *rest)


def input_gradient(dy: torch.Tensor, w: torch.Tensor, *rest: Any) -> torch.Tensor:
    """`convolutions.input_gradient`, with derivatives everywhere."""
    return _call(convolutions.input_gradient, _InputGradient, dy, w, *rest)


def weight_gradient(x: torch.Tensor, dy: torch.Tensor, *rest: Any) -> torch.Tensor:
    """`convolutions.weight_gradient`, with derivatives everywhere."""
    return _call(convolutions.weight_gradient, _WeightGradient, x, dy, *rest)


fused_convolution = convolutions.fused_convolution  # has none


def _call(op: Any, function: Any, *args: Any) -> torch.Tensor:
    compiling = torch.compiler.is_compiling()
    if not compiling and torch._C._are_functorch_transforms_active():  # noqa: SLF001 (no other way)
        result: torch.Tensor = function.apply(*args)
    else:
        result = op(*args)
    return result


def _save(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    del output
    ctx.save_for_backward(inputs[0], inputs[1])
    ctx.rest = inputs[2:]


def _of_convolution(ctx: Any, dy: torch.Tensor) -> Gradients:
    x, w = ctx.saved_tensors
    rest = ctx.rest
    dx = input_gradient(dy, w, list(x.shape), *rest) if ctx.needs_input_grad[0] else None
    dw = weight_gradient(x, dy, list(w.shape[2:]), *rest) if ctx.needs_input_grad[1] else None
    return (dx, dw, *[None] * len(rest))


def _of_input_gradient(ctx: Any, ddx: torch.Tensor) -> Gradients:
    dy, w = ctx.saved_tensors
    _, *rest = ctx.rest
    d_dy = convolution(ddx, w, *rest) if ctx.needs_input_grad[0] else None
    dw = weight_gradient(ddx, dy, list(w.shape[2:]), *rest) if ctx.needs_input_grad[1] else None
    return (d_dy, dw, None, *[None] * len(rest))


def _of_weight_gradient(ctx: Any, ddw: torch.Tensor) -> Gradients:
    x, dy = ctx.saved_tensors
    _, *rest = ctx.rest
    dx = input_gradient(dy, ddw, list(x.shape), *rest) if ctx.needs_input_grad[0] else None
    d_dy = convolution(x, ddw, *rest) if ctx.needs_input_grad[1] else None
    return (dx, d_dy, None, *[None] * len(rest))


def _one_by_one(function: Callable[..., torch.Tensor]) -> Callable[..., tuple[torch.Tensor, int]]:
    """vmap by a loop: each element is a launch of its own."""

    def mapped(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[torch.Tensor, int]:
        results = [
            function(*[_element(arg, dim, n) for arg, dim in zip(args, in_dims, strict=True)])
            for n in range(info.batch_size)
        ]
        return torch.stack(results), 0

    return mapped


def _element(arg: Any, dim: Any, number: int) -> Any:
    if isinstance(dim, (list, tuple)):
        return [_element(inner, at, number) for inner, at in zip(arg, dim, strict=True)]
    return arg.select(dim, number) if isinstance(dim, int) else arg


def _function(
    op: Any, mapped: Callable[..., torch.Tensor], formula: Callable[..., Gradients]
) -> type[torch.autograd.Function]:
    """The op as an autograd.Function; the op itself gets the same formulas."""
    op.register_autograd(formula, setup_context=_save)
    op.register_vmap(_one_by_one(mapped))
    methods = {
        "forward": staticmethod(op),
        "setup_context": staticmethod(_save),
        "backward": staticmethod(formula),
        "vmap": staticmethod(_one_by_one(mapped)),
    }
    return type(mapped.__name__, (torch.autograd.Function,), methods)


_Convolution = _function(convolutions.convolution, convolution, _of_convolution)
_InputGradient = _function(convolutions.input_gradient, input_gradient, _of_input_gradient)
_WeightGradient = _function(convolutions.weight_gradient, weight_gradient, _of_weight_gradient)
convolutions.fused_op.register_vmap(_one_by_one(convolutions.fused_op))

"""The gradient of a norm with its activation as an op, on a kernel where there is one.

    dx, dgamma, dbeta = norm_gradient_op(x, dy, gamma, beta, words, backend)

Norms over channels or of groups, with SiLU, GELU or nothing behind them, have kernels
(`norm_gradient_launches.py`). All others, and the derivative of the op itself, are torch's
operators (`norm_gradients.py`). Nothing but the norm's inputs is kept.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from trnconv.pytorch.backends.kernel_place import kernel_place
from trnconv.pytorch.operators.norm_call import NormCall, worded_norm
from trnconv.pytorch.operators.norm_derivatives import norm_gradients
from trnconv.pytorch.operators.norm_gradient_launches import gradient_by_kernels

Tensor = torch.Tensor
NORM_GRADIENT_OP: Final = "trnconv::norm_gradient"
_Gradients = tuple[Tensor | None, Tensor | None, Tensor | None, None, None]


@torch.library.custom_op(NORM_GRADIENT_OP, mutates_args=())
def norm_gradient_op(
    x: Tensor, dy: Tensor, gamma: Tensor | None, beta: Tensor | None, words: str, backend: str
) -> tuple[Tensor, Tensor, Tensor]:
    """dx, and the sums [C] that the gradients of gamma and beta are.

    Without gamma its sums are those of a gamma of ones; without beta they are zeros.
    """
    call, place = worded_norm(words), kernel_place(x, backend, "the gradient of a norm")
    gradients = gradient_by_kernels(call, (x, dy), (gamma, beta), place)
    return _by_torch(call, x, dy, gamma, beta) if gradients is None else gradients


@norm_gradient_op.register_fake
def _(x: Tensor, *rest: object) -> tuple[Tensor, Tensor, Tensor]:
    del rest
    sums = [x.new_empty(x.shape[1], dtype=torch.float32) for _ in range(2)]
    return x.new_empty(x.shape), sums[0], sums[1]


def _by_torch(
    call: NormCall, x: Tensor, dy: Tensor, gamma: Tensor | None, beta: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    ones, zeros = (torch.full((x.shape[1],), value, device=x.device) for value in (1.0, 0.0))
    given = (ones if gamma is None else gamma, zeros if beta is None else beta)
    dx, dgamma, dbeta = norm_gradients(call, x, *given, dy)
    assert dgamma is not None
    assert dbeta is not None
    sums = [tensor.reshape(-1).float() for tensor in (dgamma, dbeta)]
    return dx, sums[0], sums[1] if beta is not None else zeros


def _save_all(ctx: Any, inputs: tuple[Any, ...], output: object) -> None:
    del output
    x, dy, gamma, beta, words, _ = inputs
    ctx.save_for_backward(x, dy, gamma, beta)
    ctx.words = words


def _second(ctx: Any, *given: Tensor) -> tuple[Tensor | None, ...]:
    """The derivative of the gradient, by torch's operators; it has derivatives itself."""
    x, dy, gamma, beta = ctx.saved_tensors
    with torch.enable_grad():
        gradients = norm_gradients(worded_norm(ctx.words), x, gamma, beta, dy)
        pairs = [
            (own, other.reshape(own.shape).to(own.dtype))
            for own, other in zip(gradients, given, strict=True)
            if own is not None
        ]
        inputs = [x, dy, gamma, beta]
        asked = [n for n, needed in enumerate(ctx.needs_input_grad[:4]) if needed]
        done = torch.autograd.grad(
            [own for own, _ in pairs],
            [inputs[n] for n in asked],
            [other for _, other in pairs],
            create_graph=True,
            materialize_grads=True,
        )
    by_place = dict(zip(asked, done, strict=True))
    return (*(by_place.get(n) for n in range(len(inputs))), None, None)


norm_gradient_op.register_autograd(_second, setup_context=_save_all)


def save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """What the backward of a norm computes from: x, gamma and beta."""
    del output
    x, gamma, beta, words, backend = inputs
    ctx.save_for_backward(x, gamma, beta)
    ctx.words, ctx.backend = words, backend


def backward(ctx: Any, dy: Tensor) -> _Gradients:
    """Those of x, gamma and beta, as far as they are asked for, in their types."""
    x, gamma, beta = ctx.saved_tensors
    dx, of_gamma, of_beta = norm_gradient_op(x, dy, gamma, beta, ctx.words, ctx.backend)
    needs_x, needs_gamma, needs_beta = ctx.needs_input_grad[:3]
    return (
        dx if needs_x else None,
        _like(gamma, of_gamma) if needs_gamma else None,
        _like(beta, of_beta) if needs_beta else None,
        None,
        None,
    )


def _like(weight: Tensor, total: Tensor) -> Tensor:
    return total.reshape(weight.shape).to(weight.dtype)

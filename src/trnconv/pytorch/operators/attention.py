"""Attention as an op of torch.library, on the kernel of `trnconv.fused_ops.attention`.

    o = attended(q, k, v)    softmax(scale * q k^T) v for q, k, v [N, tokens, head], one kernel

With `frame_tokens`, a token sees its own frame and those before it: blocks that no query sees are
not computed, and there is no mask. It has no gradient, and there is none on the torch backend.
"""

from __future__ import annotations

from typing import Final

import torch

from trnconv.fused_ops.attention.problem import Attention, launch_of
from trnconv.pytorch.backends.arrays import dtype_name
from trnconv.pytorch.backends.kernel_place import kernel_place, runs_kernels

Tensor = torch.Tensor
ATTENTION_OP: Final = "trnconv::attention"


@torch.library.custom_op(ATTENTION_OP, mutates_args=())
def attention_op(
    q: Tensor, k: Tensor, v: Tensor, frame_tokens: int, scale: float, backend: str
) -> Tensor:
    """`frame_tokens` 0: every token sees all."""
    place = kernel_place(q, backend, "attention")
    launch = launch_of(_problem(q, frame_tokens, scale), place.machine, place.cores)
    return place.launch(launch, (q.contiguous(), k.contiguous(), v.contiguous()))


@attention_op.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *rest: object) -> Tensor:
    del k, v, rest
    return q.new_empty(q.shape)


def attended(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    frame_tokens: int | None = None,
    scale: float | None = None,
    backend: str = "auto",
) -> Tensor:
    """Attention of q, k and v, all [N, tokens, head]."""
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    o: Tensor = attention_op(q, k, v, frame_tokens or 0, factor, backend)
    return o


def attention_refusal(q: Tensor, frame_tokens: int | None, backend: str) -> str:
    """Why no kernel does it for q [N, tokens, head], in words; empty if one does."""
    if not runs_kernels(q, backend):
        return "the torch backend has the model's own operators"
    place = kernel_place(q, backend, "attention")
    return _problem(q, frame_tokens or 0, 1.0).refuses(place.machine, place.cores)


def _problem(q: Tensor, frame_tokens: int, scale: float) -> Attention:
    batch, tokens, head = q.shape
    return Attention(batch, tokens, head, frame_tokens or None, dtype_name(q), scale)

"""scaled_dot_product_attention of a patched model, on the kernel of ours where there is one.

q, k and v are of one length; heads are images. A mask is taken if it is known to be causal by frame
(`masks.py`): what it hides is not computed. Anything else stays torch's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from trnconv.pytorch.lazy.attention.deferred_mask import MaskKind
from trnconv.pytorch.lazy.attention.masks import finds_attention, mask_of
from trnconv.pytorch.lazy.tensors.context import PatchContext
from trnconv.pytorch.operators.attention import attended, attention_refusal

Tensor = torch.Tensor
_TYPES = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class AttentionCall:
    """The arguments of torch.nn.functional.scaled_dot_product_attention."""

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether q, k and v are alike, and nothing but a mask hides or drops anything."""
        tensors = (self.query, self.key, self.value)
        alike = len({(tensor.shape, tensor.dtype) for tensor in tensors}) == 1
        known = alike and self.query.dim() > 2 and self.query.dtype in _TYPES
        return known and not (self.dropout_p or self.is_causal or self.enable_gqa)


def attention(context: PatchContext, call: AttentionCall) -> Any:
    """What torch's function gives, by the kernel; NotImplemented: torch does it."""
    query, attn_mask = call.query, call.attn_mask
    if not call.is_plain or not query.numel() or not finds_attention(context):
        return NotImplemented
    frames = None
    if attn_mask is not None:
        mask = mask_of(attn_mask, MaskKind.added) or mask_of(attn_mask, MaskKind.seen)
        frames = None if mask is None else mask.frame_tokens
        if frames is None or not _fits(attn_mask, query):
            return NotImplemented
    q, k, v = (tensor.reshape(-1, *tensor.shape[-2:]) for tensor in (query, call.key, call.value))
    if attention_refusal(q, frames, context.backend):
        return NotImplemented
    return attended(q, k, v, frames, call.scale, context.backend).reshape(query.shape)


def _fits(mask: Tensor, query: Tensor) -> bool:
    """Whether torch would take a mask for all images and heads."""
    images, tokens = query.shape[:-2], query.shape[-2]
    if mask.dim() > query.dim() or tuple(mask.shape[-2:]) != (tokens, tokens):
        return False
    pairs = zip(reversed(mask.shape[:-2]), reversed(images), strict=False)
    return all(own in (1, size) for own, size in pairs)

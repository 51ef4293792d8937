"""Attention over all positions, where every rank holds them all: each does some of the queries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from trnconv.parallel.banded_model import Attended, BandedModel
from trnconv.parallel.bands import Bands
from trnconv.parallel.differentiable import gathered
from trnconv.parallel.grid import BandGrid
from trnconv.pytorch.lazy.fusion.epilogues import value_of

Tensor = torch.Tensor


def attention(spread: BandedModel, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """torch.nn.functional.scaled_dot_product_attention of whole tensors.

    The queries are shared out, and the results gathered: less bytes than the tensors themselves.
    NotImplemented where that cannot be, and every rank computes all of it.
    """
    named = dict(zip(("query", "key", "value", "attn_mask"), args, strict=False), **kwargs)
    query, key, value, mask = (
        value_of(named.pop(name, None)) for name in ("query", "key", "value", "attn_mask")
    )
    ranks, count = spread.comm.ranks, query.shape[-2]
    whole = not spread.shares_attention or named.get("is_causal") or count < ranks
    bands = Bands.shared(count, [1.0] * (1 if whole else ranks))
    start, stop = bands.of(0 if whole else spread.comm.rank)
    heads = query.numel() // (count * query.shape[-1])
    width = query.shape[-1] + value.shape[-1]
    spread.attended[Attended(heads, stop - start, key.shape[-2], width)] += 1
    if whole or ranks == 1:
        return NotImplemented
    some = query.narrow(-2, start, stop - start)
    if mask is not None and mask.shape[-2] != 1:
        mask = mask.narrow(-2, start, stop - start)
    mixed: Tensor = func(some, key, value, attn_mask=mask, **named)
    spread.comm.module = spread.stats.module
    return gathered(mixed, spread.comm, (mixed.dim() - 2,), BandGrid((bands,)))

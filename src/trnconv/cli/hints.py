"""What usually helps against the bound of a layer, in a line."""

from __future__ import annotations

from typing import Final

_HINTS: Final = {
    "tensor": "--accuracy fast, where its error is allowed: it multiplies less; --machine trn3",
    "dma": "fuse what follows the layer (bias, residual, activation), or larger calls",
    "dma issue": "`trnconv tune`: plans with fewer and larger transfers",
    "latency": "more in one call: frames, rows or batch; a short launch waits most of its time",
}
_ELSE: Final = "`trnconv tune` times the best plans; `trnconv trace` shows who waits for whom"


def hint(bound: str) -> str:
    """What usually helps, and the page with more."""
    return f"{_HINTS.get(bound, _ELSE)} (docs/guides/plan-a-layer.md)"

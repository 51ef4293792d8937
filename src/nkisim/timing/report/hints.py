"""What usually helps against a bound, in a line; the page has the reasons and examples."""

from __future__ import annotations

from typing import Final

PAGE: Final = "docs/guides/read-a-timeline.md"
HINTS: Final = {
    "tensor": "fill the array (128 x 128 stationary), bf16 for fp32, fewer passes over moving data",
    "vector": "give work to the Scalar or GpSimd engine; one instruction for two operations; bf16",
    "scalar": "give copies and sums to the Vector engine; order work by activation function",
    "gpsimd": "give work to the Vector engine, which is faster at most of it",
    "dma": "move less: keep tiles in SBUF, fuse neighbours, narrower types, rows of 512 B or more",
    "dma issue": "fewer and larger transfers: several tiles in one dma_copy",
    "latency": "overlap: load the next tile before computing this one, two tiles in turn",
}


def hint(bound: str) -> str:
    """What usually helps; empty for a bound that there is nothing to say about."""
    return HINTS.get(bound, "")

"""How many instructions a compiler makes of ours."""

from __future__ import annotations


def matmul_instructions(dtype: str, *, transposes: bool = False) -> int:
    """Instructions that a compiler makes of one matmul: a weight load and a product (KILN).

    An fp32 matmul is two such pairs (KO: 65,536 for 32,768 of them); one that transposes is not.
    """
    return 4 if dtype == "float32" and not transposes else 2

"""A float32 as a sum of bf16 numbers: what a matmul of bf16 can add exactly."""

from __future__ import annotations

import ml_dtypes
import numpy as np

TERMS = 3  # of 8 bits each


def bf16_terms(value: float) -> tuple[float, ...]:
    """Numbers whose sum is the float32 nearest to `value`, the largest first."""
    terms, left = [], np.float32(value)
    for _ in range(TERMS):
        terms.append(float(np.float32(left).astype(ml_dtypes.bfloat16)))
        left = np.float32(left - np.float32(terms[-1]))
    return tuple(terms)

"""What a single launch can be: limits of NKI and of its compiler."""

from __future__ import annotations

MAX_OFFSET = 2**31 - 1  # elements: NKI's integers have 32 bits
DEFAULT_BUDGET = 20_000  # static instructions of one launch; a graph may have 5 M
# Where even one tile of channels has no shorter program: kernels of thousands of taps.
LONGER_BUDGETS = (4 * DEFAULT_BUDGET, 16 * DEFAULT_BUDGET)

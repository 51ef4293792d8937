"""The rows: every published measurement that is re-created here, by number."""

from __future__ import annotations

import re

from validation.convolution_rows import CONVOLUTION_ROWS
from validation.gemm_rows import GEMM_ROWS
from validation.row import Row
from validation.vector_rows import VECTOR_ROWS


def _order(row: Row) -> tuple[int, str]:
    """Row 9 comes before row 10a."""
    match = re.fullmatch(r"(\d+)([a-z]?)", row.number)
    assert match, f"row number {row.number!r} is a number and at most one letter"
    return int(match[1]), match[2]


ROWS: tuple[Row, ...] = tuple(sorted((*GEMM_ROWS, *CONVOLUTION_ROWS, *VECTOR_ROWS), key=_order))

"""The rows: every published measurement that is re-created here, by number."""

from __future__ import annotations

import re

from validation.autocomp_rows import AUTOCOMP_ROWS
from validation.convolution_rows import CONVOLUTION_ROWS
from validation.gemm_rows import GEMM_ROWS
from validation.row import Row
from validation.tilebench_rows import TILEBENCH_ROWS
from validation.vector_rows import VECTOR_ROWS


def _order(row: Row) -> tuple[str, int, str]:
    """Row 9 comes before row 10a, and both before row V1."""
    match = re.fullmatch(r"(V?)(\d+)([a-z]?)", row.number)
    assert match, f"row number {row.number!r} is a number, after V or not, and at most one letter"
    return match[1], int(match[2]), match[3]


_ROWS = (
    *GEMM_ROWS,
    *CONVOLUTION_ROWS,
    *VECTOR_ROWS,
    *AUTOCOMP_ROWS,
    *TILEBENCH_ROWS,
)
ROWS: tuple[Row, ...] = tuple(sorted(_ROWS, key=_order))

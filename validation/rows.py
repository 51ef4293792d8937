"""The rows: every published measurement that is re-created here, by number."""

from __future__ import annotations

import itertools
import re

from validation.autocomp_rows import AUTOCOMP_ROWS
from validation.convolution_rows import CONVOLUTION_ROWS
from validation.gemm_rows import GEMM_ROWS
from validation.nkibench_rows import NKIBENCH_ROWS
from validation.probe_rows import PROBE_ROWS
from validation.rate_rows import RATE_ROWS
from validation.row import Row
from validation.sequence_rows import SEQUENCE_ROWS
from validation.tilebench_rows import TILEBENCH_ROWS
from validation.vector_rows import VECTOR_ROWS

FAMILIES = (
    *(GEMM_ROWS, CONVOLUTION_ROWS, VECTOR_ROWS, SEQUENCE_ROWS, NKIBENCH_ROWS),
    *(RATE_ROWS, PROBE_ROWS, AUTOCOMP_ROWS, TILEBENCH_ROWS),
)


def _order(row: Row) -> tuple[str, int, str]:
    """Row 9 comes before row 10a, and all of these before row V1."""
    match = re.fullmatch(r"(V?)(\d+)([a-z]?)", row.number)
    assert match, f"row number {row.number!r} is a number, after a V at most, and a letter at most"
    return match[1], int(match[2]), match[3]


ROWS: tuple[Row, ...] = tuple(sorted(itertools.chain(*FAMILIES), key=_order))

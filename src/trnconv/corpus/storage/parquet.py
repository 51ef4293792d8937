"""Parquet files that are in memory, read here and now."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from trnconv.corpus.storage.needs import needed_for


def parquet_table(data: bytes, columns: Sequence[str] | None = None) -> Any:
    """Columns of such a file; a ValueError if it is none, or lacks one of them.

    pyarrow's `read_table` has threads that may let go of the file only when the interpreter is
    gone, which then aborts; this has none that do.
    """
    with needed_for("reading Parquet files"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(io.BytesIO(data)).read(columns, use_threads=False)
        return table if columns is None else table.select(columns)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise ValueError(str(error)) from error

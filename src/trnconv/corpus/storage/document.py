"""JSON that somebody else may have written: read into a record, or None, never a traceback."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from trnconv.records import RecordError, from_json, to_json

Record = TypeVar("Record")
LARGEST = 1 << 28  # bytes; no document of ours comes near


def as_document(record: Any) -> bytes:
    """A record as a file; equal records give equal bytes."""
    return (json.dumps(to_json(record), indent=1, sort_keys=True) + "\n").encode()


def read_json(data: bytes | None) -> Any:
    """What a JSON file says; None if it is absent, no JSON, or nested beyond reason."""
    if data is None or len(data) > LARGEST:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def read_document(kind: type[Record], data: bytes | None) -> Record | None:
    """The record of such a file; None if it is absent, cut, or something else."""
    try:
        return from_json(kind, read_json(data))
    except (RecordError, RecursionError):
        return None

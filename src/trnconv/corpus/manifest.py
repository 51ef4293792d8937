"""The manifest: a row for every window that was encoded and every clip that was set aside.

A Parquet file a segment of the plan, and one small document over all. Both depend on the corpus and
the settings, not on the run.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trnconv.corpus.addresses import readable
from trnconv.corpus.document import read_json
from trnconv.corpus.needs import needed_for
from trnconv.corpus.records import BadClip, EncodedWindow, ShardRecord
from trnconv.errors import TrnconvError

MANIFEST = "manifest.json"
FORMAT = 2
_TOTALS = b"trnconv"
_TEXT = ("id", "key", "url", "shard", "file", "bucket", "sha256", "source_sha256")
_NUMBERS = ("height", "width", "frames", "window", "source_bytes")
_SECONDS = ("start_s", "fps")
_SAID = ("caption", "metadata", "reason")


@dataclass(frozen=True)
class SegmentTotals:
    """Sums over a segment, and the sizes its files must have."""

    clips: int
    windows: int
    set_aside: int
    files: Mapping[str, int]  # bytes by name
    buckets: Mapping[str, int]  # windows by bucket
    weights_sha256: str | None


def manifest_name(segment: str) -> str:
    """The file of a segment's rows."""
    return f"manifest/{segment}.parquet"


def as_parquet(records: Sequence[ShardRecord]) -> bytes:
    """The rows of a segment's records, in the order of shards and ids."""
    with needed_for("writing a manifest"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    rows = [row for record in records for row in _rows(record)]
    schema = pa.schema(
        [(name, pa.string()) for name in _TEXT]
        + [(name, pa.int64()) for name in _NUMBERS]
        + [(name, pa.float64()) for name in _SECONDS]
        + [("shape", pa.list_(pa.int32()))]
        + [(name, pa.string()) for name in _SAID],
        metadata={_TOTALS: json.dumps(vars(_totals(records)), sort_keys=True).encode()},
    )
    data = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), data, compression="zstd")
    return data.getvalue()


def read_totals(data: bytes | None) -> SegmentTotals | None:
    """What a segment's file says of itself; None if it is cut or something else."""
    with needed_for("reading a manifest"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    if data is None:
        return None
    try:
        said = read_json((pq.read_schema(io.BytesIO(data)).metadata or {}).get(_TOTALS))
        totals = SegmentTotals(**said)
        sums = (totals.clips, totals.windows, totals.set_aside, *totals.files.values())
    except (pa.ArrowException, OSError, TypeError, AttributeError):
        return None
    return totals if all(type(number) is int for number in sums) else None


def read_rows(data: bytes, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Rows of a segment's file; a TrnconvError if it is none."""
    with needed_for("reading a manifest"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    try:
        rows: list[dict[str, Any]] = pq.read_table(
            io.BytesIO(data), columns=None if columns is None else list(columns)
        ).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise TrnconvError(f"a file of the manifest cannot be read: {error}.") from error
    return rows


def overview(
    settings: Mapping[str, Any], tensors: Sequence[str], segments: Mapping[str, SegmentTotals]
) -> dict[str, Any]:
    """All segments in one document; a TrnconvError if they are of different weights."""
    totals = list(segments.values())
    weights = sorted({sums.weights_sha256 for sums in totals if sums.weights_sha256})
    if len(weights) > 1:
        raise TrnconvError(
            f"the shards were encoded with {len(weights)} different sets of weights"
            f" ({', '.join(digest[:12] for digest in weights)}...): encode into a new folder."
        )
    buckets: dict[str, int] = {}
    for sums in totals:
        for bucket, count in sums.buckets.items():
            buckets[bucket] = buckets.get(bucket, 0) + count
    return {
        "format": FORMAT,
        "settings": dict(settings),
        "tensors": list(tensors),
        "weights_sha256": weights[0] if weights else None,
        "clips": sum(sums.clips for sums in totals),
        "windows": sum(sums.windows for sums in totals),
        "set_aside": sum(sums.set_aside for sums in totals),
        "bytes": sum(sum(sums.files.values()) for sums in totals),
        "files": sum(len(sums.files) for sums in totals),
        "buckets": dict(sorted(buckets.items())),
        "segments": [manifest_name(segment) for segment in sorted(segments)],
    }


def _totals(records: Sequence[ShardRecord]) -> SegmentTotals:
    buckets: dict[str, int] = {}
    for record in records:
        for clip in record.clips:
            buckets[clip.bucket] = buckets.get(clip.bucket, 0) + 1
    weights = {record.weights_sha256 for record in records}
    if len(weights) > 1:
        raise TrnconvError(
            f"the shards of a segment were encoded with {len(weights)} different sets of weights:"
            " encode into a new folder."
        )
    return SegmentTotals(
        clips=sum(len({clip.id for clip in record.clips}) for record in records),
        windows=sum(len(record.clips) for record in records),
        set_aside=sum(len(record.bad) for record in records),
        files={file.name: file.file_bytes for record in records for file in record.files},
        buckets=buckets,
        weights_sha256=next(iter(weights), None),
    )


def _rows(record: ShardRecord) -> Iterable[dict[str, Any]]:
    ended: list[EncodedWindow | BadClip] = [*record.clips, *record.bad]
    for clip in sorted(ended, key=lambda one: (one.id, getattr(one, "window", 0))):
        row = {**vars(clip), "shard": record.shard, "url": readable(clip.url)}
        note = read_json(row.pop("note").encode()) or {}
        caption = note.pop("caption", None)
        row["caption"] = caption if caption is None else str(caption)
        row["metadata"] = json.dumps(note, sort_keys=True) if note else None
        if isinstance(clip, EncodedWindow):
            sizes = map(int, clip.bucket.split("x"))
            row.update(zip(("height", "width", "frames"), sizes, strict=True))
        yield row

"""The manifest: a row for every window that was encoded and every clip that was set aside.

A segment of the plan has a Parquet file, and a document of its sums, created after it; one document
is over all. They depend on the corpus and the settings, not on the run.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any

from trnconv.corpus.shards.records import BadClip, EncodedWindow, ShardRecord
from trnconv.corpus.storage.addresses import readable
from trnconv.corpus.storage.document import read_json
from trnconv.corpus.storage.needs import needed_for
from trnconv.corpus.storage.parquet import parquet_table
from trnconv.corpus.storage.versions import Versions
from trnconv.corpus.videos.reasons import kind_of
from trnconv.errors import TrnconvError

MANIFEST = "manifest.json"
FORMAT = 2
_TEXT = ("id", "key", "url", "shard", "file", "bucket", "sha256", "source_sha256")
_NUMBERS = ("height", "width", "frames", "window", "source_bytes")
_SECONDS = ("start_s", "fps")
_SAID = ("caption", "metadata", "reason")


@dataclass(frozen=True)
class FileSize:
    """A file of latents, and how large it must be."""

    name: str
    size_bytes: int


@dataclass(frozen=True)
class BucketCount:
    """Windows of a bucket."""

    bucket: str
    windows: int


@dataclass(frozen=True)
class SetAsideCount:
    """Clips that were set aside for reasons of a kind."""

    kind: str
    clips: int


@dataclass(frozen=True)
class SegmentTotals:
    """Sums over a segment, and the sizes its files must have. Where it is, the segment is done."""

    clips: int
    set_aside: int
    rows_bytes: int  # of its Parquet file
    files: tuple[FileSize, ...]
    buckets: tuple[BucketCount, ...]
    weights_sha256: str
    set_aside_by: tuple[SetAsideCount, ...] = ()
    versions: tuple[Versions, ...] = ()  # that its shards were encoded with
    rows_sha256: str = ""  # of its Parquet file

    @property
    def windows(self) -> int:
        """That were encoded."""
        return sum(count.windows for count in self.buckets)


def manifest_name(segment: str) -> str:
    """The file of a segment's rows."""
    return f"manifest/{segment}.parquet"


def totals_name(segment: str) -> str:
    """The document of a segment's sums."""
    return f"manifest/{segment}.json"


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
        + [(name, pa.string()) for name in _SAID]
    )
    data = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), data, compression="zstd")
    return data.getvalue()


def read_rows(data: bytes, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Rows of a segment's file; a TrnconvError if it is none."""
    try:
        rows: list[dict[str, Any]] = parquet_table(data, columns).to_pylist()
    except ValueError as error:
        raise TrnconvError(f"a file of the manifest cannot be read: {error}.") from error
    return rows


def totals_of(records: Sequence[ShardRecord], rows: bytes) -> SegmentTotals:
    """The sums of a segment's records and its file of rows; one set of weights, or an error."""
    weights = {record.weights_sha256 for record in records}
    if len(weights) != 1:
        raise _several(weights)
    windows = Counter(clip.bucket for record in records for clip in record.clips)
    kinds = Counter(kind_of(clip.reason) for record in records for clip in record.bad)
    return SegmentTotals(
        clips=sum(len({clip.id for clip in record.clips}) for record in records),
        set_aside=sum(len(record.bad) for record in records),
        rows_bytes=len(rows),
        rows_sha256=hashlib.sha256(rows).hexdigest(),
        files=tuple(
            FileSize(file.name, file.file_bytes) for record in records for file in record.files
        ),
        buckets=tuple(BucketCount(bucket, count) for bucket, count in sorted(windows.items())),
        weights_sha256=weights.pop(),
        set_aside_by=tuple(SetAsideCount(kind, count) for kind, count in sorted(kinds.items())),
        versions=_distinct(records),
    )


def overview(
    settings: Mapping[str, Any], tensors: Sequence[str], segments: Mapping[str, SegmentTotals]
) -> dict[str, Any]:
    """All segments in one document; a TrnconvError if they are of different weights."""
    totals = list(segments.values())
    weights = {sums.weights_sha256 for sums in totals}
    if len(weights) > 1:
        raise _several(weights)
    buckets: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for sums in totals:
        kinds.update({count.kind: count.clips for count in sums.set_aside_by})
        buckets.update({count.bucket: count.windows for count in sums.buckets})
    return {
        "format": FORMAT,
        "settings": dict(settings),
        "tensors": list(tensors),
        "weights_sha256": next(iter(weights), None),
        "versions": [asdict(versions) for versions in _distinct(totals)],
        "clips": sum(sums.clips for sums in totals),
        "windows": sum(sums.windows for sums in totals),
        "set_aside": sum(sums.set_aside for sums in totals),
        "set_aside_by": dict(sorted(kinds.items())),
        "bytes": sum(file.size_bytes for sums in totals for file in sums.files),
        "files": sum(len(sums.files) for sums in totals),
        "buckets": dict(sorted(buckets.items())),
        "segments": [manifest_name(segment) for segment in sorted(segments)],
    }


def _distinct(parts: Sequence[ShardRecord] | Sequence[SegmentTotals]) -> tuple[Versions, ...]:
    """The versions of all parts, each once."""
    found = {versions for part in parts for versions in part.versions}
    return tuple(sorted(found, key=astuple))


def _several(weights: set[str]) -> TrnconvError:
    return TrnconvError(
        f"the shards were encoded with {len(weights)} different sets of weights"
        f" ({', '.join(digest[:12] for digest in sorted(weights))}...): encode into a new folder."
    )


def _rows(record: ShardRecord) -> Iterable[dict[str, Any]]:
    ended: list[EncodedWindow | BadClip] = [*record.clips, *record.bad]
    for clip in sorted(ended, key=lambda outcome: (outcome.id, getattr(outcome, "window", 0))):
        row = {**vars(clip), "shard": record.shard, "url": readable(clip.url)}
        note = read_json(row.pop("note").encode()) or {}
        caption = note.pop("caption", None)
        row["caption"] = caption if caption is None else str(caption)
        row["metadata"] = json.dumps(note, sort_keys=True) if note else None
        if isinstance(clip, EncodedWindow):
            sizes = map(int, clip.bucket.split("x"))
            row.update(zip(("height", "width", "frames"), sizes, strict=True))
        yield row

"""What of a segment is done, known from listings; and its end, when all of it is.

A shard is done when its record is there. Records and files are compared when a segment is closed,
and files again whenever a run begins: what is damaged by then is done again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from trnconv.corpus.shards.manifest import (
    SegmentTotals,
    as_parquet,
    manifest_name,
    totals_name,
    totals_of,
)
from trnconv.corpus.shards.plan import CorpusPlan, Segment, read_segment
from trnconv.corpus.shards.records import ShardRecord
from trnconv.corpus.shards.shard import SHARDS_PER_SEGMENT, Shard, shard_name
from trnconv.corpus.storage.document import as_document, read_document
from trnconv.corpus.storage.store import Folder

REQUESTS = 16  # at a time: a store answers each in tens of milliseconds
_Item = TypeVar("_Item")


def record_name(shard: Shard) -> str:
    """The file of a shard's record."""
    return f"records/{shard.key}.json"


def open_segments(plan: CorpusPlan) -> list[Segment]:
    """The segments that are not closed: one listing."""
    closed = plan.folder.sizes("manifest")
    return [segment for segment in plan.segments if f"{segment.name}.json" not in closed]


def recorded(folder: Folder, segment: Segment) -> int:
    """How many shards of a segment have a record: one listing."""
    return len(folder.sizes(f"records/{segment.name}"))


def open_shards(folder: Folder, segment: Segment) -> list[Shard]:
    """The shards of a segment that are not done: one listing."""
    done = folder.sizes(f"records/{segment.name}")
    first = segment.number * SHARDS_PER_SEGMENT
    left = {
        number
        for number in range(first, first + segment.shards)
        if f"{shard_name(number)}.json" not in done
    }
    return (
        [shard for shard in read_segment(folder, segment) if shard.number in left] if left else []
    )


def reopen_damaged(plan: CorpusPlan) -> list[Segment]:
    """Closed segments that have lost a file, or whose manifest is cut: they are open now."""
    manifest = plan.folder.sizes("manifest")
    looked = [segment for segment in plan.segments if f"{segment.name}.json" in manifest]
    with ThreadPoolExecutor(REQUESTS) as threads:
        sound = threads.map(lambda segment: _is_sound(plan.folder, segment, manifest), looked)
        damaged = [segment for segment, whole in zip(looked, sound, strict=True) if not whole]
    for segment in damaged:
        plan.folder.remove(totals_name(segment.name))
        plan.folder.remove(manifest_name(segment.name))
    return damaged


def close(folder: Folder, segment: Segment) -> bool:
    """Write a segment's manifest, if all its records and files are sound; the others are removed.

    False: something is to be done again.
    """
    shards = read_segment(folder, segment)
    with ThreadPoolExecutor(REQUESTS) as threads:
        data = threads.map(lambda shard: folder.read(record_name(shard)), shards)
        records = [ShardRecord.from_json(document) for document in data]
    sizes = folder.sizes(f"shards/{segment.name}")
    sound = []
    for shard, record in zip(shards, records, strict=True):
        if record is not None and record.covers(shard) and _has_files(record, sizes):
            sound.append(record)
        else:
            folder.remove(record_name(shard))
    if len(sound) < len(shards):
        return False
    rows = as_parquet(sound)
    folder.write(manifest_name(segment.name), rows)
    folder.create(totals_name(segment.name), as_document(totals_of(sound, rows)))
    _tidy(folder, segment, sound, sizes)
    return True


def all_totals(plan: CorpusPlan) -> dict[str, SegmentTotals] | None:
    """The sums of every segment by name; None while one is open."""
    with ThreadPoolExecutor(REQUESTS) as threads:
        names = [segment.name for segment in plan.segments]
        read = threads.map(lambda name: _totals(plan.folder, name), names)
        totals = dict(zip(names, read, strict=True))
    complete = {name: sums for name, sums in totals.items() if sums is not None}
    return complete if len(complete) == len(totals) else None


def rotated(items: Sequence[_Item], start: float) -> Iterator[_Item]:
    """All items, from a share of the way on: ranks that begin apart seldom meet."""
    first = int(start * len(items))
    yield from items[first:]
    yield from items[:first]


def _totals(folder: Folder, segment: str) -> SegmentTotals | None:
    return read_document(SegmentTotals, folder.read(totals_name(segment)))


def _is_sound(folder: Folder, segment: Segment, manifest: dict[str, int]) -> bool:
    totals = _totals(folder, segment.name)
    if totals is None or manifest.get(f"{segment.name}.parquet") != totals.rows_bytes:
        return False
    sizes = folder.sizes(f"shards/{segment.name}")
    return recorded(folder, segment) >= segment.shards and all(
        sizes.get(file.name.rpartition("/")[2]) == file.size_bytes for file in totals.files
    )


def _has_files(record: ShardRecord, sizes: dict[str, int]) -> bool:
    return all(sizes.get(file.name.rpartition("/")[2]) == file.file_bytes for file in record.files)


def _tidy(
    folder: Folder, segment: Segment, records: list[ShardRecord], sizes: dict[str, int]
) -> None:
    """Remove files that no record names, and halves of files whose writers have ended."""
    named = {file.name.rpartition("/")[2] for record in records for file in record.files}
    for name in sizes.keys() - named:
        folder.remove(f"shards/{segment.name}/{name}")
    for name in folder.sizes(f"again/{segment.name}"):
        folder.remove(f"again/{segment.name}/{name}")
    for kind in ("shards", "records", "metrics", "leases", "again"):
        folder.sweep(f"{kind}/{segment.name}")

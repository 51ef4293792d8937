"""Every byte that was written, read again and compared: what has rotted is taken away.

A run finds files that are gone or cut by their sizes. Bits that have flipped show only here: a file
of latents has its SHA-256 in its shard's record, and the rows of a segment theirs beside its sums.
Records have theirs nowhere, but rows were made of them. (A file of the plan has it in its name, and
is compared whenever it is read.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from trnconv.corpus.shards.again import reopen
from trnconv.corpus.shards.completion import REQUESTS, record_name
from trnconv.corpus.shards.manifest import (
    SegmentTotals,
    as_parquet,
    manifest_name,
    read_rows,
    totals_name,
)
from trnconv.corpus.shards.plan import CorpusPlan, Segment, read_segment
from trnconv.corpus.shards.records import LatentFile, ShardRecord
from trnconv.corpus.shards.shard import Shard
from trnconv.corpus.storage.document import read_document
from trnconv.corpus.storage.store import Folder

_PART_BYTES = 1 << 25  # of a file, in memory of each of `REQUESTS` threads


@dataclass(frozen=True)
class Verified:
    """What was read, and what of it is not what was written."""

    files: int = 0
    file_bytes: int = 0
    damaged: tuple[str, ...] = ()  # names of files of latents, records and rows

    def __add__(self, other: Verified) -> Verified:
        return Verified(
            self.files + other.files,
            self.file_bytes + other.file_bytes,
            self.damaged + other.damaged,
        )


def remove_damaged(plan: CorpusPlan) -> Verified:
    """Read all that is there; what is damaged is removed, and open again."""
    return sum((_of_segment(plan.folder, segment) for segment in plan.segments), Verified())


def _of_segment(folder: Folder, segment: Segment) -> Verified:
    done = folder.sizes(f"records/{segment.name}")
    shards = [shard for shard in read_segment(folder, segment) if f"{shard.name}.json" in done]
    with ThreadPoolExecutor(REQUESTS) as threads:
        data = threads.map(lambda shard: folder.read(record_name(shard)), shards)
        records = [ShardRecord.from_json(document) for document in data]
        readable = [record for record in records if record is not None]
        rows, differing = _rows(folder, segment, readable)
        sound = [None if record in differing else record for record in records]
        sizes = folder.sizes(f"shards/{segment.name}")
        verified = sum(threads.map(partial(_of_shard, folder, sizes), shards, sound), rows)
    if verified.damaged:
        folder.remove(totals_name(segment.name))
        folder.remove(manifest_name(segment.name))
    return verified


def _rows(
    folder: Folder, segment: Segment, records: Sequence[ShardRecord]
) -> tuple[Verified, list[ShardRecord]]:
    """A closed segment's rows against their checksum; and records of which they were not made."""
    name = manifest_name(segment.name)
    totals = read_document(SegmentTotals, folder.read(totals_name(segment.name)))
    if totals is None:
        return Verified(), []
    data = folder.read(name) or b""
    if hashlib.sha256(data).hexdigest() != totals.rows_sha256:
        return Verified(1, len(data), (name,)), []
    if as_parquet(records) == data:
        return Verified(1, len(data)), []
    rows = read_rows(data)  # the same rows may be other bytes with another pyarrow
    differing = [
        record
        for record in records
        if read_rows(as_parquet([record])) != [row for row in rows if row["shard"] == record.shard]
    ]
    return Verified(1, len(data)), differing


def _of_shard(
    folder: Folder, sizes: Mapping[str, int], shard: Shard, record: ShardRecord | None
) -> Verified:
    """A record and its files. What is right of the shard stays for who encodes the rest again."""
    name = record_name(shard)
    if record is None or not record.covers(shard):
        folder.remove(name)
        return Verified(1, 0, (name,))
    rotten = {file.name for file in record.files if not _is_sound(folder, sizes, file)}
    for file in rotten:
        folder.remove(file)
    if rotten:
        clips = dict.fromkeys(row.id for row in record.clips if row.file in rotten)
        reopen(folder, shard.key, record, tuple(clips))
    read = sum(file.file_bytes for file in record.files)
    return Verified(1 + len(record.files), read, tuple(sorted(rotten)))


def _is_sound(folder: Folder, sizes: Mapping[str, int], file: LatentFile) -> bool:
    """Whether a file is what was written. A store that does not answer is an error."""
    if sizes.get(file.name.rpartition("/")[2]) != file.file_bytes:
        return False
    digest = hashlib.sha256()
    for start in range(0, file.file_bytes, _PART_BYTES):
        end = min(start + _PART_BYTES, file.file_bytes)
        digest.update(folder.read_range(file.name, start, end) or b"")
    return digest.hexdigest() == file.sha256

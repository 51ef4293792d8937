"""Shards of which some clips are encoded again: what was right of them stays, byte for byte.

`again/<shard>.json` has the record that a shard had, and names the clips that are tried again. It
is written before the record is removed, so the shard is done or open, whoever dies in between.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from trnconv.corpus.shards.completion import REQUESTS
from trnconv.corpus.shards.manifest import SegmentTotals, manifest_name, read_rows, totals_name
from trnconv.corpus.shards.plan import CorpusPlan, Segment
from trnconv.corpus.shards.records import ShardRecord
from trnconv.corpus.shards.shard import Shard
from trnconv.corpus.storage.document import as_document, read_document
from trnconv.corpus.storage.store import Folder
from trnconv.corpus.videos.reasons import LATER, is_for_a_later_run, is_named
from trnconv.errors import TrnconvError


@dataclass(frozen=True)
class Again:
    """A shard that was done, and the clips of it that are not any more."""

    record: ShardRecord
    clips: tuple[str, ...]


@dataclass(frozen=True)
class Retry:
    """Which reasons are tried again: some by themselves, others where they are named."""

    words: tuple[str, ...]
    most_runs: int  # that may run out of time over a clip

    def takes(self, reason: str) -> bool:
        """Whether a clip that was set aside for this is encoded again."""
        return is_for_a_later_run(reason, self.most_runs) or is_named(reason, self.words)


def again_name(key: str) -> str:
    """The file of a shard that is encoded again in part."""
    return f"again/{key}.json"


def read_again(folder: Folder, shard: Shard) -> Again | None:
    """What a shard was before, if some of its clips are encoded again."""
    again = read_document(Again, folder.read(again_name(shard.key)))
    names = {clip.id for clip in shard.clips}
    return again if again is not None and names.intersection(again.clips) else None


def reopen(folder: Folder, key: str, record: ShardRecord, clips: tuple[str, ...]) -> None:
    """Have these clips of a shard encoded again."""
    folder.write(again_name(key), as_document(Again(record, clips)))
    folder.remove(f"records/{key}.json")


def reopen_set_aside(plan: CorpusPlan, retry: Retry) -> int:
    """Take back the ends of clips that are tried again; how many."""
    folder, segments = plan.folder, plan.segments
    with ThreadPoolExecutor(REQUESTS) as threads:
        names = threads.map(lambda segment: _candidates(folder, segment, retry), segments)
        places = [
            (segment.name, name)
            for segment, of_segment in zip(segments, names, strict=True)
            for name in sorted(of_segment)
        ]
        counts = list(threads.map(lambda place: _reopen(folder, place, retry), places))
    for segment in {place[0] for place, count in zip(places, counts, strict=True) if count}:
        folder.remove(totals_name(segment))
        folder.remove(manifest_name(segment))
    return sum(counts)


def _candidates(folder: Folder, segment: Segment, retry: Retry) -> set[str]:
    """Records to be read: of a closed segment none, unless its sums have such clips."""
    totals = read_document(SegmentTotals, folder.read(totals_name(segment.name)))
    if totals is None:
        return set(folder.sizes(f"records/{segment.name}"))
    if retry.words or any(count.kind in LATER for count in totals.set_aside_by):
        return _chosen(folder, segment, retry)
    return set()


def _chosen(folder: Folder, segment: Segment, retry: Retry) -> set[str]:
    """Records of a closed segment with such a clip; all of them if its rows cannot be read."""
    try:
        rows = read_rows(folder.read(manifest_name(segment.name)) or b"", ["shard", "reason"])
    except TrnconvError:
        return set(folder.sizes(f"records/{segment.name}"))
    chosen = (row["shard"] for row in rows if row["reason"] and retry.takes(row["reason"]))
    return {f"{name}.json" for name in chosen}


def _reopen(folder: Folder, place: tuple[str, str], retry: Retry) -> int:
    """Open a shard again, if it has such clips; how many."""
    segment, name = place
    record = ShardRecord.from_json(folder.read(f"records/{segment}/{name}"))
    if record is None:
        return 0
    clips = tuple(clip.id for clip in record.bad if retry.takes(clip.reason))
    if clips:
        reopen(folder, f"{segment}/{record.shard}", record, clips)
    return len(clips)

"""The plan: which clips make which shard. Segments never change, and generations seal them.

A segment is a Parquet file of at most 1000 shards. A generation is a small document that names its
segments, and is created once, after them: what no generation names is no part of the plan. A corpus
that grows gets another generation of the clips that are new. No plan is ever held whole.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from trnconv.corpus.shards.shard import SHARDS_PER_SEGMENT, Shard, segment_name
from trnconv.corpus.storage.document import as_document, read_document
from trnconv.corpus.storage.parquet import parquet_table
from trnconv.corpus.storage.store import Folder
from trnconv.corpus.videos.clip_order import sorted_clips
from trnconv.corpus.videos.clips import Clip, two_videos
from trnconv.errors import TrnconvError

_SHOWN = 3  # addresses of changed videos in words


@dataclass(frozen=True)
class Segment:
    """One file of the plan."""

    number: int
    file: str
    clips: int
    shards: int
    parts: tuple[int, int]  # of ids, first and last: what to look at for a known clip

    @property
    def name(self) -> str:
        """Its number, as folders of its shards are called."""
        return segment_name(self.number)


@dataclass(frozen=True)
class Generation:
    """The segments of one look at the corpus."""

    number: int
    clips_per_shard: int
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class CorpusPlan:
    """All generations that are sealed."""

    folder: Folder
    generations: tuple[Generation, ...]

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Of all generations, in order."""
        return tuple(segment for generation in self.generations for segment in generation.segments)

    @property
    def clips(self) -> int:
        """How many are planned."""
        return sum(segment.clips for segment in self.segments)

    @property
    def shards(self) -> int:
        """How many there are."""
        return sum(segment.shards for segment in self.segments)


@dataclass
class Changed:
    """Videos that were replaced under their names since they were planned."""

    count: int = 0
    some: tuple[str, ...] = ()

    def add(self, urls: list[str]) -> None:
        """Count them, and keep a few."""
        self.count += len(urls)
        self.some = (*self.some, *urls)[:_SHOWN]


def read_plan(folder: Folder) -> CorpusPlan:
    """The plan as it is sealed now; a TrnconvError if a generation cannot be read."""
    names = sorted(name for name in folder.sizes("plan") if name.endswith(".json"))
    return CorpusPlan(folder, tuple(_generation(folder, f"plan/{name}") for name in names))


def extend(
    plan: CorpusPlan, clips: Iterable[Clip], clips_per_shard: int
) -> tuple[CorpusPlan, Changed]:
    """Seal a generation of the clips that are not planned yet, if there are any."""
    changed = Changed()
    written: list[Segment] = []
    first = max((segment.number for segment in plan.segments), default=-1) + 1
    for table in _blocks(plan, clips, clips_per_shard * SHARDS_PER_SEGMENT, changed):
        written.append(_write(plan.folder, first + len(written), table, clips_per_shard))
    if written:
        number = len(plan.generations)
        sealed = Generation(number, clips_per_shard, tuple(written))
        if not plan.folder.create(f"plan/{number:05}.json", as_document(sealed)):
            raise TrnconvError(
                f"{plan.folder.url}: another process has planned at the same time. Run the same"
                " command again."
            )
    return read_plan(plan.folder), changed


@lru_cache(maxsize=4)
def read_segment(folder: Folder, segment: Segment) -> tuple[Shard, ...]:
    """The shards of a segment."""
    table = _table(folder, segment, ["shard", "id", "url", "version", "note"])
    clips: dict[int, list[Clip]] = {}
    for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
        shard, name, url, version, note = row
        clip = Clip(name, url.decode("utf-8", "surrogateescape"), version, note)
        clips.setdefault(shard, []).append(clip)
    return tuple(Shard(number, tuple(of)) for number, of in sorted(clips.items()))


def _generation(folder: Folder, name: str) -> Generation:
    read = read_document(Generation, folder.read(name))
    if read is None:
        raise _broken(folder, name)
    return read


def _blocks(plan: CorpusPlan, clips: Iterable[Clip], rows: int, changed: Changed) -> Iterator[Any]:
    """Tables of so many new clips each, in order; the last may have fewer."""
    import pyarrow as pa

    held: list[Any] = []
    for table in sorted_clips(clips):
        held.append(_unknown(plan, table, changed))
        while sum(map(len, held)) >= rows:
            whole = pa.concat_tables(held)
            yield whole.slice(0, rows)
            held = [whole.slice(rows)]
    if sum(map(len, held)):
        yield pa.concat_tables(held)


def _unknown(plan: CorpusPlan, table: Any, changed: Changed) -> Any:
    """The rows whose ids no generation has; those that it has are looked at for changes."""
    import pyarrow.compute as pc

    low, high = table["part"][0].as_py(), table["part"][-1].as_py()
    for segment in plan.segments:
        if segment.parts[1] < low or segment.parts[0] > high or not len(table):
            continue
        known = _table(plan.folder, segment, ["id", "url", "version"])
        at = pc.index_in(table["id"], value_set=known["id"])
        met = pc.is_valid(at)
        _compare(table.filter(met), known.take(pc.drop_null(at)), changed)
        table = table.filter(pc.invert(met))
    return table


def _compare(now: Any, before: Any, changed: Changed) -> None:
    import pyarrow.compute as pc

    other = pc.not_equal(now["url"], before["url"])
    if pc.any(other).as_py():
        at = pc.index(other, value=True).as_py()
        urls = (
            side["url"][at].as_py().decode("utf-8", "surrogateescape") for side in (before, now)
        )
        raise two_videos(now["id"][at].as_py(), *urls)
    stated = pc.and_(pc.not_equal(now["version"], ""), pc.not_equal(before["version"], ""))
    differs = pc.and_(stated, pc.not_equal(now["version"], before["version"]))
    found = now.filter(differs)["url"].to_pylist()
    changed.add([url.decode("utf-8", "surrogateescape") for url in found])


def _write(folder: Folder, number: int, table: Any, clips_per_shard: int) -> Segment:
    """A segment under a name of its content: whoever writes it writes the same."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    first = number * SHARDS_PER_SEGMENT
    shards = pa.array(first + np.arange(len(table)) // clips_per_shard, pa.int64())
    parts = (table["part"][0].as_py(), table["part"][-1].as_py())
    stored = table.drop_columns(["part"]).append_column("shard", shards).combine_chunks()
    data = io.BytesIO()
    pq.write_table(stored, data, compression="zstd")
    file = f"plan/segments/{segment_name(number)}-{_digest(data.getbuffer())}.parquet"
    folder.create(file, data.getvalue())
    return Segment(number, file, len(table), -(-len(table) // clips_per_shard), parts)


def _digest(data: bytes | memoryview) -> str:
    """What of a file's SHA-256 is in its name."""
    return hashlib.sha256(data).hexdigest()[:12]


def _table(folder: Folder, segment: Segment, columns: list[str]) -> Any:
    """Columns of a segment; a TrnconvError if it is not what its generation says."""
    data = folder.read(segment.file) or b""
    if not segment.file.endswith(f"-{_digest(data)}.parquet"):
        raise _broken(folder, segment.file)
    try:
        table = parquet_table(data, columns)
    except ValueError as error:
        raise _broken(folder, segment.file) from error
    if len(table) != segment.clips:
        raise _broken(folder, segment.file)
    return table


def _broken(folder: Folder, name: str) -> TrnconvError:
    return TrnconvError(
        f"{folder.url}/{name} is no part of a plan as this version writes it: it was cut, replaced"
        " or written by another version. Put it back, or encode into another folder."
    )

"""Clips in the one order that does not depend on how they were listed, whatever their number.

Order is by the first byte of a hash of the id (the part), then by id. What does not fit into memory
lies on disk, part by part, and is sorted one part at a time.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from trnconv.corpus.storage.needs import needed_for
from trnconv.corpus.videos.clips import Clip, two_videos

PARTS = 256
BATCH = 1 << 16  # clips that are objects of Python at a time
IN_MEMORY = 1 << 21  # clips that are held before they go to disk: about half a gigabyte
_COLUMNS = ("part", "id", "url", "version", "note")


def sorted_clips(clips: Iterable[Clip], in_memory: int = IN_MEMORY) -> Iterator[Any]:
    """Tables of clips in order, each clip once; a table holds whole parts.

    A TrnconvError names an id that has two videos.
    """
    with needed_for("planning a corpus"):
        import pyarrow as pa

    with tempfile.TemporaryDirectory(prefix="trnconv-plan-") as folder:
        held: list[Any] = []
        spilled = False
        for table in _tables(clips):
            held.append(table)
            if sum(map(len, held)) >= in_memory:
                _spill(pa.concat_tables(held), Path(folder))
                held, spilled = [], True
        if not spilled:
            if held:
                yield _unique(pa.concat_tables(held))
            return
        if held:
            _spill(pa.concat_tables(held), Path(folder))
        for part in range(PARTS):
            pieces = sorted(Path(folder, f"{part:03}").glob("*"))
            if pieces:
                yield _unique(pa.concat_tables([_piece(path) for path in pieces]))


def part_of(name: str) -> int:
    """The part an id is of."""
    return zlib.crc32(name.encode()) >> 24


def _tables(clips: Iterable[Clip]) -> Iterator[Any]:
    rows: list[Clip] = []
    for clip in clips:
        rows.append(clip)
        if len(rows) == BATCH:
            yield _table(rows)
            rows = []
    if rows:
        yield _table(rows)


def _table(rows: list[Clip]) -> Any:
    import pyarrow as pa

    return pa.table(
        [
            pa.array([part_of(clip.id) for clip in rows], pa.uint8()),
            pa.array([clip.id for clip in rows], pa.string()),
            pa.array([clip.url.encode("utf-8", "surrogateescape") for clip in rows], pa.binary()),
            pa.array([clip.version for clip in rows], pa.string()),
            pa.array([clip.note for clip in rows], pa.string()),
        ],
        names=list(_COLUMNS),
    )


def _spill(table: Any, folder: Path) -> None:
    """One more file for each part."""
    import pyarrow.compute as pc
    from pyarrow import feather

    ordered = table.sort_by("part")
    counts = pc.value_counts(ordered["part"]).to_pylist()
    start = 0
    for count in counts:
        place = folder / f"{count['values']:03}"
        place.mkdir(exist_ok=True)
        piece = ordered.slice(start, count["counts"])
        feather.write_feather(piece, str(place / f"{len(list(place.iterdir())):06}"))
        start += count["counts"]


def _piece(path: Path) -> Any:
    from pyarrow import feather

    return feather.read_table(str(path), memory_map=False)


def _unique(table: Any) -> Any:
    """Sorted, and each id once; the one that knows its version and note, if listed twice."""
    import pyarrow as pa
    import pyarrow.compute as pc

    keys = [
        (name, "descending" if name in ("version", "note") else "ascending") for name in _COLUMNS
    ]
    table = table.sort_by(keys)
    if len(table) < 2:
        return table
    ids, urls = table["id"], table["url"]
    again = pc.equal(ids.slice(1), ids.slice(0, len(table) - 1))
    other = pc.and_(again, pc.not_equal(urls.slice(1), urls.slice(0, len(table) - 1)))
    if pc.any(other).as_py():
        at = pc.index(other, value=True).as_py()
        both = [urls[row].as_py().decode("utf-8", "surrogateescape") for row in (at, at + 1)]
        raise two_videos(ids[at].as_py(), *both)
    first = pa.chunked_array([pa.array([True]), *pc.invert(again).chunks])
    return table.filter(first)

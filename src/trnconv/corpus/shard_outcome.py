"""What comes of a shard: clips that end in any order, then its files, and its record last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from trnconv.corpus.clip_latents import ClipLatents
from trnconv.corpus.completion import record_name
from trnconv.corpus.encoding import sha256_of
from trnconv.corpus.records import BadClip, EncodedWindow, ShardRecord
from trnconv.corpus.shards import Shard
from trnconv.corpus.spool import Spool
from trnconv.corpus.store import Folder
from trnconv.errors import TrnconvError


class ShardOutcome:
    """The ends of a shard's clips, latents on disk. What is committed does not depend on order."""

    def __init__(self, folder: Folder, shard: Shard) -> None:
        self._folder, self._shard = folder, shard
        self._clips = {clip.id: clip for clip in shard.clips}
        self._spool = Spool(folder, shard)
        self._windows: dict[str, list[EncodedWindow]] = {}
        self._bad: dict[str, BadClip] = {}

    @property
    def bad(self) -> int:
        """How many clips are set aside so far."""
        return len(self._bad)

    def has(self, name: str) -> bool:
        """Whether this clip has come to its end."""
        return name in self._windows or name in self._bad

    def is_whole(self) -> bool:
        """Whether every clip has."""
        return all(map(self.has, self._clips))

    def keep(self, ended: ClipLatents) -> None:
        """The end of one clip."""
        clip = self._clips[ended.id]
        if ended.reason:
            self._bad[clip.id] = BadClip(clip.id, clip.url, ended.reason, clip.note)
            return
        rows = []
        for number, (window, latents) in enumerate(ended.windows):
            key = f"{clip.id}.{number}" if number else clip.id
            bucket = f"{window.picture}x{window.frames}"
            for name, latent in latents.items():
                self._spool.add(bucket, f"{key}.{name}", latent)
            rows.append(
                EncodedWindow(
                    id=clip.id,
                    key=key,
                    url=clip.url,
                    window=number,
                    start_s=window.start_s,
                    fps=ended.fps,
                    bucket=bucket,
                    file="",  # known when all of its bucket is
                    shape=tuple(next(iter(latents.values())).shape),
                    sha256=sha256_of(latents),
                    source_bytes=ended.source_bytes,
                    source_sha256=ended.source_sha256,
                    note=clip.note,
                )
            )
        self._windows[clip.id] = rows

    def commit(self, weights_sha256: str) -> int:
        """Put the files in place, then the record; how many bytes the files have."""
        files = self._spool.put()
        in_order = (row for name in self._clips for row in self._windows.get(name, ()))
        record = ShardRecord(
            shard=self._shard.name,
            weights_sha256=weights_sha256,
            files=tuple(files.values()),
            clips=tuple(replace(row, file=files[row.bucket].name) for row in in_order),
            bad=tuple(sorted(self._bad.values(), key=lambda one: one.id)),
        )
        self._folder.create(record_name(self._shard), record.to_json())
        return sum(file.file_bytes for file in files.values())

    def close(self) -> None:
        """Remove what is left on disk."""
        self._spool.close()


@contextmanager
def disk_in_words() -> Iterator[None]:
    """What the spool's disk refuses is no clip's fault, and no traceback."""
    try:
        yield
    except OSError as error:
        raise TrnconvError(
            f"keeping latents on disk: {error}. Make room and run the same command again; what is"
            " done stays done."
        ) from error

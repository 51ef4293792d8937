"""What comes of a shard: clips that end in any order, then its files, and its record last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import groupby

from trnconv.corpus.latents.clip_latents import ClipLatents
from trnconv.corpus.latents.encoding import sha256_of
from trnconv.corpus.latents.latent_file import read_tensors
from trnconv.corpus.latents.spool import Spool
from trnconv.corpus.shards.again import Again, again_name, read_again
from trnconv.corpus.shards.completion import record_name
from trnconv.corpus.shards.records import BadClip, EncodedWindow, ShardRecord
from trnconv.corpus.shards.shard import Shard
from trnconv.corpus.storage.store import Folder
from trnconv.corpus.storage.versions import Versions
from trnconv.corpus.videos.reasons import once_more
from trnconv.corpus.videos.unread import Unread
from trnconv.errors import TrnconvError


class ShardOutcome:
    """The ends of a shard's clips, latents on disk. What is committed does not depend on order."""

    def __init__(self, folder: Folder, shard: Shard, tensors: Sequence[str]) -> None:
        self._folder, self._shard, self._tensors = folder, shard, tensors
        self._clips = {clip.id: clip for clip in shard.clips}
        self._spool = Spool(folder, shard)
        self._windows: dict[str, list[EncodedWindow]] = {}
        self._bad: dict[str, BadClip] = {}
        self._again = read_again(folder, shard)
        self._reasons: dict[str, str] = {}  # of clips that are tried again
        if self._again is not None:
            self._take_over(self._again)

    def counted(self, ended: ClipLatents, unread: Unread) -> None:
        """Have a clip judged with the last ones; one that is tried again is known to be trouble."""
        if ended.id not in self._reasons:
            unread.note(self._clips[ended.id].url, ended.reason)

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
            reason = once_more(ended.reason, self._reasons.get(clip.id, ""))
            self._bad[clip.id] = BadClip(clip.id, clip.url, reason, clip.note)
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

    def commit(self, weights_sha256: str, versions: Versions) -> int:
        """Put the files in place, then the record; how many bytes the files have."""
        files = self._spool.put()
        before = self._again.record.versions if self._again is not None else ()
        in_order = (row for name in self._clips for row in self._windows.get(name, ()))
        record = ShardRecord(
            shard=self._shard.name,
            weights_sha256=weights_sha256,
            files=tuple(files.values()),
            clips=tuple(replace(row, file=files[row.bucket].name) for row in in_order),
            bad=tuple(sorted(self._bad.values(), key=lambda clip: clip.id)),
            versions=tuple(dict.fromkeys((*before, versions))),
        )
        self._folder.create(record_name(self._shard), record.to_json())
        if self._again is not None:
            self._folder.remove(again_name(self._shard.key))
        return sum(file.file_bytes for file in files.values())

    def close(self) -> None:
        """Remove what is left on disk."""
        self._spool.close()

    def _take_over(self, again: Again) -> None:
        """What was right when this shard was done before; what cannot be read now is not."""
        for clip in again.record.bad:
            self._reasons[clip.id] = clip.reason
            if clip.id in self._clips and clip.id not in again.clips:
                self._bad[clip.id] = clip
        for name, rows in groupby(again.record.clips, key=lambda row: row.id):
            if name in self._clips:
                with suppress(TrnconvError):
                    self._take_over_clip(name, list(rows))

    def _take_over_clip(self, name: str, rows: list[EncodedWindow]) -> None:
        for row in rows:
            keys = {tensor: f"{row.key}.{tensor}" for tensor in self._tensors}
            read = read_tensors(self._folder, row.file, list(keys.values()))
            latents = {tensor: read[key] for tensor, key in keys.items()}
            if sha256_of(latents) != row.sha256:
                return
            for tensor, key in keys.items():
                self._spool.add(row.bucket, key, latents[tensor])
        self._windows[name] = rows


@contextmanager
def spool_errors() -> Iterator[None]:
    """What the spool's disk refuses is no clip's fault, and no traceback."""
    try:
        yield
    except OSError as error:
        raise TrnconvError(
            f"keeping latents on disk: {error}. Make room and run the same command again; what is"
            " done stays done."
        ) from error

"""What is known of a finished shard: its files, its clips, and those that were set aside."""

from __future__ import annotations

from dataclasses import dataclass

from trnconv.corpus.shards.shard import Shard
from trnconv.corpus.storage.document import as_document, read_document
from trnconv.corpus.storage.versions import Versions


@dataclass(frozen=True)
class EncodedWindow:
    """One window of a clip: its latents are the tensors `<key>.<name>` of its file."""

    id: str  # of the clip
    key: str  # the id, and for a second window and further ones .1, .2 ...
    url: str
    window: int
    start_s: float  # in the video, from its first frame
    fps: float  # of the frames that were encoded
    bucket: str  # height x width x frames
    file: str
    shape: tuple[int, ...]  # of each of its tensors
    sha256: str  # of the tensors' values
    source_bytes: int
    source_sha256: str
    note: str = ""  # what the list says of the clip


@dataclass(frozen=True)
class BadClip:
    """A clip that was set aside."""

    id: str
    url: str
    reason: str
    note: str = ""


@dataclass(frozen=True)
class LatentFile:
    """A file of latents, all of one bucket."""

    name: str
    bucket: str
    file_bytes: int
    sha256: str


@dataclass(frozen=True)
class ShardRecord:
    """Created after the shard's files: a shard is done when this exists. Holds nothing of a run."""

    shard: str
    weights_sha256: str
    files: tuple[LatentFile, ...]
    clips: tuple[EncodedWindow, ...]
    bad: tuple[BadClip, ...]
    versions: tuple[Versions, ...] = ()  # several if clips were encoded again under others

    def covers(self, shard: Shard) -> bool:
        """Whether every clip of the shard, and no other, has come to an end here."""
        encoded = [clip.id for clip in self.clips if clip.window == 0]
        ended = sorted(encoded + [clip.id for clip in self.bad])
        files = {file.name for file in self.files}
        return (
            self.shard == shard.name
            and ended == sorted(clip.id for clip in shard.clips)
            and files == {clip.file for clip in self.clips}
        )

    def to_json(self) -> bytes:
        """As a file; equal records give equal bytes."""
        return as_document(self)

    @classmethod
    def from_json(cls, data: bytes | None) -> ShardRecord | None:
        """The record of such a file; None if it is none."""
        return read_document(cls, data)

"""What is known of a finished shard, and of all of them: records, and the manifest they make."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trnconv.corpus.shards import Shard
from trnconv.errors import TrnconvError


@dataclass(frozen=True)
class EncodedClip:
    """One clip of a shard: its latents are the tensors `<id>.<name>` of the shard's file."""

    id: str
    url: str
    bucket: str  # height x width x frames
    shapes: Mapping[str, Sequence[int]]  # by name of the tensor
    sha256: str  # of the tensors' values


@dataclass(frozen=True)
class BadClip:
    """A clip that was set aside."""

    id: str
    url: str
    reason: str


@dataclass(frozen=True)
class ShardRecord:
    """Written after the shard's file: a shard is done when this exists. Holds nothing of a run."""

    shard: str
    file: str
    file_bytes: int
    sha256: str  # of the file
    weights_sha256: str
    clips: tuple[EncodedClip, ...]
    bad: tuple[BadClip, ...]

    def covers(self, shard: Shard) -> bool:
        """Whether every clip of the shard, and no other, has come to an end here."""
        ended = [clip.id for clip in self.clips] + [clip.id for clip in self.bad]
        return sorted(ended) == sorted(clip.id for clip in shard.clips)

    def to_json(self) -> bytes:
        """As a file; equal records give equal bytes."""
        return json.dumps(asdict(self), indent=1, sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes) -> ShardRecord:
        """The record of such a file."""
        read = json.loads(data)
        clips = tuple(EncodedClip(**clip) for clip in read.pop("clips"))
        bad = tuple(BadClip(**clip) for clip in read.pop("bad"))
        return cls(**read, clips=clips, bad=bad)


def manifest(settings: Mapping[str, Any], records: Iterable[ShardRecord]) -> dict[str, Any]:
    """All shards in one document. It depends on the corpus and the settings, not on the run."""
    every = sorted(records, key=lambda record: record.shard)
    weights = sorted({record.weights_sha256 for record in every})
    if len(weights) > 1:
        raise TrnconvError(
            f"the shards were encoded with {len(weights)} different sets of weights"
            f" ({', '.join(digest[:12] for digest in weights)}...): encode into a new folder."
        )
    return {
        "format": 1,
        "settings": dict(settings),
        "weights_sha256": weights[0] if weights else None,
        "clips": sum(len(record.clips) for record in every),
        "bytes": sum(record.file_bytes for record in every),
        "shards": [_listed(record) for record in every],
        "bad": [asdict(clip) for record in every for clip in record.bad],
    }


def _listed(record: ShardRecord) -> dict[str, Any]:
    """Enough to find a clip and check a file; shapes and addresses are in the records."""
    return {
        "shard": record.shard,
        "file": record.file,
        "bytes": record.file_bytes,
        "sha256": record.sha256,
        "clips": [clip.id for clip in record.clips],
    }

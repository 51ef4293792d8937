"""A job: what is asked, the folder it is done in, and what of it is done already."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trnconv.corpus.buckets import Buckets
from trnconv.corpus.clips import Clip
from trnconv.corpus.encoding import EncoderSettings
from trnconv.corpus.records import ShardRecord, manifest
from trnconv.corpus.shards import Shard, assigned
from trnconv.corpus.store import Folder
from trnconv.errors import TrnconvError

JOB, PLAN, MANIFEST = "job.json", "plan.jsonl", "manifest.json"


@dataclass(frozen=True, kw_only=True)
class Job:
    """Where latents go and all they depend on. Small and picklable: workers get it as it is."""

    out: str  # an address fsspec knows, or a local folder
    encoder: EncoderSettings
    buckets: Buckets
    fps: float | None = None  # None: every frame of the file
    readers: int = 1  # clips a worker decodes ahead, each in a thread

    @property
    def folder(self) -> Folder:
        """Where it is done."""
        return Folder(self.out)

    def settings(self) -> dict[str, Any]:
        """What the latents depend on, as JSON has it."""
        stated = {
            "encoder": asdict(self.encoder),
            "buckets": asdict(self.buckets),
            "fps": self.fps,
        }
        read: dict[str, Any] = json.loads(json.dumps(stated))
        return read

    def prepare(self, clips: Sequence[Clip], clips_per_shard: int) -> list[Shard]:
        """Claim the folder, and assign the clips. Who repeats it, or joins later, gets the same."""
        _require_same(self.out, self.folder.read(JOB), self.settings())
        self.folder.write(JOB, _document(self.settings()))
        before = self.planned()
        shards = assigned(before, clips, clips_per_shard)
        if shards != before:
            self.folder.write(PLAN, "".join(f"{shard.to_json()}\n" for shard in shards).encode())
        return shards

    def planned(self) -> list[Shard]:
        """The shards of the plan, as it was written last."""
        data = self.folder.read(PLAN) or b""
        return [Shard.from_json(line) for line in data.decode().splitlines()]

    def record(self, shard: Shard) -> ShardRecord | None:
        """The record of a shard that is done: all its clips ended, its file there, and whole."""
        data = self.folder.read(record_name(shard))
        if data is None:
            return None
        try:
            record = ShardRecord.from_json(data)
        except (ValueError, TypeError, KeyError):
            return None  # half a file, from a store that shows such; the shard is done again
        same = record.covers(shard) and self.folder.size(record.file) == record.file_bytes
        return record if same else None

    def left(self, shards: Sequence[Shard]) -> list[Shard]:
        """The shards that are not done."""
        return [shard for shard in shards if self.record(shard) is None]

    def write_manifest(self, shards: Sequence[Shard]) -> dict[str, Any] | None:
        """The manifest, written when every shard is done; None before."""
        records = list(self._records(shards))
        if len(records) < len(shards):
            return None
        document = manifest(self.settings(), records)
        self.folder.write(MANIFEST, _document(document))
        return document

    def _records(self, shards: Sequence[Shard]) -> Iterator[ShardRecord]:
        for shard in shards:
            record = self.record(shard)
            if record is not None:
                yield record


def record_name(shard: Shard) -> str:
    """The file of a shard's record."""
    return f"records/{shard.name}.json"


def shard_name(shard: Shard) -> str:
    """The file of a shard's latents."""
    return f"shards/{shard.name}.safetensors"


def metrics_name(shard: Shard) -> str:
    """The file that says who encoded a shard, and how long it took."""
    return f"metrics/{shard.name}.json"


def _document(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def _require_same(out: str, before: bytes | None, now: dict[str, Any]) -> None:
    if before is None:
        return
    was = _leaves(json.loads(before))
    different = [
        f"{name} was {was.get(name)!r} and is {value!r}"
        for name, value in _leaves(now).items()
        if was.get(name) != value
    ]
    if different:
        raise TrnconvError(
            f"{out} holds latents of another job: {'; '.join(different)}. Ask for the same, or"
            " encode into another folder."
        )


def _leaves(value: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {name: value}
    found: dict[str, Any] = {}
    for key, inner in value.items():
        found.update(_leaves(inner, f"{name}.{key}" if name else key))
    return found

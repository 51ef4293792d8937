"""Shards: groups of clips that are encoded, written and repeated as one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trnconv.corpus.clips import Clip

_NAME_DIGITS = 6


@dataclass(frozen=True)
class Shard:
    """The clips whose latents make one file."""

    name: str
    clips: tuple[Clip, ...]

    @property
    def number(self) -> int:
        """Its place among all shards."""
        return int(self.name)

    def to_json(self) -> str:
        """One line of the plan."""
        return json.dumps(
            {"shard": self.name, "clips": [[clip.id, clip.url] for clip in self.clips]}
        )

    @classmethod
    def from_json(cls, line: str) -> Shard:
        """The shard of such a line."""
        read = json.loads(line)
        return cls(read["shard"], tuple(Clip(*clip) for clip in read["clips"]))


def assigned(before: Sequence[Shard], clips: Iterable[Clip], clips_per_shard: int) -> list[Shard]:
    """Shards for all clips: those assigned before stay where they are, new ones make new shards.

    A pure function of its arguments: who computes it again, or on another machine, gets the same.
    """
    known = {clip.id for shard in before for clip in shard.clips}
    fresh = sorted(clip for clip in clips if clip.id not in known)
    shards = list(before)
    for at in range(0, len(fresh), clips_per_shard):
        name = f"{len(shards):0{_NAME_DIGITS}}"
        shards.append(Shard(name, tuple(fresh[at : at + clips_per_shard])))
    return shards

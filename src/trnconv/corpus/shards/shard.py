"""Shards: groups of clips that are encoded, written and repeated as one."""

from __future__ import annotations

from dataclasses import dataclass

from trnconv.corpus.videos.clips import Clip

SHARDS_PER_SEGMENT = 1000  # of the plan: as many names as a store lists in one answer


@dataclass(frozen=True)
class Shard:
    """The clips whose latents make one set of files."""

    number: int
    clips: tuple[Clip, ...]

    @property
    def name(self) -> str:
        """Its number, as files are called."""
        return shard_name(self.number)

    @property
    def key(self) -> str:
        """Its name below the folder of its segment."""
        return f"{segment_name(self.number // SHARDS_PER_SEGMENT)}/{self.name}"


def segment_name(number: int) -> str:
    """A segment's number, as files and folders are called."""
    return f"{number:06}"


def shard_name(number: int) -> str:
    """A shard's number, as files are called."""
    return f"{number:08}"

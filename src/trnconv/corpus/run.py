"""One run of a job: what there was to do, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trnconv.corpus.engines import Engine
from trnconv.corpus.job import Job
from trnconv.corpus.listing import list_clips
from trnconv.corpus.metrics import ShardMetrics
from trnconv.corpus.shards import Shard
from trnconv.errors import TrnconvError

DEFAULT_CLIPS_PER_SHARD = 64  # about a gigabyte of 5 s of 720p, as mean and log variance in bf16


@dataclass(frozen=True)
class CorpusRun:
    """A job that is planned, and an engine for what is left of it."""

    job: Job
    engine: Engine
    shards: tuple[Shard, ...]  # of the whole job
    mine: tuple[Shard, ...]  # that this process answers for
    left: tuple[Shard, ...]  # of mine, not done yet

    @property
    def clips(self) -> int:
        """Clips of the whole job."""
        return sum(len(shard.clips) for shard in self.shards)

    def __iter__(self) -> Iterator[ShardMetrics]:
        """Do what is left; metrics of each shard as it is done."""
        return self.engine.run(self.job, self.left)


def start(
    job: Job,
    sources: Sequence[str],
    engine: Engine,
    *,
    clips_per_shard: int = DEFAULT_CLIPS_PER_SHARD,
) -> CorpusRun:
    """List the clips, assign them to shards, and find out which shards are done."""
    if clips_per_shard < 1:
        raise TrnconvError(f"{clips_per_shard} clips a shard: at least 1.")
    shards = job.prepare(list_clips(sources), clips_per_shard)
    mine = engine.share(shards)
    return CorpusRun(job, engine, tuple(shards), tuple(mine), tuple(job.left(mine)))

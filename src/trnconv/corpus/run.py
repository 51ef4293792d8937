"""One run of a job: what there was to do, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import sleep
from typing import Any

from trnconv.corpus.engines import Engine
from trnconv.corpus.jobs.job import Job
from trnconv.corpus.jobs.metrics import ShardMetrics
from trnconv.corpus.planner import planned
from trnconv.corpus.shards.completion import open_segments, recorded
from trnconv.corpus.shards.manifest import manifest_name, read_rows
from trnconv.corpus.shards.plan import Changed, CorpusPlan
from trnconv.corpus.shards.verification import Verified
from trnconv.errors import TrnconvError

DEFAULT_CLIPS_PER_SHARD = 64  # about a gigabyte of 5 s of 720p, as mean and log variance in bf16
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.25, 15.0


@dataclass(frozen=True)
class CorpusRun:
    """A job that is planned, and an engine for what is left of it."""

    job: Job
    engine: Engine
    plan: CorpusPlan
    changed: Changed  # videos replaced since they were planned; their old latents stay
    verified: Verified  # what was read and compared here, if that was asked for

    def __iter__(self) -> Iterator[ShardMetrics]:
        """Do what is left; metrics of each shard that was done here.

        Ends when all is done, by whomever: what another process has in hand is waited for, and
        taken over should that process end.
        """
        wait_s = _FIRST_WAIT_S
        while segments := open_segments(self.plan):
            done = 0
            for metrics in self.engine.run(self.job, segments):
                done += 1
                yield metrics
            if done:
                wait_s = _FIRST_WAIT_S
            elif open_segments(self.plan):
                sleep(wait_s)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def done_before(self) -> int:
        """Shards that have a record now."""
        left = sum(segment.shards for segment in open_segments(self.plan))
        done = sum(recorded(self.job.folder, segment) for segment in open_segments(self.plan))
        return self.plan.shards - left + done

    def bad(self, most: int) -> list[dict[str, Any]]:
        """So many of the clips that were set aside, with their reasons, at most."""
        clips: list[dict[str, Any]] = []
        for segment in self.plan.segments:
            if len(clips) >= most:
                break
            data = self.job.folder.read(manifest_name(segment.name))
            rows = read_rows(data or b"", ["id", "url", "reason"])
            clips += [row for row in rows if row["reason"]]
        return clips[:most]

    def finish(self) -> dict[str, Any] | None:
        """Write the manifest, if all is done."""
        return self.job.write_manifest(self.plan)


def start(
    job: Job,
    sources: Sequence[str],
    engine: Engine,
    *,
    clips_per_shard: int = DEFAULT_CLIPS_PER_SHARD,
) -> CorpusRun:
    """Take the folder, list the clips, and assign them to shards."""
    if clips_per_shard < 1:
        raise TrnconvError(f"{clips_per_shard} clips a shard: at least 1.")
    job = job.claim()
    plan = planned(job, sources, clips_per_shard, engine.place())
    return CorpusRun(job, engine, plan.plan, plan.changed, plan.verified)

"""A loop in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trnconv.corpus.jobs.job import Job
from trnconv.corpus.jobs.metrics import ShardMetrics
from trnconv.corpus.jobs.worker import Worker
from trnconv.corpus.shards.completion import close, open_shards, rotated
from trnconv.corpus.shards.plan import Segment


def run(job: Job, segments: Sequence[Segment], start: float) -> Iterator[ShardMetrics]:
    """Encode one shard after the other, and close the segments that are done.

    `start` is the share of the way at which this process begins; others begin elsewhere.
    """
    worker: Worker | None = None
    try:
        for segment in rotated(segments, start):
            left = list(rotated(open_shards(job.folder, segment), start))
            while left:
                worker = worker or Worker(job)
                metrics = worker.encode(left.pop(0))
                if metrics is not None:
                    yield metrics
                elif left:  # others are here, too: look again at what they have done
                    still = {shard.number for shard in open_shards(job.folder, segment)}
                    left = [shard for shard in left if shard.number in still]
            if not open_shards(job.folder, segment):
                close(job.folder, segment)
    finally:
        if worker is not None:
            worker.close()

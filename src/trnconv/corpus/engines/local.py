"""A loop in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trnconv.corpus.job import Job
from trnconv.corpus.metrics import ShardMetrics
from trnconv.corpus.shards import Shard
from trnconv.corpus.worker import Worker


def run(job: Job, shards: Sequence[Shard]) -> Iterator[ShardMetrics]:
    """Encode one shard after the other."""
    worker = Worker(job)
    for shard in shards:
        yield worker.encode(shard)

"""What workers did, and how long it took. These are times of this machine, kept beside the latents.

Nothing a latent depends on is here, so that equal jobs have equal manifests.
"""

from __future__ import annotations

import json
import os
import socket
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from time import perf_counter, time


@dataclass(frozen=True, kw_only=True)
class ShardMetrics:
    """One shard by one worker; seconds of wall clock."""

    shard: str
    worker: str
    clips: int
    bad: int
    frames: int
    pixels: int
    file_bytes: int
    started: float  # seconds since 1970
    seconds: float
    cpu_s: float  # of the whole process, its threads included
    waiting_s: float  # for decoded clips; decoding itself runs ahead, in threads
    encoding_s: float
    writing_s: float
    shapes: int  # distinct shapes the worker has met so far

    def to_json(self) -> str:
        """As a file."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, data: str | bytes) -> ShardMetrics:
        """The metrics of such a file."""
        return cls(**json.loads(data))


@dataclass(frozen=True, kw_only=True)
class WorkerMetrics:
    """All shards of one worker."""

    worker: str
    shards: int
    clips: int
    bad: int
    seconds: float
    clips_per_s: float
    megapixels_per_s: float
    cpu: float  # seconds of CPU for each of its time; less than 1 on a CPU: others have the cores
    waiting: float  # share of its time, as the next two
    encoding: float
    writing: float
    shapes: int


@dataclass
class Stopwatch:
    """Seconds by what they were spent on."""

    spent: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Count the time inside the `with`."""
        start = perf_counter()
        try:
            yield
        finally:
            self.spent[what] += perf_counter() - start


def worker_name() -> str:
    """This process: host and process id."""
    return f"{socket.gethostname()}-{os.getpid()}"


def now() -> float:
    """Seconds since 1970."""
    return time()


def by_worker(metrics: Iterable[ShardMetrics]) -> list[WorkerMetrics]:
    """Sums and rates of each worker."""
    of: dict[str, list[ShardMetrics]] = defaultdict(list)
    for shard in metrics:
        of[shard.worker].append(shard)
    return [_summed(worker, shards) for worker, shards in sorted(of.items())]


def _summed(worker: str, shards: list[ShardMetrics]) -> WorkerMetrics:
    seconds = sum(shard.seconds for shard in shards)
    clips = sum(shard.clips for shard in shards)
    return WorkerMetrics(
        worker=worker,
        shards=len(shards),
        clips=clips,
        bad=sum(shard.bad for shard in shards),
        seconds=seconds,
        clips_per_s=clips / seconds,
        megapixels_per_s=sum(shard.pixels for shard in shards) / seconds / 1e6,
        cpu=sum(shard.cpu_s for shard in shards) / seconds,
        waiting=sum(shard.waiting_s for shard in shards) / seconds,
        encoding=sum(shard.encoding_s for shard in shards) / seconds,
        writing=sum(shard.writing_s for shard in shards) / seconds,
        shapes=max(shard.shapes for shard in shards),
    )

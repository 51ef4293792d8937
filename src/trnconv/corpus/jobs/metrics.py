"""What workers did, and how long it took. These are times of this machine, kept beside the latents.

Nothing a latent depends on is here, so that equal jobs have equal manifests.
"""

from __future__ import annotations

import json
import os
import socket
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from time import perf_counter, time

_SECONDS = ("seconds", "cpu_s", "waiting_s", "encoding_s", "writing_s")
_SUMS = ("clips", "bad", "frames", "pixels", "file_bytes", *_SECONDS)


@dataclass(frozen=True, kw_only=True)
class ShardMetrics:
    """One shard by one worker, or the sums of several; seconds of wall clock."""

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
    shares: tuple[ShardMetrics, ...] = ()  # of each worker, if clips of a shard go to several

    def to_json(self) -> str:
        """As a file."""
        return json.dumps(asdict(self), sort_keys=True)


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


def shared(parts: Iterable[ShardMetrics]) -> ShardMetrics:
    """A shard of which workers did parts, clips perhaps: sums, and the share of each worker."""
    shares = tuple(_added(own, worker) for worker, own in _grouped(parts))
    who = shares[0].worker if len(shares) == 1 else f"{len(shares)} workers"
    return replace(_added(shares, who), shares=shares)


def by_worker(metrics: Iterable[ShardMetrics]) -> list[WorkerMetrics]:
    """Sums and rates of each worker."""
    parts = (part for shard in metrics for part in shard.shares or (shard,))
    return [_summed(worker, own) for worker, own in _grouped(parts)]


def _grouped(parts: Iterable[ShardMetrics]) -> list[tuple[str, list[ShardMetrics]]]:
    of: dict[str, list[ShardMetrics]] = defaultdict(list)
    for part in parts:
        of[part.worker].append(part)
    return sorted(of.items())


def _added(parts: Sequence[ShardMetrics], worker: str) -> ShardMetrics:
    return ShardMetrics(
        shard=parts[0].shard,
        worker=worker,
        started=min(part.started for part in parts),
        shapes=max(part.shapes for part in parts),
        **{name: sum(getattr(part, name) for part in parts) for name in _SUMS},
    )


def _summed(worker: str, shards: list[ShardMetrics]) -> WorkerMetrics:
    total = _added(shards, worker)
    return WorkerMetrics(
        worker=worker,
        shards=len(shards),
        clips=total.clips,
        bad=total.bad,
        seconds=total.seconds,
        clips_per_s=total.clips / total.seconds,
        megapixels_per_s=total.pixels / total.seconds / 1e6,
        cpu=total.cpu_s / total.seconds,
        waiting=total.waiting_s / total.seconds,
        encoding=total.encoding_s / total.seconds,
        writing=total.writing_s / total.seconds,
        shapes=total.shapes,
    )

"""Who answers for shards whose clips are encoded by many: leases, counts of deaths, files, records.

A keeper does not know who encodes. It claims a shard when its first clips are asked for, is told
which clips are in hand and what came of them, and commits the shard when the last one has ended.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from threading import Lock

from trnconv.corpus.jobs.job import Job
from trnconv.corpus.jobs.metrics import ShardMetrics, shared, worker_name
from trnconv.corpus.latents.clip_latents import ClipLatents, dead_of
from trnconv.corpus.latents.shard_outcome import ShardOutcome, spool_errors
from trnconv.corpus.shards.completion import record_name
from trnconv.corpus.shards.plan import Segment, read_segment
from trnconv.corpus.shards.shard import Shard
from trnconv.corpus.storage.leases import MOST_ATTEMPTS, Lease, claim
from trnconv.corpus.videos.clips import Clip
from trnconv.corpus.videos.unread import Unread
from trnconv.errors import TrnconvError


@dataclass(frozen=True)
class ShardInHand:
    """A shard that was claimed, and is not whole yet."""

    shard: Shard
    lease: Lease
    outcome: ShardOutcome
    held: ExitStack  # gives the lease back, and removes what is left on disk
    parts: list[ShardMetrics] = field(default_factory=list)


class ShardKeeper:
    """Keeps shards by number. Its methods may be called from many threads."""

    def __init__(self, job: Job, workers: int) -> None:
        self._job, self._workers = job, workers
        self._starts: Counter[str] = Counter()
        self._lock = Lock()
        self._unread = Unread(job.terms.most_unread)
        self._shards: dict[int, ShardInHand | None] = {}  # None: whole now, or another's
        self._committer = ThreadPoolExecutor(1)  # so that nobody's clip waits for an upload
        self._commits: list[Future[ShardMetrics]] = []

    def join(self) -> None:
        """Count a worker that starts."""
        with self._lock:
            self._count("workers", self._workers)

    def clips(self, segment: Segment, number: int, first: int, last: int) -> tuple[Clip, ...]:
        """So many of a shard's clips, to be encoded; none if it is done, or another is at it."""
        with self._lock:
            self._count(f"decoders of shard {number} from clip {first} on", 1)
            if number not in self._shards:
                self._shards[number] = self._claimed(segment, number)
            held = self._shards[number]
        if held is None:
            return ()
        clips = held.shard.clips[first:last]
        return tuple(clip for clip in clips if not held.outcome.has(clip.id))

    def begin(self, number: int, name: str) -> str | None:
        """Note that a worker has a clip in hand; "" if it may be encoded, else why not.

        None if there is nothing to do: it has ended, or its shard is not kept here. Whoever begins
        it again follows a worker that has died with it.
        """
        with self._lock:
            held = self._shards.get(number)
            if held is None or held.outcome.has(name):
                return None
            deaths = held.lease.deaths[name]
            held.lease.deaths[name] += 1  # unless it ends
            return "" if deaths < self._job.limits.deaths else dead_of(deaths)

    def end(self, number: int, ended: ClipLatents, part: ShardMetrics, weights_sha256: str) -> None:
        """Keep what came of a clip, once; who does it again is not listened to."""
        with self._lock:
            held = self._shards.get(number)
            if held is None or held.outcome.has(ended.id):
                return
            held.parts.append(part)
            held.outcome.counted(ended, self._unread)
        with spool_errors():
            held.outcome.keep(ended)
        with self._lock:
            if held.outcome.is_whole() and self._shards.get(number) is held:
                self._unread.require_few()
                self._shards[number] = None
                self._commits.append(self._committer.submit(self._commit, held, weights_sha256))

    def reports(self) -> list[ShardMetrics]:
        """Of the shards that were committed since somebody asked."""
        with self._lock:
            done = [commit for commit in self._commits if commit.done()]
            self._commits = [commit for commit in self._commits if commit not in done]
        return [commit.result() for commit in done]

    def settle(self) -> list[ShardMetrics]:
        """The last reports; shards that are not whole are given back, and all are forgotten."""
        with self._lock:
            kept, self._shards = self._shards, {}
            commits, self._commits = self._commits, []
            self._starts.clear()
        for held in kept.values():
            if held is not None:
                with suppress(InterruptedError), held.held:
                    raise InterruptedError(f"clips of shard {held.shard.name} are lost")
        return [commit.result() for commit in commits]

    def _count(self, what: str, needed: int) -> None:
        """Whoever starts dead processes again, for ever perhaps, is told to stop."""
        self._starts[what] += 1
        if self._starts[what] > needed + MOST_ATTEMPTS:
            raise TrnconvError(
                f"{self._starts[what]} {what} have started, and {needed} would do: the others died."
                " Look at what ends them, and run the same command again; what is done stays done."
            )

    def _claimed(self, segment: Segment, number: int) -> ShardInHand | None:
        folder = self._job.folder
        shard = {shard.number: shard for shard in read_segment(folder, segment)}[number]
        lease = claim(folder, shard.key, worker_name())
        if lease is None:
            return None
        with ExitStack() as stack, spool_errors():
            stack.enter_context(lease.held())
            if folder.read(record_name(shard)) is not None:
                return None
            outcome = ShardOutcome(folder, shard, self._job.encoder.tensors)
            stack.callback(outcome.close)
            return ShardInHand(shard, lease, outcome, stack.pop_all())

    def _commit(self, held: ShardInHand, weights_sha256: str) -> ShardMetrics:
        with held.held, spool_errors():
            held.outcome.commit(weights_sha256, self._job.require_versions())
            metrics = shared(held.parts)
            name = f"metrics/{held.shard.key}.json"
            self._job.folder.write(name, metrics.to_json().encode())
        return metrics

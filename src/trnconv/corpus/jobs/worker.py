"""A worker: one process with one model, which encodes shard after shard, of a loop or a rank."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import cached_property
from queue import SimpleQueue
from time import perf_counter, process_time

from trnconv.corpus.jobs.job import Job
from trnconv.corpus.jobs.metrics import ShardMetrics, Stopwatch, now, worker_name
from trnconv.corpus.jobs.termination import terminated_in_order
from trnconv.corpus.latents.clip_latents import ClipLatents, clip_latents, dead_of
from trnconv.corpus.latents.encoding import Encoder
from trnconv.corpus.latents.shard_outcome import ShardOutcome, spool_errors
from trnconv.corpus.shards.completion import record_name
from trnconv.corpus.shards.shard import Shard
from trnconv.corpus.storage.leases import Lease, claim
from trnconv.corpus.videos.clips import Clip
from trnconv.corpus.videos.decoder import DecodedVideo, Decoder
from trnconv.corpus.videos.unread import Unread
from trnconv.corpus.videos.video_reader import BadVideoError

Result = tuple[Clip, "DecodedVideo | BadVideoError"]


class Worker:
    """Encodes shards of a job. Killed at any point, it leaves whole files only."""

    def __init__(self, job: Job) -> None:
        self.name = announce(job)
        self._job = job
        self._readers = _DecoderThreads(job)
        self._unread = Unread(job.terms.most_unread)

    def encode(self, shard: Shard) -> ShardMetrics | None:
        """Encode a shard, write its files and then its record.

        None if it is done already, or if somebody else who may be alive is at it.
        """
        lease = claim(self._job.folder, shard.key, self.name)
        if lease is None:
            return None
        with terminated_in_order(), lease.held(), spool_errors():
            if self._job.folder.read(record_name(shard)) is not None:
                return None
            work = _ShardWork(self._job, self._encoder, shard, lease)
            work.run(self._readers, self._unread)
            metrics = work.metrics(self.name)
            self._job.folder.write(f"metrics/{shard.key}.json", metrics.to_json().encode())
        return metrics

    def close(self) -> None:
        """End the processes that decode."""
        self._readers.close()

    @cached_property
    def _encoder(self) -> Encoder:
        """Made with a lease in hand: workers that die of their model are counted, too."""
        return job_encoder(self._job)


def announce(job: Job) -> str:
    """Leave a note that this process works for a job; its name."""
    name = worker_name()
    host, _, process = name.rpartition("-")
    here = {"host": host, "pid": int(process), "started": now()}
    job.folder.write(f"workers/{name}.json", json.dumps(here).encode())
    return name


def job_encoder(job: Job) -> Encoder:
    """A job's model; a TrnconvError if its weights are others than those of the first worker."""
    job.require_versions()  # others on this machine than where the run was started are refused here
    encoder = Encoder(job.encoder)
    job.claim_weights(encoder.weights_sha256)
    return encoder


class _DecoderThreads:
    """Threads that fetch videos, with a process each that decodes."""

    def __init__(self, job: Job) -> None:
        self._count = job.readers
        self._threads = ThreadPoolExecutor(job.readers)
        self._all = [Decoder(job.reading) for _ in range(job.readers)]
        self._free: SimpleQueue[Decoder] = SimpleQueue()
        for decoder in self._all:
            self._free.put(decoder)

    def read(self, clips: list[Clip]) -> Iterator[Result]:
        """Clips in order, decoded ahead of their use by as many as there are readers."""
        ahead: deque[tuple[Clip, Future[DecodedVideo]]] = deque()
        try:
            for clip in clips:
                ahead.append((clip, self._threads.submit(self._video, clip)))
                if len(ahead) > self._count:
                    yield _ended(*ahead.popleft())
            while ahead:
                yield _ended(*ahead.popleft())
        finally:
            for _, reading in ahead:
                reading.cancel()

    def close(self) -> None:
        """End threads and processes."""
        self._threads.shutdown(cancel_futures=True)
        for decoder in self._all:
            decoder.close()

    def _video(self, clip: Clip) -> DecodedVideo:
        decoder = self._free.get()
        try:
            return decoder.decode(clip.url)
        finally:
            self._free.put(decoder)


class _ShardWork:
    """One pass over a shard's clips."""

    def __init__(self, job: Job, encoder: Encoder, shard: Shard, lease: Lease) -> None:
        self._job, self._encoder, self._shard, self._lease = job, encoder, shard, lease
        self._watch = Stopwatch()
        self._outcome = ShardOutcome(job.folder, shard, job.encoder.tensors)
        self._clips = self._bad = self._frames = self._pixels = self._bytes = 0
        self._started, self._seconds, self._cpu = now(), 0.0, 0.0

    def run(self, readers: _DecoderThreads, unread: Unread) -> None:
        start, cpu_start = perf_counter(), process_time()
        with ExitStack() as kept, ThreadPoolExecutor(1) as keeper:
            kept.callback(self._outcome.close)
            clips = [clip for clip in self._shard.clips if not self._outcome.has(clip.id)]
            results = readers.read([clip for clip in clips if self._is_safe(clip)])
            keeping: deque[Future[None]] = deque()
            while True:
                with self._watch.on("waiting"):
                    result = next(results, None)
                if result is None:
                    break
                with self._watch.on("encoding"):
                    ended = self._encoded(*result)
                self._outcome.counted(ended, unread)
                keeping.append(keeper.submit(self._outcome.keep, ended))
                while len(keeping) > 1:  # one clip's latents wait to be kept, not more
                    keeping.popleft().result()
            unread.require_few()
            with self._watch.on("writing"):
                while keeping:
                    keeping.popleft().result()
                self._bytes = self._outcome.commit(
                    self._encoder.weights_sha256, self._job.require_versions()
                )
        self._seconds, self._cpu = perf_counter() - start, process_time() - cpu_start

    def metrics(self, worker: str) -> ShardMetrics:
        spent = self._watch.spent
        return ShardMetrics(
            shard=self._shard.name,
            worker=worker,
            clips=self._clips,
            bad=self._bad,
            frames=self._frames,
            pixels=self._pixels,
            file_bytes=self._bytes,
            started=self._started,
            seconds=self._seconds,
            cpu_s=self._cpu,
            waiting_s=spent["waiting"],
            encoding_s=spent["encoding"],
            writing_s=spent["writing"],
            shapes=len(self._encoder.shapes),
        )

    def _is_safe(self, clip: Clip) -> bool:
        """Whether it may be tried: workers have not died of it too often."""
        deaths = self._lease.deaths[clip.id]
        if deaths < self._job.limits.deaths:
            return True
        self._bad += 1
        self._outcome.keep(ClipLatents(clip.id, reason=dead_of(deaths)))
        return False

    def _encoded(self, clip: Clip, video: DecodedVideo | BadVideoError) -> ClipLatents:
        """Encode a clip, which has a cause's name now should this process die."""
        if not isinstance(video, BadVideoError):
            self._lease.note(clip.id)
        ended = clip_latents(self._encoder, clip.id, video)
        self._clips += not ended.reason
        self._bad += bool(ended.reason)
        self._frames += ended.frames
        self._pixels += ended.pixels
        return ended


def _ended(clip: Clip, reading: Future[DecodedVideo]) -> Result:
    try:
        return clip, reading.result()
    except BadVideoError as bad:
        return clip, bad

"""A worker: one process with one model, which encodes shard after shard. All engines run this."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property, partial
from queue import SimpleQueue
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Protocol

from trnconv.corpus.clips import Clip
from trnconv.corpus.completion import record_name
from trnconv.corpus.decoder import DecodedVideo, Decoder
from trnconv.corpus.encoding import Encoder, sha256_of
from trnconv.corpus.job import Job
from trnconv.corpus.leases import Lease, claim
from trnconv.corpus.metrics import ShardMetrics, Stopwatch, now, worker_name
from trnconv.corpus.records import BadClip, EncodedWindow, ShardRecord
from trnconv.corpus.shards import Shard
from trnconv.corpus.spool import Spool
from trnconv.corpus.termination import terminated_in_order
from trnconv.corpus.video_reader import BadVideoError, Window
from trnconv.errors import TrnconvError

if TYPE_CHECKING:
    import torch

Result = tuple[Clip, "DecodedVideo | BadVideoError"]


class Worker:
    """Encodes shards of a job. Killed at any point, it leaves whole files only."""

    def __init__(self, job: Job, readers: Readers | None = None) -> None:
        self.name = worker_name()
        self._job = job
        self._readers = readers or DecoderThreads(job)
        host, _, process = self.name.rpartition("-")
        here = {"host": host, "pid": int(process), "started": now()}
        job.folder.write(f"workers/{self.name}.json", json.dumps(here).encode())

    def encode(self, shard: Shard) -> ShardMetrics | None:
        """Encode a shard, write its files and then its record.

        None if it is done already, or if somebody else who may be alive is at it.
        """
        lease = claim(self._job.folder, shard.key, self.name)
        if lease is None:
            return None
        with terminated_in_order(), lease.held(), _disk_in_words():
            if self._job.folder.read(record_name(shard)) is not None:
                return None
            work = _ShardWork(self._job, self._encoder, shard, lease)
            work.run(self._readers)
            metrics = work.metrics(self.name)
            self._job.folder.write(f"metrics/{shard.key}.json", metrics.to_json().encode())
        return metrics

    def close(self) -> None:
        """End the processes that decode."""
        self._readers.close()

    @cached_property
    def _encoder(self) -> Encoder:
        """Made with a lease in hand: workers that die of their model are counted, too."""
        encoder = Encoder(self._job.encoder)
        self._job.claim_weights(encoder.weights_sha256)
        return encoder


class Readers(Protocol):
    """Who fetches and decodes."""

    def read(self, clips: list[Clip]) -> Iterator[Result]:
        """Clips in order, some of them decoded ahead of their use."""

    def close(self) -> None:
        """End what was started for it."""


class DecoderThreads:
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
        self._spool = Spool(job.folder, shard)
        self._clips: list[EncodedWindow] = []
        self._bad: list[BadClip] = []
        self._frames = self._pixels = self._bytes = 0
        self._started, self._seconds, self._cpu = now(), 0.0, 0.0

    def run(self, readers: Readers) -> None:
        start, cpu_start = perf_counter(), process_time()
        with ExitStack() as kept, ThreadPoolExecutor(1) as keeper:
            kept.callback(self._spool.close)
            results = readers.read([clip for clip in self._shard.clips if self._is_safe(clip)])
            keeping: deque[Future[None]] = deque()
            while True:
                with self._watch.on("waiting"):
                    result = next(results, None)
                if result is None:
                    break
                with self._watch.on("encoding"):
                    keeping += [keeper.submit(keep) for keep in self._take(*result)]
                while len(keeping) > 1:  # one clip's latents wait to be kept, not more
                    keeping.popleft().result()
            with self._watch.on("writing"):
                while keeping:
                    keeping.popleft().result()
                self._write()
        self._seconds, self._cpu = perf_counter() - start, process_time() - cpu_start

    def metrics(self, worker: str) -> ShardMetrics:
        spent = self._watch.spent
        return ShardMetrics(
            shard=self._shard.name,
            worker=worker,
            clips=len({clip.id for clip in self._clips}),
            bad=len(self._bad),
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
        self._set_aside(clip, f"{deaths} workers died while they encoded it")
        return False

    def _take(self, clip: Clip, video: DecodedVideo | BadVideoError) -> list[Callable[[], None]]:
        """Encode a clip; what is left to do with its latents, which need not be waited for."""
        if isinstance(video, BadVideoError):
            self._set_aside(clip, str(video))
            return []
        self._lease.note(clip.id)
        encoded = [(window, self._encoder.encode(pixels)) for window, pixels in video.windows]
        if not all(bool(latent.isfinite().all()) for _, of in encoded for latent in of.values()):
            self._set_aside(clip, "its latents are not finite")
            return []
        for window, pixels in video.windows:
            self._frames += window.frames
            self._pixels += pixels.size // pixels.shape[-1]
        return [
            partial(self._keep, clip, video, number, window, latents)
            for number, (window, latents) in enumerate(encoded)
        ]

    def _keep(
        self,
        clip: Clip,
        video: DecodedVideo,
        number: int,
        window: Window,
        latents: dict[str, torch.Tensor],
    ) -> None:
        key = f"{clip.id}.{number}" if number else clip.id
        bucket = f"{window.picture}x{window.frames}"
        for name, latent in latents.items():
            self._spool.add(bucket, f"{key}.{name}", latent)
        self._clips.append(
            EncodedWindow(
                id=clip.id,
                key=key,
                url=clip.url,
                window=number,
                start_s=window.start_s,
                fps=video.fps,
                bucket=bucket,
                file="",  # known when all of its bucket is
                shape=tuple(next(iter(latents.values())).shape),
                sha256=sha256_of(latents),
                source_bytes=video.source_bytes,
                source_sha256=video.source_sha256,
                note=clip.note,
            )
        )

    def _set_aside(self, clip: Clip, reason: str) -> None:
        self._bad.append(BadClip(clip.id, clip.url, reason, clip.note))

    def _write(self) -> None:
        files = self._spool.put()
        self._bytes = sum(file.file_bytes for file in files.values())
        record = ShardRecord(
            shard=self._shard.name,
            weights_sha256=self._encoder.weights_sha256,
            files=tuple(files.values()),
            clips=tuple(replace(clip, file=files[clip.bucket].name) for clip in self._clips),
            bad=tuple(sorted(self._bad, key=lambda one: one.id)),
        )
        self._job.folder.create(record_name(self._shard), record.to_json())


@contextmanager
def _disk_in_words() -> Iterator[None]:
    """What the spool's disk refuses is no clip's fault, and no traceback."""
    try:
        yield
    except OSError as error:
        raise TrnconvError(
            f"keeping latents on disk: {error}. Make room and run the same command again; what is"
            " done stays done."
        ) from error


def _ended(clip: Clip, reading: Future[DecodedVideo]) -> Result:
    try:
        return clip, reading.result()
    except BadVideoError as bad:
        return clip, bad

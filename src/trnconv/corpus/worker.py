"""A worker: one process with one model, which encodes shard after shard. All engines run this."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter, process_time
from typing import TYPE_CHECKING

from trnconv.corpus.clips import Clip
from trnconv.corpus.encoding import Encoder, sha256_of
from trnconv.corpus.job import Job, metrics_name, record_name, shard_name
from trnconv.corpus.metrics import ShardMetrics, Stopwatch, now, worker_name
from trnconv.corpus.needs import needed_for
from trnconv.corpus.records import BadClip, EncodedClip, ShardRecord
from trnconv.corpus.shards import Shard
from trnconv.corpus.video_reader import BadVideoError, DecodedVideo, read_video

if TYPE_CHECKING:
    import torch

Result = tuple[Clip, "DecodedVideo | BadVideoError"]


class Worker:
    """Encodes shards of a job. Killed at any point, it leaves whole files only."""

    def __init__(self, job: Job) -> None:
        self.name = worker_name()
        self._job = job
        self._encoder = Encoder(job.encoder)
        host, _, process = self.name.rpartition("-")
        here = {"host": host, "pid": int(process), "started": now()}
        job.folder.write(f"workers/{self.name}.json", json.dumps(here).encode())

    def encode(self, shard: Shard) -> ShardMetrics:
        """Encode a shard, write its file and then its record; if it is done, only say so."""
        if self._job.record(shard) is not None:
            done = self._job.folder.read(metrics_name(shard))
            if done is not None:
                return ShardMetrics.from_json(done)
        work = _ShardWork(self._job, self._encoder, shard)
        work.run()
        metrics = work.metrics(self.name)
        self._job.folder.write(metrics_name(shard), metrics.to_json().encode())
        return metrics


class _ShardWork:
    """One pass over a shard's clips."""

    def __init__(self, job: Job, encoder: Encoder, shard: Shard) -> None:
        self._job, self._encoder, self._shard = job, encoder, shard
        self._watch = Stopwatch()
        self._tensors: dict[str, torch.Tensor] = {}
        self._clips: list[EncodedClip] = []
        self._bad: list[BadClip] = []
        self._frames = self._pixels = self._bytes = 0
        self._started, self._seconds, self._cpu = now(), 0.0, 0.0

    def run(self) -> None:
        start, cpu_start = perf_counter(), process_time()
        results = self._read()
        while True:
            with self._watch.on("waiting"):
                result = next(results, None)
            if result is None:
                break
            with self._watch.on("encoding"):
                self._take(*result)
        with self._watch.on("writing"):
            self._write()
        self._seconds, self._cpu = perf_counter() - start, process_time() - cpu_start

    def metrics(self, worker: str) -> ShardMetrics:
        spent = self._watch.spent
        return ShardMetrics(
            shard=self._shard.name,
            worker=worker,
            clips=len(self._clips),
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

    def _read(self) -> Iterator[Result]:
        """Clips in order, decoded ahead of their use by as many threads as there are readers."""
        with ThreadPoolExecutor(self._job.readers) as threads:
            ahead: deque[tuple[Clip, Future[DecodedVideo]]] = deque()
            for clip in self._shard.clips:
                ahead.append((clip, threads.submit(self._video, clip)))
                if len(ahead) > self._job.readers:
                    yield _ended(*ahead.popleft())
            while ahead:
                yield _ended(*ahead.popleft())

    def _video(self, clip: Clip) -> DecodedVideo:
        return read_video(clip.url, self._job.buckets, self._job.fps)

    def _take(self, clip: Clip, video: DecodedVideo | BadVideoError) -> None:
        if isinstance(video, BadVideoError):
            self._bad.append(BadClip(clip.id, clip.url, str(video)))
            return
        latents = self._encoder.encode(video.pixels)
        if not all(bool(latent.isfinite().all()) for latent in latents.values()):
            self._bad.append(BadClip(clip.id, clip.url, "its latents are not finite"))
            return
        self._tensors |= {f"{clip.id}.{name}": latent for name, latent in latents.items()}
        shapes = {name: tuple(latent.shape) for name, latent in latents.items()}
        encoded = EncodedClip(clip.id, clip.url, video.bucket, shapes, sha256_of(latents))
        self._clips.append(encoded)
        self._frames += len(video.pixels)
        self._pixels += video.pixels.size // video.pixels.shape[-1]

    def _write(self) -> None:
        with needed_for("writing latents"):
            from safetensors.torch import save

        data = save(self._tensors)
        self._bytes = len(data)
        record = ShardRecord(
            shard=self._shard.name,
            file=shard_name(self._shard),
            file_bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            weights_sha256=self._encoder.weights_sha256,
            clips=tuple(self._clips),
            bad=tuple(self._bad),
        )
        self._job.folder.write(record.file, data)
        self._job.folder.write(record_name(self._shard), record.to_json())


def _ended(clip: Clip, reading: Future[DecodedVideo]) -> Result:
    try:
        return clip, reading.result()
    except BadVideoError as bad:
        return clip, bad

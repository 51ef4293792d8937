"""Ray Data: actors that hold a model each, shards for rows, and tasks that decode clips.

A row is a whole shard, so what Ray repeats after a death is a shard, and a shard that was done
before the death is only looked at. Ray Data starts dead actors again without end; leases count the
attempts at a shard, and after so many the job stops with words. Decoding has resources of its own:
a task a clip, on whatever machine has a CPU free, so many ahead of each actor and no more.
"""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from trnconv.corpus.clips import Clip
from trnconv.corpus.completion import close, open_shards
from trnconv.corpus.decoder import DecodedVideo, Decoder
from trnconv.corpus.job import Job
from trnconv.corpus.metrics import ShardMetrics
from trnconv.corpus.needs import needed_for
from trnconv.corpus.plan import Segment, read_segment
from trnconv.corpus.video_reader import BadVideoError, VideoRequest
from trnconv.corpus.worker import Result, Worker
from trnconv.errors import TrnconvError
from trnconv.records import from_json, to_json

_LOOPBACK = "127.0.0.1"
_SEGMENTS = 16  # whose open shards are rows at a time: the driver holds no whole plan


@dataclass(frozen=True)
class Cluster:
    """Where actors run, and what each gets."""

    workers: int
    neuron_cores: int = 0
    address: str | None = None


class ShardActor:
    """A worker as Ray Data wants it: a class that is called with batches of rows."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self, rows: dict[str, Any]) -> dict[str, list[str]]:
        """Encode the shard of the one row; a refusal is handed over, so that words stay words."""
        (number,), (said,) = rows["shard"], rows["segment"]
        try:
            segment = from_json(Segment, json.loads(str(said)))
            shards = {shard.number: shard for shard in read_segment(self._job.folder, segment)}
            metrics = self._worker.encode(shards[int(number)])
        except TrnconvError as refusal:
            return {"metrics": [""], "refusal": [str(refusal)]}
        return {"metrics": [metrics.to_json() if metrics else ""], "refusal": [""]}

    @cached_property
    def _worker(self) -> Worker:
        """Made with the first shard, because Ray hides what is raised while an actor is made."""
        return Worker(self._job, DecodeTasks(self._job))


class DecodeTasks:
    """Clips by tasks of a CPU each, as many ahead of their use as the job has readers."""

    def __init__(self, job: Job) -> None:
        import ray

        self._ray, self._asked, self._count = ray, job.reading, job.readers
        options = {"num_cpus": 1, "max_retries": job.limits.deaths}
        self._decoded = ray.remote(**options)(_decoded)

    def read(self, clips: list[Clip]) -> Iterator[Result]:
        """Clips in order."""
        ahead: deque[tuple[Clip, Any]] = deque()
        for clip in clips:
            ahead.append((clip, self._decoded.remote(clip.url, self._asked)))
            if len(ahead) > self._count:
                yield self._ended(*ahead.popleft())
        while ahead:
            yield self._ended(*ahead.popleft())

    def close(self) -> None:
        """Tasks end by themselves."""

    def _ended(self, clip: Clip, task: Any) -> Result:
        video, bad, refusal = self._ray.get(task)
        if refusal:
            raise TrnconvError(refusal)
        if bad:
            return clip, BadVideoError(bad)
        # what lies in Ray's store cannot be written to, and torch warns of such arrays
        windows = tuple((window, pixels.copy()) for window, pixels in video.windows)
        return clip, replace(video, windows=windows)


def _decoded(url: str, asked: VideoRequest) -> tuple[DecodedVideo | None, str, str]:
    """A video, or what is wrong with it, or why nobody could tell: words stay words."""
    try:
        return _decoder(asked).decode(url), "", ""
    except BadVideoError as bad:
        return None, str(bad), ""
    except TrnconvError as refusal:
        return None, "", str(refusal)


@cache
def _decoder(asked: VideoRequest) -> Decoder:
    """Of this process of Ray's; its child ends when this process does."""
    return Decoder(asked)


def run(job: Job, segments: Sequence[Segment], cluster: Cluster) -> Iterator[ShardMetrics]:
    """Encode what is open on a cluster's actors; each shard's metrics as it is done."""
    with _connected(cluster, job.readers) as ray:
        for at in range(0, len(segments), _SEGMENTS):
            some = segments[at : at + _SEGMENTS]
            rows = [
                {"segment": json.dumps(to_json(segment)), "shard": shard.number}
                for segment in some
                for shard in open_shards(job.folder, segment)
            ]
            if rows:
                yield from _encoded(ray, job, rows, cluster)
            for segment in some:
                if not open_shards(job.folder, segment):
                    close(job.folder, segment)


def _encoded(
    ray: Any, job: Job, rows: list[dict[str, Any]], cluster: Cluster
) -> Iterator[ShardMetrics]:
    workers = min(cluster.workers, len(rows))
    done = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
        ShardActor,
        fn_constructor_args=(job,),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=1),
        **_resources(cluster),
    )
    for row in done.iter_rows():
        if row["refusal"]:
            raise TrnconvError(row["refusal"])
        if row["metrics"]:
            yield ShardMetrics.from_json(row["metrics"])


def _resources(cluster: Cluster) -> dict[str, Any]:
    """Ray sets NEURON_RT_VISIBLE_CORES for actors that ask for Neuron cores."""
    if cluster.neuron_cores:
        return {"num_cpus": 1, "resources": {"neuron_cores": cluster.neuron_cores}}
    return {"num_cpus": 1}


@contextmanager
def _connected(cluster: Cluster, readers: int) -> Iterator[Any]:
    """Ray, connected to the cluster named, else started here: on loopback, without a dashboard."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone
    if cluster.address is None:
        # Ray's switch for systems whose firewalls ask about every listener: loopback is this
        # machine's address then. Without it, Ray replaces 127.0.0.1 by an address others reach.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    with needed_for("engine ray"):
        import ray
        import ray.data

    quiet = {"log_to_driver": False, "logging_level": logging.WARNING}
    if cluster.address is None:
        ray.init(
            num_cpus=cluster.workers * (1 + readers) + 1,  # one more for Ray Data's own tasks
            include_dashboard=False,
            _node_ip_address=_LOOPBACK,
            **quiet,
        )
        _require_loopback(ray)
    else:
        ray.init(address=cluster.address, **quiet)
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    try:
        yield ray
    finally:
        ray.shutdown()


def _require_loopback(ray: Any) -> None:
    """Ray reads its switch when it is imported; who imported it before us has to be told."""
    at = ray.util.get_node_ip_address()
    if at != _LOOPBACK:
        ray.shutdown()
        raise TrnconvError(
            f"Ray on this machine would listen at {at}, for others to reach: it was imported before"
            " with RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER unset. Set it to 0 before Ray is imported."
        )

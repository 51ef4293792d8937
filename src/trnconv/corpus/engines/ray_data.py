"""Ray Data: actors that hold a model each, and shards for rows.

A row is a whole shard, so what Ray repeats after a death is a shard, and a shard that was done
before the death is only looked at. Ray starts a dead actor again, up to a limit.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trnconv.corpus.completion import close, open_shards
from trnconv.corpus.job import Job
from trnconv.corpus.metrics import ShardMetrics
from trnconv.corpus.needs import needed_for
from trnconv.corpus.plan import Segment, read_segment
from trnconv.corpus.worker import Worker
from trnconv.errors import TrnconvError
from trnconv.records import from_json, to_json

_LOOPBACK = "127.0.0.1"
_SEGMENTS = 16  # whose open shards are rows at a time: the driver holds no whole plan
_RESTARTS = 100  # of one actor, and repetitions of one row: a clip is set aside long before


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
        return Worker(self._job)


def run(job: Job, segments: Sequence[Segment], cluster: Cluster) -> Iterator[ShardMetrics]:
    """Encode what is open on a cluster's actors; each shard's metrics as it is done."""
    with _connected(cluster) as ray:
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
        max_restarts=_RESTARTS,
        max_task_retries=_RESTARTS,
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
def _connected(cluster: Cluster) -> Iterator[Any]:
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
            num_cpus=cluster.workers + 1,  # one more for Ray Data's own tasks
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

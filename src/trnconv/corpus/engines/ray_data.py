"""Ray Data: actors that hold a model each, and shards for rows.

A row is a whole shard, so what Ray repeats after a death is a shard, and a shard that was done
before the death is only looked at. Ray restarts actors and repeats their tasks without limit.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trnconv.corpus.job import Job
from trnconv.corpus.metrics import ShardMetrics
from trnconv.corpus.needs import needed_for
from trnconv.corpus.shards import Shard
from trnconv.corpus.worker import Worker
from trnconv.errors import TrnconvError

_LOOPBACK = "127.0.0.1"


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
        (line,) = rows["shard"]
        try:
            metrics = self._worker.encode(Shard.from_json(str(line)))
        except TrnconvError as refusal:
            return {"metrics": [""], "refusal": [str(refusal)]}
        return {"metrics": [metrics.to_json()], "refusal": [""]}

    @cached_property
    def _worker(self) -> Worker:
        """Made with the first shard, because Ray hides what is raised while an actor is made."""
        return Worker(self._job)


def run(job: Job, shards: Sequence[Shard], cluster: Cluster) -> Iterator[ShardMetrics]:
    """Encode shards on a cluster's actors; each shard's metrics as it is done."""
    with _connected(cluster) as ray:
        rows = ray.data.from_items(
            [{"shard": shard.to_json()} for shard in shards], override_num_blocks=len(shards)
        )
        workers = min(cluster.workers, len(shards))
        done = rows.map_batches(
            ShardActor,
            fn_constructor_args=(job,),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=1),
            **_resources(cluster),
        )
        for row in done.iter_rows():
            if row["refusal"]:
                raise TrnconvError(row["refusal"])
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
    else:
        ray.init(address=cluster.address, **quiet)
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    try:
        yield ray
    finally:
        ray.shutdown()

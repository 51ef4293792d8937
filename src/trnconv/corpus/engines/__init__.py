"""Who runs the workers: a loop, torchrun, or Ray Data. None of them is a scheduler of ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trnconv.corpus.engines import local, ray_data, torchrun
from trnconv.corpus.job import Job
from trnconv.corpus.metrics import ShardMetrics
from trnconv.corpus.shards import Shard
from trnconv.errors import UnsupportedError

ENGINES = ("local", "torchrun", "ray")


@dataclass(frozen=True)
class Engine:
    """An engine by name, with what only it can be told."""

    name: str = "local"
    workers: int = 1  # of Ray; torchrun has its own --nproc-per-node
    neuron_cores: int = 0  # that each worker of Ray owns
    address: str | None = None  # of a Ray cluster; None starts one on this machine

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            raise UnsupportedError(f"engine {self.name!r}: one of {', '.join(ENGINES)}.")
        if self.name != "ray" and (self.workers, self.neuron_cores, self.address) != (1, 0, None):
            raise UnsupportedError(
                f"workers, neuron_cores and address with engine {self.name}: they are Ray's."
                " torchrun takes --nproc-per-node; local is one process."
            )

    def share(self, shards: Sequence[Shard]) -> list[Shard]:
        """The shards that this process answers for."""
        return torchrun.share(shards) if self.name == "torchrun" else list(shards)

    def run(self, job: Job, shards: Sequence[Shard]) -> Iterator[ShardMetrics]:
        """Encode shards; metrics of each as it is done, in any order."""
        if not shards:
            return iter(())
        if self.name == "ray":
            cluster = ray_data.Cluster(self.workers, self.neuron_cores, self.address)
            return ray_data.run(job, shards, cluster)
        return local.run(job, shards)

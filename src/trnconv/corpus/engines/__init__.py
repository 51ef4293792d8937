"""Who runs the workers: a loop, torchrun, or Ray Data. None of them is a scheduler of ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trnconv.corpus.engines import local, ray_data
from trnconv.corpus.jobs import torchrun
from trnconv.corpus.jobs.job import Job
from trnconv.corpus.jobs.metrics import ShardMetrics
from trnconv.corpus.shards.plan import Segment
from trnconv.errors import UnsupportedError

ENGINES = ("local", "torchrun", "ray")


@dataclass(frozen=True)
class Engine:
    """An engine by name, with what only it can be told."""

    name: str = "local"
    workers: int = 1  # of Ray; torchrun has its own --nproc-per-node
    neuron_cores: int = 0  # that each worker of Ray owns
    address: str | None = None  # of a Ray cluster; None: RAY_ADDRESS, else one is started here

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            raise UnsupportedError(f"engine {self.name!r}: one of {', '.join(ENGINES)}.")
        if self.name != "ray" and (self.workers, self.neuron_cores, self.address) != (1, 0, None):
            raise UnsupportedError(
                f"workers, neuron_cores and address with engine {self.name}: they are Ray's."
                " torchrun takes --nproc-per-node; local is one process."
            )

    def place(self) -> torchrun.Rank:
        """Which of how many processes this one is, of those that were started together."""
        return torchrun.place() if self.name == "torchrun" else torchrun.Rank(0, 1)

    def run(self, job: Job, segments: Sequence[Segment]) -> Iterator[ShardMetrics]:
        """Encode what is not done in these segments and nobody else is at; metrics of each shard.

        Once through: what others have in hand is left to them.
        """
        if self.name == "ray":
            cluster = ray_data.Cluster(self.workers, self.neuron_cores, self.address)
            return ray_data.run(job, segments, cluster)
        return local.run(job, segments, self.place().start)

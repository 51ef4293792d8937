"""One video on several cores: a model in bands of rows or columns, over torch.distributed."""

from trnconv.parallel.bands import Bands
from trnconv.parallel.errors import LostRankError, RanksDifferError
from trnconv.parallel.shard import Options, Shards, shard_, unshard_
from trnconv.parallel.traffic import TrafficKind

__all__ = [
    "Bands",
    "LostRankError",
    "Options",
    "RanksDifferError",
    "Shards",
    "TrafficKind",
    "shard_",
    "unshard_",
]

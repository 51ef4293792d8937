"""One video on several cores: a model in bands of rows or columns, over torch.distributed."""

from trnconv.parallel.bands import Bands
from trnconv.parallel.comm_group import Options
from trnconv.parallel.errors import LostRankError, RanksDifferError
from trnconv.parallel.shard import Shards, shard_, unshard_
from trnconv.parallel.tiles import SharedTiles, share_tiles_
from trnconv.parallel.traffic import TrafficKind

__all__ = [
    "Bands",
    "LostRankError",
    "Options",
    "RanksDifferError",
    "Shards",
    "SharedTiles",
    "TrafficKind",
    "shard_",
    "share_tiles_",
    "unshard_",
]

"""Under torchrun, or any launcher that sets RANK and WORLD_SIZE: each rank takes its shards.

Ranks never wait for each other, so one that dies holds up nobody; torchrun starts it again, and
what it has done is not done twice. Whichever ends last writes the manifest.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from trnconv.corpus.shards import Shard
from trnconv.errors import TrnconvError


def share(shards: Sequence[Shard]) -> list[Shard]:
    """Every WORLD_SIZE-th shard of the plan, from RANK on, whatever of it is done."""
    rank, world = _number("RANK"), _number("WORLD_SIZE")
    if not 0 <= rank < world:
        raise TrnconvError(f"RANK={rank} of WORLD_SIZE={world}: a rank is from 0 to {world - 1}.")
    return [shard for shard in shards if shard.number % world == rank]


def _number(name: str) -> int:
    text = os.environ.get(name, "")
    if not text.isdecimal():
        raise TrnconvError(
            f"engine torchrun: {name} is {text!r} in the environment, not a number. Start it with"
            " `torchrun --nproc-per-node N -m trnconv encode --engine torchrun ...`."
        )
    return int(text)

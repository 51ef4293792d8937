"""Under torchrun, or any launcher that sets RANK and WORLD_SIZE: each rank begins at its own place.

Rank 0 plans; the others wait for its plan, and list nothing unless none comes for a minute. After
that nobody waits for anybody but at the very end: a rank that finds nothing more to do watches
those shards that others have in hand, and takes over what they leave. torchrun itself ends all
ranks when one dies; started again, with --max-restarts or by hand, they go on.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

from trnconv.errors import TrnconvError

_LAUNCH = ("TRNCONV_RUN_ID", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE")


@dataclass(frozen=True)
class Rank:
    """One of several processes that were started together."""

    rank: int
    world: int
    launch: str = ""  # the same for all of them; a later launch may have the same, too

    @property
    def start(self) -> float:
        """The share of the way at which it begins."""
        return self.rank / self.world


def place() -> Rank:
    """Of this process, from its environment."""
    rank, world = _number("RANK"), _number("WORLD_SIZE")
    if not 0 <= rank < world:
        raise TrnconvError(f"RANK={rank} of WORLD_SIZE={world}: a rank is from 0 to {world - 1}.")
    return Rank(rank, world, _launch())


def _launch() -> str:
    """A launch has an id, or a port; who starts two at a time gives each a TRNCONV_RUN_ID."""
    if not os.environ.get("TRNCONV_RUN_ID") and not os.environ.get("MASTER_PORT"):
        return ""
    said = "\n".join(os.environ.get(name, "") for name in _LAUNCH)
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def _number(name: str) -> int:
    text = os.environ.get(name, "")
    if not text.isdecimal():
        raise TrnconvError(
            f"engine torchrun: {name} is {text!r} in the environment, not a number. Start it with"
            " `torchrun --nproc-per-node N -m trnconv encode --engine torchrun ...`."
        )
    return int(text)

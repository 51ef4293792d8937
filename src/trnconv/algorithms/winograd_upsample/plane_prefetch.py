"""What is done in the pauses of chains: differences that the next unit reads."""

from __future__ import annotations

from trnconv._nki import nl
from trnconv.algorithms.winograd_upsample.core import (
    PLANES,
    UpsampleBlock,
    UpsampleCore,
    load,
    make,
)
from trnconv.algorithms.winograd_upsample.recipe import Region


class PlanePrefetch(nl.NKIObject):
    """Makes differences step by step; the next input is loaded when those of one are begun."""

    def __init__(self, core: UpsampleCore, region: Region, blocks: list[UpsampleBlock]) -> None:
        self.core = core
        self.region = region
        self.blocks = blocks
        self.steps = PLANES * core.recipe.pieces  # of a tile of channels
        self.done = 0  # steps, of all prepares of the region
        self.loaded = 0  # inputs
        self.first = 0  # steps that were done before this unit
        self.wanted = 0  # that have to be done before the next one
        self.pauses = 0
        self.all_pauses = 1

    def begin(self, prepared: int, pauses: int) -> None:
        """A unit with so many pauses begins; so much has to be prepared before the next."""
        self.first = self.done
        self.wanted = prepared * self.steps * len(self.core.recipe.x_tiles)
        self.pauses = 0
        self.all_pauses = max(1, pauses - 1)

    def pause(self) -> None:
        """A share of the steps."""
        self.pauses += 1
        share = min(self.pauses, self.all_pauses)
        self.advance(self.first + (self.wanted - self.first) * share // self.all_pauses)

    def advance(self, until: int) -> None:
        """Steps up to one."""
        tiles = len(self.core.recipe.x_tiles)
        while self.done < until:
            number = self.done // (self.steps * tiles)
            within = self.done % (self.steps * tiles)
            if within == 0:
                self.load_until(number + 2)
            prepare = self.region.prepares[number]
            block = self.blocks[prepare.block]
            make(self.core, block, prepare, within // self.steps, within % self.steps)
            self.done += 1

    def load_until(self, count: int) -> None:
        """Inputs that are not loaded yet."""
        while self.loaded < min(count, len(self.region.prepares)):
            prepare = self.region.prepares[self.loaded]
            load(self.core, self.blocks[prepare.block], prepare)
            self.loaded += 1

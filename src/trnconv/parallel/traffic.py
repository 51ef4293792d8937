"""What ranks sent each other: counted where it is sent, and the formula for halos."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from trnconv.parallel.grid import BandGrid, Region, area, common, edges


class TrafficKind(Enum):
    """Why something was sent."""

    halo = "halo"  # rows that a convolution reads and another rank holds
    gather = "gather"  # whole tensors, for what mixes all positions
    statistics = "statistics"  # of group norms
    result = "result"  # bands joined for the caller


class ExchangeKind(Enum):
    """How rows get to those who read them, by what a backend offers."""

    permute = "permute"  # from rank to rank
    all_gather = "all_gather"  # everybody gets everybody's edges


@dataclass(frozen=True)
class Sent:
    """Equal transfers of one module, as one rank receives them."""

    module: str
    kind: TrafficKind
    received_bytes: int


@dataclass
class Traffic:
    """Counts of equal transfers, in the order they first happened."""

    counts: Counter[Sent] = field(default_factory=Counter)

    def note(self, module: str, kind: TrafficKind, received_bytes: int) -> None:
        """One more."""
        self.counts[Sent(module, kind, received_bytes)] += 1

    def received(self, kind: TrafficKind | None = None) -> int:
        """Bytes, of one kind or of all."""
        return sum(
            sent.received_bytes * times
            for sent, times in self.counts.items()
            if kind in (None, sent.kind)
        )

    def times(self, kind: TrafficKind) -> int:
        """Transfers of a kind."""
        return sum(times for sent, times in self.counts.items() if sent.kind is kind)

    def clear(self) -> None:
        """Forget."""
        self.counts.clear()

    def __str__(self) -> str:
        """A line for each kind."""
        lines = [
            f"{kind.value:<10}  {self.times(kind):>6} x  {self.received(kind) / 1e6:>12.3f} MB"
            for kind in TrafficKind
            if self.times(kind)
        ]
        return "\n".join(lines) or "nothing was sent"


def halo_area(grid: BandGrid, wanted: tuple[Region, ...], rank: int, exchange: ExchangeKind) -> int:
    """Positions a rank receives in one exchange; rows, where only rows are cut.

    By permute: what it reads and does not hold. By all-gather: the edges of every other rank, each
    as much as the largest, because a collective moves equal parts.
    """
    sent = edges(grid, wanted)
    if not any(sent):
        return 0
    if exchange is ExchangeKind.permute:
        return area(wanted[rank]) - area(common(grid.of(rank), wanted[rank]))
    return (grid.ranks - 1) * max(sum(map(area, regions)) for regions in sent)

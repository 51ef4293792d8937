"""What ranks sent each other: counted where it is sent, and the formula for halos."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from trnconv.parallel.bands import Bands, Interval, joined, meeting


class TrafficKind(Enum):
    """Why something was sent."""

    halo = "halo"  # rows that a convolution reads and another rank holds
    gather = "gather"  # whole tensors, for what mixes all positions
    statistics = "statistics"  # of group norms
    result = "result"  # bands joined for the caller


class LinkOffer(Enum):
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


def edges(bands: Bands, wanted: Sequence[Interval], source: int) -> tuple[Interval, ...]:
    """The rows of one rank that any other reads."""
    own = bands.of(source)
    return joined(
        [meeting(own, interval) for rank, interval in enumerate(wanted) if rank != source]
    )


def halo_rows(bands: Bands, wanted: Sequence[Interval], rank: int, offer: LinkOffer) -> int:
    """Rows a rank receives in one exchange.

    By permute: what it reads and does not hold. By all-gather: the edges of every other rank, each
    as long as the longest, because a collective moves equal parts.
    """
    if not any(edges(bands, wanted, source) for source in range(bands.ranks)):
        return 0
    if offer is LinkOffer.permute:
        start, stop = wanted[rank]
        held = meeting(bands.of(rank), wanted[rank])
        return (stop - start) - (held[1] - held[0])
    longest = max(
        sum(stop - start for start, stop in edges(bands, wanted, source))
        for source in range(bands.ranks)
    )
    return (bands.ranks - 1) * longest

"""Bands: who holds which rows (or columns) of a tensor, in integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from trnconv.errors import ShapeError

Interval = tuple[int, int]  # start and stop


@dataclass(frozen=True)
class Bands:
    """Rank r holds rows bounds[r] .. bounds[r + 1] - 1, at least one. Every rank knows them all."""

    bounds: tuple[int, ...]

    def __post_init__(self) -> None:
        steps = enumerate(pairwise(self.bounds))
        empty = [rank for rank, (start, stop) in steps if stop <= start]
        if len(self.bounds) < 2 or self.bounds[0] != 0 or empty:
            raise ShapeError(
                f"bands with bounds {self.bounds}: they begin at 0 and grow, so that every rank"
                f" has a row; rank {empty[0] if empty else 0} has none. Use fewer ranks, or the"
                " other axis."
            )

    @staticmethod
    def shared(total: int, shares: Sequence[float], unit: int = 1) -> Bands:
        """`total` rows in proportion to `shares`, in multiples of `unit` rows, one for each rank.

        Bounds are where the running sum of the shares falls, moved where a band would be empty.
        """
        blocks, ranks = total // unit, len(shares)
        if total % unit or blocks < ranks or min(shares, default=0) <= 0:
            raise ShapeError(
                f"{total} rows (or columns) for {ranks} ranks with shares {tuple(shares)}: at least"
                f" one block of {unit} rows for each, {unit} dividing {total}, and shares above 0."
            )
        bounds, running = [0], 0.0
        for rank, share in enumerate(shares):
            running += share
            wanted = round(blocks * running / sum(shares))
            bounds.append(min(max(wanted, bounds[-1] + 1), blocks - (ranks - 1 - rank)))
        return Bands(tuple(unit * bound for bound in bounds))

    @property
    def ranks(self) -> int:
        """How many bands."""
        return len(self.bounds) - 1

    @property
    def total(self) -> int:
        """Rows of all bands together."""
        return self.bounds[-1]

    def of(self, rank: int) -> Interval:
        """Start and stop of a rank's band."""
        return self.bounds[rank], self.bounds[rank + 1]

    def size(self, rank: int) -> int:
        """Rows of a rank."""
        start, stop = self.of(rank)
        return stop - start

    def sizes(self) -> tuple[int, ...]:
        """Rows of every rank."""
        return tuple(self.size(rank) for rank in range(self.ranks))

    def times(self, factor: int) -> Bands:
        """Of a tensor with every row repeated."""
        return Bands(tuple(bound * factor for bound in self.bounds))

    def over(self, divisor: int) -> Bands | None:
        """Of a tensor with so many rows made one; None where a band would end inside of one."""
        if any(bound % divisor for bound in self.bounds):
            return None
        return Bands(tuple(bound // divisor for bound in self.bounds))


def meeting(first: Interval, second: Interval) -> Interval:
    """Where two intervals meet; empty (start == stop) where they do not."""
    start, stop = max(first[0], second[0]), min(first[1], second[1])
    return start, max(start, stop)

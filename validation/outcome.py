"""Outcome: what the model says about a row in the three readings, beside what was published."""

from __future__ import annotations

from dataclasses import dataclass

from nkisim.machine import Reading
from validation.row import Row
from validation.stream import stream_of


@dataclass(frozen=True, kw_only=True)
class Modelled:
    """A row's figure in the three readings, in microseconds."""

    optimistic_us: float
    default_us: float
    pessimistic_us: float
    bound: str  # the busiest engine in the default reading

    @property
    def interval_us(self) -> tuple[float, float]:
        """The least and the most of the three readings."""
        times = (self.optimistic_us, self.default_us, self.pessimistic_us)
        return min(times), max(times)


@dataclass(frozen=True)
class Outcome:
    """A row and what is modelled for it."""

    row: Row
    modelled: Modelled

    @property
    def ratio(self) -> float:
        """Modelled over published."""
        return self.modelled.default_us / self.row.published_us

    @property
    def error(self) -> float:
        """The relative difference, without sign."""
        return abs(self.ratio - 1)

    @property
    def inside(self) -> bool:
        """Whether the published time lies in the interval."""
        low, high = self.modelled.interval_us
        return low <= self.row.published_us <= high


def model(row: Row) -> Modelled:
    """Trace a row's kernel and schedule it in every reading. The published figure is not read."""
    stream = stream_of(row)
    timed = {reading: stream.time(reading) for reading in Reading}
    return Modelled(
        optimistic_us=timed[Reading.optimistic].us,
        default_us=timed[Reading.default].us,
        pessimistic_us=timed[Reading.pessimistic].us,
        bound=timed[Reading.default].bound,
    )

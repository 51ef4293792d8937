"""Outcome: a row's kernel, run shape-only and scheduled in the three readings."""

from __future__ import annotations

from dataclasses import dataclass

import nkisim
from nkisim.machine import Reading
from nkisim.timing import Timeline, schedule
from validation.row import Row


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the model says about a row, in microseconds."""

    row: Row
    optimistic_us: float
    modelled_us: float  # the default reading
    pessimistic_us: float
    bound: str  # the busiest engine in the default reading

    @property
    def ratio(self) -> float:
        """Modelled over published."""
        return self.modelled_us / self.row.published_us

    @property
    def error(self) -> float:
        """The relative difference, without sign."""
        return abs(self.ratio - 1)

    @property
    def interval_us(self) -> tuple[float, float]:
        """The least and the most of the three readings."""
        times = (self.optimistic_us, self.modelled_us, self.pessimistic_us)
        return min(times), max(times)

    @property
    def inside(self) -> bool:
        """Whether the published time lies in the interval."""
        low, high = self.interval_us
        return low <= self.row.published_us <= high


def evaluate(row: Row) -> Outcome:
    """Run a row's kernel without values and schedule it three times."""
    run = nkisim.run(row.kernel, *row.arguments, target=row.target, values=False, **row.options)
    times = {
        reading: schedule(run.trace, run.machine, reading, memory=run.memory) for reading in Reading
    }
    return Outcome(
        row=row,
        optimistic_us=_us(row, times[Reading.optimistic]),
        modelled_us=_us(row, times[Reading.default]),
        pessimistic_us=_us(row, times[Reading.pessimistic]),
        bound=times[Reading.default].bound,
    )


def _us(row: Row, timeline: Timeline) -> float:
    ns = timeline.latency_ns if row.includes_launch else timeline.makespan_ns
    return ns / 1e3

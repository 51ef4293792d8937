"""Summary: how well the model does on a set of outcomes, in one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from validation.outcome import Outcome


@dataclass(frozen=True)
class Summary:
    """Counts over all rows."""

    rows: int
    median_error: float
    within_15: int
    within_40: int
    inside: int

    def __str__(self) -> str:
        return (
            f"median |error| {100 * self.median_error:.1f} %,"
            f" within 15 %: {self.within_15}/{self.rows},"
            f" within 40 %: {self.within_40}/{self.rows},"
            f" inside interval: {self.inside}/{self.rows}"
        )


def summarise(outcomes: Sequence[Outcome]) -> Summary:
    """The counts of some outcomes."""
    return Summary(
        rows=len(outcomes),
        median_error=median(outcome.error for outcome in outcomes),
        within_15=sum(outcome.error <= 0.15 for outcome in outcomes),
        within_40=sum(outcome.error <= 0.40 for outcome in outcomes),
        inside=sum(outcome.inside for outcome in outcomes),
    )

"""Summary: how well the model does on outcomes, in one line for each set of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from validation.outcome import Outcome
from validation.row import Row
from validation.sets import SETS, set_of


@dataclass(frozen=True)
class Summary:
    """Counts over some rows, at least one."""

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


def of_set(outcomes: Sequence[Outcome], name: str) -> list[Outcome]:
    """The outcomes of one set's rows."""
    return [outcome for outcome in outcomes if set_of(outcome.row) == name]


def set_lines(outcomes: Sequence[Outcome], rows: Sequence[Row]) -> Iterator[str]:
    """A line for each set; `rows` are all there are, of which some may not have been looked at."""
    for name in SETS:
        members = of_set(outcomes, name)
        if members:
            yield f"{name}: {summarise(members)}"
        else:
            exists = any(set_of(row) == name for row in rows)
            yield f"{name}: {'not looked at' if exists else 'no rows'}"

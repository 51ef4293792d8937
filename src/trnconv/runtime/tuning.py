"""Tuning: the best candidates of the planner's closed form, timed on nkisim's schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trnconv.ask.launches import planned_parts
from trnconv.ask.question import Question
from trnconv.errors import UnsupportedError
from trnconv.forms.form import Priced
from trnconv.planner.best import choose
from trnconv.planner.tuned_file import TunedPlan, key_of
from trnconv.runtime.launch import time_plan

Watch = Callable[[int, int], None]  # candidates timed, of how many


def _unwatched(_done: int, _all: int) -> None:
    """Nobody looks."""


@dataclass(frozen=True)
class Timed:
    """A candidate with the time of its schedule (default reading)."""

    candidate: Priced
    ns: float
    bound: str


@dataclass(frozen=True)
class Tuning:
    """The candidates of a question in the order of the closed form; the first is its choice."""

    question: Question
    timed: tuple[Timed, ...]

    @property
    def planned(self) -> Timed:
        """What the closed form takes."""
        return self.timed[0]

    @property
    def winner(self) -> Timed:
        """The fastest; of equal ones the earlier."""
        return min(self.timed, key=lambda one: one.ns)

    @property
    def tuned(self) -> TunedPlan:
        """The winner as it is stored."""
        best = self.winner
        return TunedPlan(
            key_of(self.question),
            best.candidate.plan,
            best.ns,
            self.planned.ns,
            len(self.timed),
        )


def best_candidates(question: Question, count: int) -> list[Priced]:
    """The plan a search takes, then the fastest others by the closed form that are allowed."""
    choice = choose(question)
    found = [priced for offer in choice.offers for priced in offer.plans]
    found.sort(key=lambda priced: priced.cost.total_ns)
    return [choice.taken, *(priced for priced in found if priced.plan != choice.taken.plan)][:count]


def tune(question: Question, count: int, watch: Watch = _unwatched) -> tuple[Tuning, ...]:
    """Time the `count` best candidates; one tuning for each distinct launch of a convolution."""
    if question.reproducible:
        raise UnsupportedError(
            "tuning a reproducible convolution: which plan it gets must not depend on its size."
            " Tune without reproducible."
        )
    parts = planned_parts(question, lambda part: _tuned(part, count, watch))
    return tuple({launch.shape: tuning for launch, tuning in parts}.values())


def _tuned(question: Question, count: int, watch: Watch) -> Tuning:
    found = best_candidates(question, count)
    timed = []
    for candidate in found:
        timeline = time_plan(candidate.plan)
        timed.append(Timed(candidate, timeline.makespan_ns, timeline.bound))
        watch(len(timed), len(found))
    return Tuning(question, tuple(timed))

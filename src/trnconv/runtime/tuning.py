"""Tuning: the best candidates of the planner's closed form, timed on nkisim's schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from nkisim.machine import Reading
from trnconv.errors import UnsupportedError
from trnconv.geometry import TransposedShape
from trnconv.plan.choose import Choice, Priced, choose
from trnconv.plan.fast_candidates import PricedFast
from trnconv.plan.fast_choose import broken_promise, price_fast
from trnconv.plan.fast_plan import DEPTH, HEIGHT
from trnconv.plan.fast_transforms import TRANSFORMS
from trnconv.plan.parts import planned_parts
from trnconv.plan.question import Question, searched_plan, worth_a_search
from trnconv.plan.tuned_file import TunedPlan, key_of
from trnconv.runtime.modelled import time_plan

Candidate = Priced | PricedFast
Watch = Callable[[int, int], None]  # candidates timed, of how many


def _unwatched(_done: int, _all: int) -> None:
    """Nobody looks."""


@dataclass(frozen=True)
class Timed:
    """A candidate with the time of its schedule (default reading)."""

    candidate: Candidate
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


def best_candidates(question: Question, count: int) -> list[Candidate]:
    """The plan a search takes, then the fastest others by the closed form that are allowed."""
    taken = searched_plan(question)
    found: list[Candidate] = list(_all_of(choose(question.direct(), question.budget)))
    if worth_a_search(question):
        for transform in TRANSFORMS.values():
            if not broken_promise(transform, question.dtype, question.policy):
                for axis in (DEPTH, HEIGHT):
                    found += price_fast(question.fast(), transform.name, axis, question.budget)
    found.sort(key=lambda one: one.cost.total_ns)
    return [taken, *(one for one in found if one.plan != taken.plan)][:count]


def _all_of(choice: Choice) -> tuple[Priced, ...]:
    return (choice.taken, *choice.others)


def tune(question: Question, count: int, watch: Watch = _unwatched) -> tuple[Tuning, ...]:
    """Time the `count` best candidates; one tuning for each distinct launch of a convolution."""
    if question.reproducible:
        raise UnsupportedError(
            "tuning a reproducible convolution: which plan it gets must not depend on its size."
            " Tune without reproducible."
        )
    if isinstance(question.shape, TransposedShape):
        return (_tuned(question, count, watch),)
    parts = planned_parts(
        question.shape, lambda shape: _tuned(replace(question, shape=shape), count, watch)
    )
    return tuple({launch.shape: tuning for launch, tuning in parts}.values())


def _tuned(question: Question, count: int, watch: Watch) -> Tuning:
    found = best_candidates(question, count)
    timed = []
    for candidate in found:
        timeline = time_plan(candidate.plan, question.shape, Reading.default)
        timed.append(Timed(candidate, timeline.makespan_ns, timeline.bound))
        watch(len(timed), len(found))
    return Tuning(question, tuple(timed))

"""Tuning: the best candidates of the planner's closed form, timed on nkisim's schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trnconv.ask.launches import planned_parts
from trnconv.ask.question import Question
from trnconv.errors import UnsupportedError
from trnconv.forms.form import Plan, Priced
from trnconv.forms.search import thorough_search
from trnconv.planner.best import choose, searched_plan
from trnconv.planner.shares import launch_ns, plans_of_two, searched_pair, thorough_pairs
from trnconv.planner.table import form_of
from trnconv.planner.tuned_file import TunedPlan, key_of
from trnconv.runtime.launch import time_plan, time_plans

# By how much a plan may be slower by the closed form to be scheduled: what that form may be off.
_CLOSE = 1.02
Watch = Callable[[int, int], None]  # candidates timed, of how many
Launch = tuple[Priced, ...]  # a plan for each core


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
        return min(self.timed, key=lambda candidate: candidate.ns)

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
    candidates = best_candidates(question, count)
    timed = []
    for candidate in candidates:
        timeline = time_plan(candidate.plan)
        timed.append(Timed(candidate, timeline.makespan_ns, timeline.bound))
        watch(len(timed), len(candidates))
    return Tuning(question, tuple(timed))


@dataclass(frozen=True)
class Effort:
    """How much is tried for a launch.

    Long programs take minutes to schedule, and the closed form is within a part in a hundred of
    their schedules: it is their judge.
    """

    candidates: int = 4  # timed by their schedules; 1: what a search takes, and nothing else
    longest: int = 1000  # static instructions of a program that is scheduled


@dataclass(frozen=True)
class TunedLaunch:
    """The plans of a launch, one for each core."""

    plans: Launch
    tried: int  # candidates of the effort that was made; 0: they are what a search takes


def tuned_launch(question: Question, cores: int, effort: Effort) -> TunedLaunch:
    """What a search takes; of short programs, the candidate whose schedule ends first."""
    searched = searched_pair(question) if cores > 1 else (searched_plan(question),)
    return better_launch(question, searched, effort)


def better_launch(question: Question, launch: Launch, effort: Effort) -> TunedLaunch:
    """The fastest of these plans, which a search took, and others that a search has no time for.

    Among short programs that are close, their schedules decide.
    """
    if effort.candidates == 1:
        return TunedLaunch(launch, 0)
    launch = _thorough(question, launch)
    if not _is_scheduled(launch, effort):
        return TunedLaunch(launch, effort.candidates)
    others = (
        plans_of_two(answer, question) if len(launch) > 1 else (answer,)
        for answer in best_candidates(question, effort.candidates)
    )
    return TunedLaunch(fastest_launch([launch, *others], effort), effort.candidates)


def fastest_launch(launches: Sequence[Launch], effort: Effort) -> Launch:
    """Of plans for one launch the fastest; among short programs that are close, by schedule."""
    best = min(launches, key=launch_ns)
    if not _is_scheduled(best, effort):
        return best
    close = {
        _decisions(launch): launch
        for launch in launches
        if launch_ns(launch) <= _CLOSE * launch_ns(best) and _is_scheduled(launch, effort)
    }
    return min(close.values(), key=_scheduled_ns) if len(close) > 1 else best


def _is_scheduled(launch: Launch, effort: Effort) -> bool:
    """Whether its programs are short enough for schedules to be the judge."""
    longest = max(answer.cost.instructions for answer in launch)
    return effort.candidates > 1 and longest <= effort.longest


def _thorough(question: Question, launch: Launch) -> Launch:
    """The fastest by the closed form, of the same form of kernels; these, if none is faster."""
    form = form_of(launch[0].plan)
    if len(launch) > 1:
        others: list[Launch] = [*thorough_pairs(form, question)]
    else:
        others = [(plan,) for plan in thorough_search(form, question)[:1]]
    return min([launch, *others], key=launch_ns)


def _scheduled_ns(launch: Launch) -> float:
    return time_plans(_decisions(launch)).makespan_ns


def _decisions(launch: Launch) -> tuple[Plan, ...]:
    return tuple(priced.plan for priced in launch)

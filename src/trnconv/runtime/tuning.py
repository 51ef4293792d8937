"""Tuning: the best candidates of the planner's cost model, timed on nkisim's schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trnconv.algorithms.algorithm import Plan, Priced
from trnconv.algorithms.search import thorough_search
from trnconv.errors import UnsupportedError
from trnconv.planner.best import choose, searched_plan
from trnconv.planner.shares import launch_ns, plans_of_two, searched_pair, thorough_pairs
from trnconv.planner.table import algorithm_of
from trnconv.planner.tuned_file import TunedPlan, key_of
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.launches import planned_parts
from trnconv.runtime.launch import time_plan, time_plans

# By how much a plan may be slower by the cost model to be scheduled: what the model may be off.
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
    """The candidates of a problem in the order of the cost model; the first is its choice."""

    problem: ConvProblem
    timed: tuple[Timed, ...]

    @property
    def planned(self) -> Timed:
        """What the cost model takes."""
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
            key_of(self.problem),
            best.candidate.plan,
            best.ns,
            self.planned.ns,
            len(self.timed),
        )


def best_candidates(problem: ConvProblem, count: int) -> list[Priced]:
    """The plan a search takes, then the fastest others by the cost model that are allowed."""
    choice = choose(problem)
    candidates = [priced for offer in choice.offers for priced in offer.plans]
    candidates.sort(key=lambda priced: priced.cost.total_ns)
    return [choice.taken, *(priced for priced in candidates if priced.plan != choice.taken.plan)][
        :count
    ]


def tune(problem: ConvProblem, count: int, watch: Watch = _unwatched) -> tuple[Tuning, ...]:
    """Time the `count` best candidates; one tuning for each distinct launch of a convolution."""
    if problem.reproducible:
        raise UnsupportedError(
            "tuning a reproducible convolution: which plan it gets must not depend on its size."
            " Tune without reproducible."
        )
    parts = planned_parts(problem, lambda part: _tuned(part, count, watch))
    return tuple({launch.shape: tuning for launch, tuning in parts}.values())


def _tuned(problem: ConvProblem, count: int, watch: Watch) -> Tuning:
    candidates = best_candidates(problem, count)
    timed = []
    for candidate in candidates:
        timeline = time_plan(candidate.plan)
        timed.append(Timed(candidate, timeline.makespan_ns, timeline.bound))
        watch(len(timed), len(candidates))
    return Tuning(problem, tuple(timed))


@dataclass(frozen=True)
class Effort:
    """How much is tried for a launch.

    Long programs take minutes to schedule, and the cost model is within a part in a hundred of
    their schedules: it is their judge.
    """

    candidates: int = 4  # timed by their schedules; 1: what a search takes, and nothing else
    longest: int = 1000  # static instructions of a program that is scheduled


@dataclass(frozen=True)
class TunedLaunch:
    """The plans of a launch, one for each core."""

    plans: Launch
    tried: int  # candidates of the effort that was made; 0: they are what a search takes


def tuned_launch(problem: ConvProblem, cores: int, effort: Effort) -> TunedLaunch:
    """What a search takes; of short programs, the candidate whose schedule ends first."""
    searched = searched_pair(problem) if cores > 1 else (searched_plan(problem),)
    return better_launch(problem, searched, effort)


def better_launch(problem: ConvProblem, launch: Launch, effort: Effort) -> TunedLaunch:
    """The fastest of these plans, which a search took, and others that a search has no time for.

    Among short programs that are close, their schedules decide.
    """
    if effort.candidates == 1:
        return TunedLaunch(launch, 0)
    launch = _thorough(problem, launch)
    if not _is_scheduled(launch, effort):
        return TunedLaunch(launch, effort.candidates)
    others = (
        plans_of_two(answer, problem) if len(launch) > 1 else (answer,)
        for answer in best_candidates(problem, effort.candidates)
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


def _thorough(problem: ConvProblem, launch: Launch) -> Launch:
    """The fastest by the cost model, of the same algorithm; these, if none is faster."""
    algorithm = algorithm_of(launch[0].plan)
    if len(launch) > 1:
        others: list[Launch] = [*thorough_pairs(algorithm, problem)]
    else:
        others = [(plan,) for plan in thorough_search(algorithm, problem)[:1]]
    return min([launch, *others], key=launch_ns)


def _scheduled_ns(launch: Launch) -> float:
    return time_plans(_decisions(launch)).makespan_ns


def _decisions(launch: Launch) -> tuple[Plan, ...]:
    return tuple(priced.plan for priced in launch)

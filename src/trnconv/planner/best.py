"""Which plan is taken: every algorithm is asked, and the fastest answer wins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from trnconv.algorithms.algorithm import Algorithm, Priced
from trnconv.algorithms.search import search, why_unsupported
from trnconv.errors import PlanError
from trnconv.planner.shipped_plans import narrower_answer, shipped_answer
from trnconv.planner.table import ALGORITHMS, algorithm_named
from trnconv.planner.tuned_plans import tuned_plan
from trnconv.problem.conv_problem import ConvProblem, of_one_frame
from trnconv.problem.describe import describe_call


@dataclass(frozen=True)
class Offer:
    """What a family of an algorithm gives: legal plans, the fastest first, or why there is none."""

    algorithm: str
    family: str
    plans: tuple[Priced, ...]
    refused: str  # in words; empty if there are plans

    @property
    def best(self) -> Priced:
        """Its fastest plan."""
        return self.plans[0]


@dataclass(frozen=True)
class Choice:
    """The plan taken, and what every algorithm offered."""

    problem: ConvProblem
    taken: Priced
    offers: tuple[Offer, ...]


def best_plan(problem: ConvProblem) -> Priced:
    """The plan that was tuned for this very problem, a shipped one, else what a search finds."""
    tuned = tuned_plan(problem)
    if tuned is not None:
        return tuned
    shipped = shipped_answer(problem, 1)
    if shipped is not None:
        return shipped[0]
    candidates = (searched_plan(problem), *(narrower_answer(problem, 1) or ()))
    return min(candidates, key=lambda priced: priced.cost.total_ns)


def searched_plan(problem: ConvProblem) -> Priced:
    """The fastest plan within the budget that the policy allows, by the cost model."""
    return _beyond_the_first(problem) or choose(problem).taken


def _beyond_the_first(problem: ConvProblem) -> Priced | None:
    """A plan that wins whatever the first algorithm offers; None if that one has to be asked.

    Half of a search's time is the direct algorithm's, which often cannot be as fast as F(2,3) is.
    """
    floor_ns = first_floor_ns(problem)
    if problem.reproducible or not floor_ns:
        return None
    winner = _fastest(tuple(_offers(problem, ALGORITHMS[1:])))
    if winner is None:
        return None
    enough = 1 - algorithm_named(winner.plan.algorithm).least_gain
    return winner if winner.cost.total_ns < enough * floor_ns else None


def first_floor_ns(problem: ConvProblem) -> float:
    """A lower bound on the first algorithm's plans; 0 if it is not asked, or does not say."""
    is_asked = not problem.algorithms and ALGORITHMS[0].direction == problem.direction
    return ALGORITHMS[0].floor_ns(problem) if is_asked else 0.0


def first_offer(problem: ConvProblem) -> Priced | None:
    """The best plan of the first algorithm that is asked; None if it has none."""
    offer = next(offers_of(problem), None)
    return offer.best if offer and offer.plans else None


def choose(problem: ConvProblem) -> Choice:
    """Ask every algorithm; PlanError if none has a plan.

    An algorithm is taken if it is faster than those before it in the table, by as much as it has
    to be. With `reproducible`, what is taken does not depend on frames, pieces or images: it is
    the algorithm that wins for a single frame.
    """
    offers = tuple(offers_of(problem))
    several = len({offer.algorithm for offer in offers if not offer.refused}) > 1
    if problem.reproducible and several and problem != of_one_frame(problem):
        winner: Priced | None = _like(choose(of_one_frame(problem)).taken, problem, offers)
    else:
        winner = _fastest(offers)
    if winner is None:
        reasons = _reasons(problem, offers)
        raise PlanError(f"{describe_call(problem)}: {reasons}.")
    return Choice(problem, winner, offers)


def offers_of(problem: ConvProblem) -> Iterator[Offer]:
    """What each algorithm gives that a search may gain from."""
    return _offers(problem, ALGORITHMS)


def is_searched(problem: ConvProblem) -> bool:
    """Whether any algorithm takes a problem before plans are looked for; there may be none."""
    return any(
        not _refusal(algorithm, problem, family)
        for algorithm, family in _asked(problem, ALGORITHMS)
    )


def _offers(problem: ConvProblem, algorithms: Iterable[Algorithm[Any]]) -> Iterator[Offer]:
    return (_offer(algorithm, problem, family) for algorithm, family in _asked(problem, algorithms))


def _asked(
    problem: ConvProblem, algorithms: Iterable[Algorithm[Any]]
) -> Iterator[tuple[Algorithm[Any], str]]:
    for algorithm in algorithms:
        named = algorithm.name in problem.algorithms
        worth = named if problem.algorithms else algorithm.is_worth_asking(problem)
        if worth and algorithm.direction == problem.direction:
            yield from ((algorithm, family) for family in algorithm.families(problem))


def _offer(algorithm: Algorithm[Any], problem: ConvProblem, family: str) -> Offer:
    refused = _refusal(algorithm, problem, family)
    plans = () if refused else search(algorithm, problem, family)
    if not plans and not refused:
        refused = f"{family}: {why_unsupported(algorithm, problem, family)}"
    return Offer(algorithm.name, family, plans, refused)


def _refusal(algorithm: Algorithm[Any], problem: ConvProblem, family: str) -> str:
    """Why a family has no plan at all, in words; empty if it is searched."""
    lacks = algorithm.unsupported_operands(problem)
    return f"{family}: {lacks}" if lacks else algorithm.unsupported(problem, family)


def _fastest(offers: tuple[Offer, ...]) -> Priced | None:
    winner: Priced | None = None
    for algorithm in ALGORITHMS:
        candidates = [
            offer.best for offer in offers if offer.algorithm == algorithm.name and offer.plans
        ]
        if not candidates:
            continue
        enough = 1 - algorithm.least_gain
        best = _most_exact(candidates, enough)
        if winner is None or best.cost.total_ns < enough * winner.cost.total_ns:
            winner = best
    return winner


def _most_exact(candidates: list[Priced], enough: float) -> Priced:
    """Of the best plans of an algorithm's families, that of the least error among the fastest.

    A more exact one is taken unless another gains what an algorithm has to gain.
    """
    least = min(priced.cost.weighed_ns for priced in candidates)
    close = [priced for priced in candidates if enough * priced.cost.weighed_ns <= least]
    return min(close, key=lambda priced: (priced.plan.expected_ratio, priced.cost.weighed_ns))


def _like(alone: Priced, problem: ConvProblem, offers: tuple[Offer, ...]) -> Priced:
    """The best plan of the algorithm that a single frame gets."""
    for offer in offers:
        if offer.family == alone.plan.family and offer.plans:
            return offer.best
    raise PlanError(
        f"{describe_call(problem)}: one frame is computed by {alone.plan.family}, and so many"
        ' frames cannot be. Ask for accuracy="direct", or for fewer frames at once.'
    )


def _reasons(problem: ConvProblem, offers: tuple[Offer, ...]) -> str:
    named = problem.algorithms or tuple(algorithm.name for algorithm in ALGORITHMS)
    nobody = f"none of {', '.join(named)} computes the {problem.direction}"
    return "; ".join(dict.fromkeys(offer.refused for offer in offers)) or nobody


def others_for_halves(
    winner: Priced, problem: ConvProblem, *, every: bool
) -> list[tuple[Algorithm[Any], str]]:
    """Algorithms beyond the first algorithm's that may win for halves of a problem, by their names.

    Those without a plan within the budget, which halves may have; or every one.
    """
    others = []
    for algorithm, family in _asked(problem, ALGORITHMS[1:]):
        is_other = family != winner.plan.family and not _refusal(algorithm, problem, family)
        if is_other and algorithm.pair_kernels:
            wanted = every or not search(algorithm, problem, family)
            others += [(algorithm, family)] if wanted else []
    return others


def plans_like(priced: Priced, problem: ConvProblem) -> tuple[Priced, ...]:
    """Plans of the same algorithm for another problem, the fastest first."""
    algorithm, family = algorithm_named(priced.plan.algorithm), priced.plan.family
    return () if algorithm.unsupported(problem, family) else search(algorithm, problem, family)


def only(problem: ConvProblem, *names: str) -> ConvProblem:
    """The same, to be computed by these algorithms."""
    return replace(problem, algorithms=names)

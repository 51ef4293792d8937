"""The one search: price what an algorithm proposes, keep what is legal, take the fastest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from math import inf

from trnconv.algorithms.algorithm import Algorithm, P, Priced
from trnconv.algorithms.program import prepared, timed
from trnconv.problem.conv_problem import WEIGHT_GRADIENT, ConvProblem

# Numbers that were tried on the 194 forward problems of tests/support/pinned_problems.py have their
# effect beside them: how many plans are others, and what that does to the cost model's times.
_REFINED = 2
_ANY_LENGTH = 10**9  # static instructions
_REMEMBERED = 256  # problems; graphs ask for each of theirs with several budgets
_HOPELESS = 1.15  # without a bound: the same plans; 1.05: too; 1.0: two others, 0.4 % slower
_SHORT = 350  # instructions, as a compiler counts them, of a program that is scheduled: 20 ms
_SCHEDULED = 3  # of those, the first. By schedule: geomean 0.970 of before; 6 of 400: 0.967


@lru_cache(maxsize=_REMEMBERED)
def search(algorithm: Algorithm[P], problem: ConvProblem, family: str) -> tuple[Priced, ...]:
    """Legal plans of an algorithm within the problem's budget, the fastest first."""
    legal = _proposed(
        algorithm, problem if algorithm.keeps_budget else _of_any_length(problem), family
    )
    ranked = _within(algorithm, problem, family, legal)
    if not ranked:
        more = tuple(_legal(algorithm, algorithm.more_candidates(problem, family)))
        ranked = _within(algorithm, problem, family, more)
    if problem.reproducible:
        ranked = [priced for priced in ranked if priced.plan.is_reproducible]
    return tuple(ranked if _leaves_outputs(problem) else _scheduled(algorithm, ranked))


def thorough_search(algorithm: Algorithm[P], problem: ConvProblem) -> list[Priced]:
    """Plans of all families that an algorithm proposes if time does not matter, best first."""
    families = [
        name for name in algorithm.families(problem) if not algorithm.unsupported(problem, name)
    ]
    plans = (plan for family in families for plan in algorithm.thorough(problem, family))
    legal = _legal(algorithm, plans)
    return [priced for priced in legal if priced.cost.instructions <= problem.budget]


def _leaves_outputs(problem: ConvProblem) -> bool:
    """Whether a core alone may leave an output, the bias gradient, unwritten: it is never run."""
    return problem.core_split is not None and problem.direction == WEIGHT_GRADIENT


def _of_any_length(problem: ConvProblem) -> ConvProblem:
    """The same for every budget."""
    return replace(problem, budget=_ANY_LENGTH)


@lru_cache(maxsize=_REMEMBERED)
def _proposed(algorithm: Algorithm[P], problem: ConvProblem, family: str) -> tuple[Priced, ...]:
    """Legal plans, the fastest first."""
    legal = _legal(algorithm, algorithm.candidates(problem, family))
    variants = [
        plan
        for priced in legal[:_REFINED]
        for plan in algorithm.refined(of_algorithm(algorithm, priced), priced.cost)
    ]
    if not variants:
        return tuple(legal)
    return tuple(_ranked(algorithm, [*legal[_REFINED:], *_legal(algorithm, variants)]))


def _within(
    algorithm: Algorithm[P], problem: ConvProblem, family: str, legal: tuple[Priced, ...]
) -> list[Priced]:
    """Plans short enough, some of them by hardware loops; the fastest first."""
    within = [priced for priced in legal if priced.cost.instructions <= problem.budget]
    if within[:1] == list(legal[:1]):
        return within
    return _ranked(algorithm, [*within, *algorithm.looped(algorithm, problem, family, legal)])


def _legal(algorithm: Algorithm[P], plans: Iterable[P]) -> list[Priced]:
    """What is legal, priced. Plans that take far longer than the best at least need no price."""
    legal: list[Priced] = []
    best = inf
    for plan in plans:
        if algorithm.least_ns(plan) > _HOPELESS * best or algorithm.violations(plan):
            continue
        cost = algorithm.cost(plan)
        legal.append(Priced(plan, cost))
        best = min(best, cost.total_ns)
    return _ranked(algorithm, legal)


def _ranked(algorithm: Algorithm[P], plans: Iterable[Priced]) -> list[Priced]:
    """The fastest first; where times are close, the one that moves less."""
    return sorted(plans, key=lambda priced: algorithm.rank(priced.cost))


def _scheduled(algorithm: Algorithm[P], ranked: list[Priced]) -> list[Priced]:
    """The most promising of short programs by their schedule: latencies decide, not busy times."""
    few = [priced for priced in ranked[:_SCHEDULED] if priced.cost.instructions <= _SHORT]
    if ranked[:1] != few[:1]:
        return ranked
    rest = [priced for priced in ranked if priced not in few]
    return [*_ranked(algorithm, (by_schedule(algorithm, priced) for priced in few)), *rest]


def by_schedule(algorithm: Algorithm[P], priced: Priced) -> Priced:
    """The same plan with the time of its schedule."""
    cost = priced.cost
    ns = timed(prepared(algorithm, (priced.plan,))).makespan_ns
    weighed_ns = cost.weighed_ns + ns - cost.total_ns
    return replace(priced, cost=replace(cost, total_ns=ns, weighed_ns=weighed_ns, scheduled=True))


def best_body(algorithm: Algorithm[P], bodies: Iterable[P], budget: int) -> Priced | None:
    """Of hardware loops with longer and longer iterations, the fastest that the budget allows.

    An iteration that is long enough makes little of what iterations cost; longer ones are not
    tried.
    """
    best: Priced | None = None
    for plan in bodies:
        cost = algorithm.cost(plan)
        if cost.instructions > budget:
            break
        if best is None or cost.total_ns < best.cost.total_ns:
            if algorithm.violations(plan):
                break
            best = Priced(plan, cost)
        if not cost.waits_for_iterations:
            break
    return best


def of_algorithm(algorithm: Algorithm[P], priced: Priced) -> P:
    """The plan, known to be of this algorithm."""
    assert isinstance(priced.plan, algorithm.plan_type)
    return priced.plan


def why_unsupported(algorithm: Algorithm[P], problem: ConvProblem, family: str) -> str:
    """Why a search found nothing, in words."""
    plans = algorithm.candidates(_of_any_length(problem), family)
    if any(not algorithm.violations(plan) for plan in plans):
        limit = f"at most {problem.budget} static instructions"
        return f"no plan with {limit}: raise the budget, or split the problem"
    broken = [algorithm.violations(plan) for plan in algorithm.candidates(problem, family)]
    rules = dict.fromkeys(rule for rules in broken for rule in rules)
    return "; ".join(rules) or "no block is small enough for SBUF"

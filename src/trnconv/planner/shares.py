"""Two cores of a launch: each gets a plan for its half."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import inf
from typing import Any

from trnconv.algorithms.algorithm import Algorithm, Plan, Priced
from trnconv.algorithms.search import search, thorough_search
from trnconv.errors import PlanError
from trnconv.planner.best import (
    first_floor_ns,
    first_offer,
    others_for_halves,
    plans_like,
    searched_plan,
)
from trnconv.planner.shipped_plans import narrower_answer, shipped_answer
from trnconv.planner.table import algorithm_named, algorithm_of, priced
from trnconv.planner.tuned_plans import tuned_plan
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.describe import describe_call

Pair = tuple[Priced, Priced]
Halves = tuple[ConvProblem, ConvProblem]
_TRIED = 16  # plans of each half that are looked through for loops that agree
_MIRRORED = 4  # plans of the first half that the second one may have, too
# Of half of one core's time: a pair that takes no more is taken, and no other cut is searched.
_EVEN = 1.01


def shared_plans(problem: ConvProblem) -> Pair:
    """The plans of two cores: tuned, shipped or searched.

    Where a plan was tuned (on one core), both have its decisions, or at least its algorithm.
    """
    stored = tuned_plan(problem)
    if stored is not None:
        return plans_of_two(stored, problem)
    shipped = shipped_answer(problem, 2)
    if shipped is not None:
        return shipped[0], shipped[1]
    searched, narrower = searched_pair(problem), narrower_answer(problem, 2)
    return min([searched, (narrower[0], narrower[1])], key=_slower_ns) if narrower else searched


def searched_pair(problem: ConvProblem) -> Pair:
    """Of all ways to halve a problem, the plans whose slower core ends soonest.

    Both have the algorithm that wins on one core, the first algorithm, or one that halves have a
    plan of where the whole has none, where iterations of its loops cost, or where the winner has
    no halves; with `reproducible`, the first of these. Both have the same hardware loops: a device
    takes no others. What cannot be halved is computed by both cores, which write the same. Programs
    of a few microseconds may take some percent longer in halves: what they wait for does not get
    shorter.
    """
    winner = searched_plan(problem)
    answers, pairs = [winner], _halved(winner, problem)
    least = min((_slower_ns(pair) for pair in pairs), default=inf)
    worth_asking = 2 * least > max(_EVEN * winner.cost.total_ns, first_floor_ns(problem))
    if worth_asking and not problem.reproducible:
        first = first_offer(problem)
        answers += [first] if first and first != winner else []
        pairs += [pair for answer in answers[1:] for pair in _halved(answer, problem)]
    if not problem.reproducible:
        pairs += _of_others(winner, problem, pairs)
    pairs = pairs or [
        (answer, answer)
        for answer in answers
        if algorithm_named(answer.plan.algorithm).pair_kernels
    ]
    if not pairs:
        raise _no_kernel(problem)
    return min(pairs, key=_slower_ns)


def _of_others(winner: Priced, problem: ConvProblem, known: list[Pair]) -> list[Pair]:
    """Pairs of plans that halves may have by other algorithms, if they gain what those have to.

    Where none is known, every algorithm is asked, and has to gain over two cores that both compute
    everything.
    """
    pairs = []
    least = min(map(_slower_ns, known), default=winner.cost.total_ns)
    every = winner.cost.waits_for_iterations or not known
    for algorithm, family in others_for_halves(winner, problem, every=every):
        for halves in algorithm.core_splits(problem):
            pair = None
            if not algorithm.unsupported(halves[0], family):
                pair = _mirrored(search(algorithm, halves[0], family), halves)
            if pair and _slower_ns(pair) < (1 - algorithm.least_gain) * least:
                pairs.append(pair)
    return pairs


def thorough_pairs(algorithm: Algorithm[Any], problem: ConvProblem) -> list[Pair]:
    """Plans of two cores that a search has no time for: the best of each way to halve it."""
    pairs = []
    for halves in algorithm.core_splits(problem) if algorithm.pair_kernels else ():
        for first in thorough_search(algorithm, halves[0])[:_MIRRORED]:
            second = _moved(first, halves[1])
            if second and _are_alike(first, second):
                pairs.append((first, second))
                break
    return pairs


def plans_of_two(answer: Priced, problem: ConvProblem) -> Pair:
    """Plans of two cores by the algorithm of one core's plan, and its decisions if they fit."""
    if not algorithm_of(answer.plan).pair_kernels:
        raise _no_kernel(problem)
    return min(_halved(answer, problem) or [(answer, answer)], key=_slower_ns)


def _no_kernel(problem: ConvProblem) -> PlanError:
    return PlanError(
        f"{describe_call(problem)}, two cores: no algorithm computes it. Ask for one core."
    )


def pair_ns(pair: Pair) -> float:
    """What both cores take, the slower one and the barrier at which they meet."""
    return _slower_ns(pair) + pair[0].plan.timing.core_barrier_ns


def launch_ns(launch: tuple[Priced, ...]) -> float:
    """What a launch takes: one core's plan, or a pair."""
    return pair_ns((launch[0], launch[1])) if len(launch) > 1 else launch[0].cost.total_ns


def _slower_ns(pair: Pair) -> float:
    return max(priced.cost.total_ns for priced in pair)


def _slower_rank(pair: Pair) -> tuple[float, ...]:
    """What plans are ranked by: where times are close, traffic counts."""
    return max(algorithm_of(priced.plan).rank(priced.cost) for priced in pair)


def _is_even(pair: Pair, alone: Priced) -> bool:
    """Whether two cores take hardly more than half of one core's time."""
    return 2 * _slower_ns(pair) <= _EVEN * alone.cost.total_ns


def _halved(answer: Priced, problem: ConvProblem) -> list[Pair]:
    """The best pair of plans like this one, for ways to halve the problem until one is even.

    One core's own decisions come first: often they are as good for halves of the rows, and halves
    are then not searched. They are not where iterations of loops cost: a half has longer ones.
    """
    algorithm = algorithm_named(answer.plan.algorithm)
    pairs: list[Pair] = []
    for halves in algorithm.core_splits(problem) if algorithm.pair_kernels else ():
        pair = None if answer.cost.waits_for_iterations else _with_decisions_of(answer, halves)
        if pair is None or not _is_even(pair, answer):
            pair = _searched(answer, halves)
        pairs += [pair] if pair else []
        if pair and _is_even(pair, answer):
            break
    return pairs


def _with_decisions_of(answer: Priced, halves: Halves) -> Pair | None:
    """One core's plan for both halves, if it can be."""
    first = None if _has_own_channels(halves) else _moved(answer, halves[0])
    second = first and _moved(first, halves[1])
    return (first, second) if first and second and _are_alike(first, second) else None


def _searched(answer: Priced, halves: Halves) -> Pair | None:
    """The best plans for both halves; where it can be, the second one has the first one's."""
    pair = plans_like(answer, halves[0])
    return _mirrored(pair, halves) or in_step(pair, plans_like(answer, halves[1]))


def _mirrored(candidates: tuple[Priced, ...], halves: Halves) -> Pair | None:
    """One of the first plans of a half whose decisions suit the other one, too."""
    for first in () if _has_own_channels(halves) else candidates[:_MIRRORED]:
        second = _moved(first, halves[1])
        if second and _are_alike(first, second):
            return first, second
    return None


def _has_own_channels(halves: Halves) -> bool:
    """Whether each core has output channels of its own, so that plans cannot be moved."""
    one, two = (half.core_split.channels if half.core_split else None for half in halves)
    return one != two


def _moved(winner: Priced, half: ConvProblem) -> Priced | None:
    """A plan's decisions for a half; None if a schedule priced it, or they are not legal there."""
    algorithm = algorithm_of(winner.plan)
    if winner.cost.scheduled or algorithm.unsupported(half, winner.plan.family):
        return None
    plan = algorithm.moved(winner.plan, half)
    if algorithm.violations(plan):
        return None
    moved = priced(plan)
    return moved if moved.cost.instructions <= half.budget else None


def _are_alike(first: Priced, second: Priced) -> bool:
    """Whether the second core is about as fast, in the same hardware loops."""
    close = second.cost.total_ns <= _EVEN * first.cost.total_ns
    return close and loops(first.plan) == loops(second.plan)


def in_step(first: tuple[Priced, ...], second: tuple[Priced, ...]) -> Pair | None:
    """Of the fastest plans of both halves, two with the same loops."""
    pairs = sorted(product(first[:_TRIED], second[:_TRIED]), key=_slower_rank)
    return next((pair for pair in pairs if loops(pair[0].plan) == loops(pair[1].plan)), None)


@lru_cache(maxsize=1024)
def loops(plan: Plan) -> tuple[int, ...]:
    """Trips of the hardware loops of a plan's program, in their order."""
    return algorithm_of(plan).loops(plan) if plan.is_looped else ()

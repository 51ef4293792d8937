"""The direct algorithm, as a row of the planner's table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trnconv.algorithms.algorithm import Algorithm, Cost, Priced
from trnconv.algorithms.direct import kernel
from trnconv.algorithms.direct.array.summation import keeps_orders
from trnconv.algorithms.direct.candidates import Task, candidates, halves, refined
from trnconv.algorithms.direct.cost import cost_of, floor_ns, least_tensor_ns
from trnconv.algorithms.direct.length import bodies
from trnconv.algorithms.direct.loops import trips_of
from trnconv.algorithms.direct.lower import lower
from trnconv.algorithms.direct.pack import bias_channels, pack, sources
from trnconv.algorithms.direct.plan import DirectPlan
from trnconv.algorithms.direct.reduced_problem import fold, reduced_problem_of
from trnconv.algorithms.direct.rules import violations
from trnconv.algorithms.direct.words import decisions
from trnconv.algorithms.search import best_body, of_algorithm
from trnconv.problem.conv_problem import FORWARD, ConvProblem

_LOOPED_TRIES = 6


def _refined(plan: DirectPlan, cost: Cost) -> Iterator[DirectPlan]:
    """Small blocks at the ends; loads before stores, if DMA binds."""
    return refined(plan, moving=cost.bound == "dma" and plan.is_plain)


def _looped(
    algorithm: Algorithm[DirectPlan], problem: ConvProblem, family: str, legal: tuple[Priced, ...]
) -> list[Priced]:
    """Hardware loops in place of equal blocks, for the fastest plans they make short enough."""
    del family
    looped: list[Priced] = []
    for priced in legal:
        plan = of_algorithm(algorithm, priced)
        if plan.lead or plan.ahead:
            continue
        best = best_body(algorithm, bodies(plan.but(looped=True), problem.budget), problem.budget)
        looped += [best] if best else []
        if len(looped) == _LOOPED_TRIES:
            break
    return looped


def _violations_for(plan: DirectPlan, problem: ConvProblem) -> list[str]:
    if problem.exact and not plan.exact_for_non_finite():
        return ["exact=True was asked for, and it spreads Inf and NaN"]
    return []


def _sums_alike(part: ConvProblem, whole: ConvProblem) -> bool:
    """Whether output channels that are computed apart keep their order of sums."""
    return keeps_orders(*(fold(asked.shape, every_tap=True) for asked in (part, whole)))


def _problem_fields(problem: ConvProblem) -> dict[str, Any]:
    return {"shape": problem.shape, "reduced": reduced_problem_of(problem)}


def _moved(plan: DirectPlan, problem: ConvProblem) -> DirectPlan:
    """With the rows and columns of a share; its channels are those of the plan."""
    moved = plan.but(**_problem_fields(problem))
    rows, columns = Task.of(problem).rows, problem.core_split and problem.core_split.columns
    return moved.but(rows_of=rows, columns_of=columns or (0, 0))


DIRECT = Algorithm(
    name=DirectPlan.algorithm,
    plan_type=DirectPlan,
    families=lambda _: (DirectPlan.algorithm,),
    unsupported=lambda problem, family: (
        "" if problem.direction == FORWARD else f"{family}: it computes no {problem.direction}"
    ),
    candidates=lambda problem, _: candidates(Task.of(problem)),
    more_candidates=lambda problem, _: candidates(Task.of(problem), thorough=True),
    least_ns=least_tensor_ns,
    floor_ns=floor_ns,
    cost=cost_of,
    violations=violations,
    violations_for=_violations_for,
    refined=_refined,
    looped=_looped,
    core_splits=halves,
    loops=trips_of,
    sums_alike=_sums_alike,
    moved=_moved,
    problem_fields=_problem_fields,
    decisions=decisions,
    lower=lower,
    pack=pack,
    bias_channels=bias_channels,
    sources=sources,
    kernels=(kernel.forward, kernel.forward_of_two, kernel.forward_of_three),
    pair_kernels=(
        kernel.forward_on_two_cores,
        kernel.forward_of_two_on_two_cores,
        kernel.forward_of_three_on_two_cores,
    ),
    takes_residual=True,
    takes_coarse_residual=True,
)

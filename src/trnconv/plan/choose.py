"""Choosing a plan: price the candidates, keep what is legal, take the fastest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from nkisim.machine import Machine
from trnconv.errors import PlanError
from trnconv.geometry import ConvShape, TransposedShape
from trnconv.plan.candidates import Request, candidates, refined
from trnconv.plan.conv_plan import ConvPlan
from trnconv.plan.estimate import Estimate, estimate, least_tensor_ns
from trnconv.plan.legality import broken_rules
from trnconv.plan.problem import HEIGHT, fold

DEFAULT_BUDGET = 20_000  # static instructions of one call; a graph may have 5 M
_BODY_NS = 300_000.0  # a turn of a hardware loop that long hides what the turn itself costs
_BODY_BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16)
_ROLLED_TRIES = 6
_REFINED = 2
_REMEMBERED = 64  # requests; graphs ask for each of theirs with several budgets
_HOPELESS = 1.15
_HEAVY = 2.25  # times the least traffic; more is taken only if it brings 4 %
_HEAVY_PRICE = 1.04
_TRAFFIC_WEIGHT = 0.06  # what hides behind the Tensor engine in the model may not on a device


@dataclass(frozen=True)
class Priced:
    """A legal plan and its cost."""

    plan: ConvPlan
    cost: Estimate


@dataclass(frozen=True)
class Choice:
    """The plan taken, and those that lost, the fastest first."""

    taken: Priced
    others: tuple[Priced, ...]
    budget: int


def choose(request: Request, budget: int = DEFAULT_BUDGET) -> Choice:
    """The fastest legal plan with at most `budget` static instructions."""
    legal = list(_unrolled(request))
    found = _within(legal, budget)
    if not found:
        found = _within(_legal(candidates(request, thorough=True)), budget)
    if not found:
        raise PlanError(_nothing_found(request, legal, budget))
    return Choice(found[0], tuple(found[1:]), budget)


@lru_cache(maxsize=_REMEMBERED)
def _unrolled(request: Request) -> tuple[Priced, ...]:
    """Legal plans of any length, the fastest first: the same for every budget."""
    legal = _legal(candidates(request))
    variants = [
        plan
        for one in legal[:_REFINED]
        for plan in refined(one.plan, moving=one.cost.bound == "dma" and one.plan.is_plain)
    ]
    return tuple(_ranked([*legal[_REFINED:], *_legal(variants)]))


def _within(legal: list[Priced], budget: int) -> list[Priced]:
    """Plans short enough, some of them by hardware loops; the fastest first."""
    within = [one for one in legal if one.cost.instructions <= budget]
    rolled = [] if within and within[0] is legal[0] else _rolled(legal, budget)
    return _ranked([*within, *rolled])


def _legal(plans: Iterable[ConvPlan]) -> list[Priced]:
    """What is legal, priced. Plans with far more matmuls than the best need no price."""
    priced: list[Priced] = []
    best = float("inf")
    for plan in plans:
        if least_tensor_ns(plan) > _HOPELESS * best:
            continue
        one = Priced(plan, estimate(plan))
        if not broken_rules(plan, one.cost):
            priced.append(one)
            best = min(best, one.cost.total_ns)
    return _ranked(priced)


def _ranked(plans: list[Priced]) -> list[Priced]:
    """The fastest first; where times are close, the one that moves less."""
    return sorted(plans, key=_weighed_ns)


def _weighed_ns(one: Priced) -> float:
    problem, item = one.plan.problem, one.plan.item_bytes
    least = item * (problem.x_elems() + problem.y_elems())
    heavy = _HEAVY_PRICE if one.cost.hbm_bytes > _HEAVY * least else 1.0
    return heavy * one.cost.total_ns + _TRAFFIC_WEIGHT * one.cost.dma_ns


def _rolled(legal: list[Priced], budget: int) -> list[Priced]:
    """Hardware loops in place of equal blocks, for the fastest plans that become short enough."""
    found: list[Priced] = []
    for one in legal:
        if one.plan.lead or one.plan.ahead:
            continue
        best = _best_body(one.plan, budget)
        if best is not None:
            found.append(best)
        if len(found) == _ROLLED_TRIES:
            break
    return found


def _best_body(plan: ConvPlan, budget: int) -> Priced | None:
    """Blocks in a turn: as many as make it long enough, if the budget allows."""
    best: Priced | None = None
    for blocks in _BODY_BLOCKS:
        rolled = replace(plan, rolled=True, body_blocks=blocks)
        one = Priced(rolled, estimate(rolled))
        if one.cost.instructions > budget or broken_rules(rolled, one.cost):
            break
        if best is None or one.cost.total_ns < best.cost.total_ns:
            best = one
        if one.cost.loops_ns * _BODY_NS <= one.cost.total_ns * plan.target.timing.loop_iteration_ns:
            break
    return best


def _nothing_found(request: Request, legal: list[Priced], budget: int) -> str:
    if legal:
        least = min(one.cost.instructions for one in legal)
        return (
            f"{request.problem} on {request.machine.name}: no plan with at most {budget} static"
            f" instructions (the shortest unrolled one has {least}). Raise the budget, or split the"
            " problem."
        )
    return f"{request.problem} on {request.machine.name}: no block is small enough for SBUF."


def request_for(
    shape: ConvShape | TransposedShape,
    machine: Machine,
    dtype: str,
    *,
    exact: bool = False,
    pieces: tuple[int, ...] = (),
    reproducible: bool = False,
) -> Request:
    """The whole of a convolution on one core; `pieces` as in `fold`."""
    problem = fold(shape, pieces, every_tap=reproducible)
    return Request(
        problem,
        machine,
        dtype,
        (0, problem.out[HEIGHT]),
        (0, shape.c_out),
        exact,
        reproducible=reproducible,
    )

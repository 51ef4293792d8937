"""Choosing between the direct convolution and fast ones, under an accuracy policy."""

from __future__ import annotations

from dataclasses import dataclass

from trnconv.errors import PlanError
from trnconv.plan.choose import DEFAULT_BUDGET
from trnconv.plan.fast_candidates import FastRequest, PricedFast, fast_candidates, rolled
from trnconv.plan.fast_cost import estimate
from trnconv.plan.fast_legality import why_not
from trnconv.plan.fast_plan import DEPTH, HEIGHT


def price_fast(
    request: FastRequest, transform: str, axis: int, budget: int = DEFAULT_BUDGET
) -> list[PricedFast]:
    """Legal plans of one transform along one axis within the budget, the fastest first."""
    if why_not(request.shape, axis):
        return []
    priced = [PricedFast(plan, estimate(plan)) for plan in fast_candidates(request, transform, axis)]
    priced.sort(key=_weighed_ns)
    within = [one for one in priced if one.cost.instructions <= budget]
    if priced and within[:1] != priced[:1]:
        within += rolled(priced, budget)
    return sorted(within, key=_weighed_ns)


def _weighed_ns(one: PricedFast) -> float:
    """The fastest first; where times are close, the one that moves less and waits less."""
    cost = one.cost
    return cost.total_ns + 0.06 * cost.dma_ns + 0.03 * cost.vector_ns

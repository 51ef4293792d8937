"""Many convolutions as one graph: the fastest programs that together are short enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trnconv.ask.limits import DEFAULT_BUDGET, GRAPH_INSTRUCTIONS, LONGER_BUDGETS
from trnconv.runtime.pricing import Price

_LIMITS = (DEFAULT_BUDGET, 24_000, 16_000, 12_000)  # of a launch
# The same where loops are counted too: longer turns, or no loop.
_LONGER = (60_000, 80_000, 120_000, *LONGER_BUDGETS, GRAPH_INSTRUCTIONS)
_CLOSE = 0.1  # of a limit
_MINOR = 200  # a convolution with less than that part of a graph is shortened only if it must be
# What an instruction and a loop may be worth, in ns: each of them twice as much as the one before.
_WORTH = (0.0, *(2.0**power for power in range(-6, 24)))
_STEPS = 40  # of halving

Ask = Callable[[int], Price]  # the price with at most so many instructions a launch
Asked = Sequence[tuple[Ask, int]]  # and how often it is called


@dataclass(frozen=True)
class GraphBudget:
    """What a compiler may be given at once."""

    instructions: int = GRAPH_INSTRUCTIONS
    regions: int | None = None  # hardware loops; None: any number

    def counts_loops_of(self, price: Price) -> bool:
        """Whether it has loops, and they count."""
        return self.regions is not None and price.regions > 0

    def holds(self, mix: Sequence[Price], convolutions: Asked) -> bool:
        """Whether all calls fit."""
        instructions, regions = _totals(mix, convolutions)
        few = self.regions is None or regions <= self.regions
        return few and instructions <= self.instructions


ONE_GRAPH = GraphBudget()


def price_graph(convolutions: Asked, budget: GraphBudget = ONE_GRAPH) -> list[Price]:
    """A price for each convolution, such that all calls fit the budget if that is possible.

    The more instructions a launch may have, the less it loses to hardware loops, and the fewer of
    them there are. Every convolution gets its fastest plan of the usual length. If they do not fit
    together, those with many instructions get the plans that cost the least time, and if that is
    not enough, all do. Where loops are counted, longer programs are weighed too.
    """
    share = budget.instructions // max(1, sum(calls for _, calls in convolutions))
    limits = {*_LIMITS, _of_a_launch(share)}
    if budget.regions is not None:
        limits |= {min(limit, budget.instructions) for limit in _LONGER}
    offers = [[ask(DEFAULT_BUDGET)] for ask, _ in convolutions]
    mix = [offer[0] for offer in offers]
    for least in (budget.instructions // _MINOR, 0):
        if budget.holds(mix, convolutions) and (budget.regions is None or least == 0):
            return mix
        for offer, (ask, calls) in zip(offers, convolutions, strict=True):
            if calls * offer[0].instructions >= least or budget.counts_loops_of(offer[0]):
                offer[1:] = _others(offer[0], [ask(limit) for limit in sorted(limits)])
        mix = _cheapest_mix(offers, convolutions, budget)
    return mix


def _others(first: Price, found: list[Price]) -> list[Price]:
    return [price for price in dict.fromkeys(found) if price != first]


def _of_a_launch(share: int) -> int:
    """An equal share of the graph, or a limit that is close to it: one search is enough."""
    close = [limit for limit in _LIMITS if abs(limit - share) <= _CLOSE * limit]
    return close[0] if close else min(DEFAULT_BUDGET, share)


def _totals(mix: Sequence[Price], convolutions: Asked) -> tuple[int, int]:
    """Instructions and hardware loops of all calls."""
    counted = [(price, calls) for price, (_, calls) in zip(mix, convolutions, strict=True)]
    return (
        sum(calls * price.instructions for price, calls in counted),
        sum(calls * price.regions for price, calls in counted),
    )


def _cheapest_mix(
    offers: list[list[Price]], convolutions: Asked, budget: GraphBudget
) -> list[Price]:
    """Of all that is offered, what takes least time within the budget; else the shortest mix.

    Instructions and loops are given a worth in time: the higher, the fewer of them are taken.
    """
    worths = _WORTH if budget.regions is not None else _WORTH[:1]
    mixes = [_short_mix(offers, convolutions, budget, region_ns) for region_ns in worths]
    held = [mix for mix in mixes if budget.holds(mix, convolutions)]
    return min(held or mixes[:1], key=lambda mix: _ns(mix, convolutions))


def _short_mix(
    offers: list[list[Price]], convolutions: Asked, budget: GraphBudget, region_ns: float
) -> list[Price]:
    """With the lowest worth of an instruction that keeps to the budget's number of them."""
    low, high = 0.0, _WORTH[-1]
    mix = _taken(offers, low, region_ns)
    if _totals(mix, convolutions)[0] <= budget.instructions:
        return mix
    for _ in range(_STEPS):
        middle = (low + high) / 2
        few = _totals(_taken(offers, middle, region_ns), convolutions)[0] <= budget.instructions
        low, high = (low, middle) if few else (middle, high)
    return _taken(offers, high, region_ns)


def _taken(offers: list[list[Price]], instruction_ns: float, region_ns: float) -> list[Price]:
    """The best of each, if an instruction and a loop cost so much."""

    def worth(price: Price) -> float:
        return price.ns + instruction_ns * price.instructions + region_ns * price.regions

    return [min(offer, key=worth) for offer in offers]


def _ns(mix: Sequence[Price], convolutions: Asked) -> float:
    return sum(calls * price.ns for price, (_, calls) in zip(mix, convolutions, strict=True))

"""Many convolutions as one graph: the fastest programs that together are short enough."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf

from trnconv.errors import PlanError
from trnconv.problem.limits import (
    DEFAULT_BUDGET,
    GRAPH_INSTRUCTIONS,
    LONGER_BUDGETS,
    SHORTER_BUDGETS,
)
from trnconv.runtime.pricing import Price

# Of a launch, longest first; beside them an equal share of the graph.
_BETWEEN = (24_000, 12_000)
# The same where loops are counted too: longer iterations, or no loop.
_LONGER = (60_000, 80_000, 120_000, *LONGER_BUDGETS, GRAPH_INSTRUCTIONS)
_SHARES = 3  # an equal share, and two shorter limits
_MINOR = 200  # a convolution with less than that part of a graph is shortened only if it must be
_LOST = 0.005  # of a graph's time: what all may lose together that have no other length
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

    def times(self, graphs: int) -> GraphBudget:
        """Of several graphs."""
        regions = None if self.regions is None else graphs * self.regions
        return GraphBudget(graphs * self.instructions, regions)

    def counts_loops_of(self, price: Price) -> bool:
        """Whether it has loops, and they count."""
        return self.regions is not None and price.regions > 0

    def holds(self, mix: Sequence[Price], convolutions: Asked) -> bool:
        """Whether all calls fit."""
        return self.allows(*_totals(mix, convolutions))

    def allows(self, instructions: int, regions: int) -> bool:
        """Whether so many are within it."""
        few = self.regions is None or regions <= self.regions
        return few and instructions <= self.instructions


ONE_GRAPH = GraphBudget()


def price_graph(convolutions: Asked, budget: GraphBudget = ONE_GRAPH) -> list[Price]:
    """A price for each convolution, such that all calls fit the budget if that is possible.

    The more instructions a launch may have, the less it loses to hardware loops, and the fewer of
    them there are. Every convolution gets its fastest plan of the usual length. If they do not fit
    together, shorter ones are asked for, and longer ones where loops are counted; those are taken
    that cost the least time. If no mix fits, they fill as many graphs as the shortest one needs.
    """
    mix = [ask(DEFAULT_BUDGET) for ask, _ in convolutions]
    if budget.regions is None and budget.holds(mix, convolutions):
        return mix
    short = _shortened(mix, convolutions, budget)
    offers = [
        [first, *_longer(first, ask, budget)] for first, (ask, _) in _paired(mix, convolutions)
    ]
    for at in _dear(mix, short, convolutions):
        offers[at] += _between(mix[at], short[at], convolutions[at][0])
    every = [[*offer, shortest] for offer, shortest in zip(offers, short, strict=True)]
    return _cheapest_mix(every, convolutions, budget)


def _shortened(mix: list[Price], convolutions: Asked, budget: GraphBudget) -> list[Price]:
    """Programs that fit: of an equal share where there are many instructions, then everywhere.

    Then shorter ones: some have no program as short as their share.
    """
    short = list(mix)
    length = [calls * price.instructions for price, (_, calls) in _paired(mix, convolutions)]
    longest_first = sorted(range(len(mix)), key=lambda at: -length[at])
    limits = _limits_of(budget.instructions // max(1, sum(calls for _, calls in convolutions)))
    for at in longest_first:
        if length[at] >= budget.instructions // _MINOR:
            short[at] = _shorter(short[at], convolutions[at][0], limits[0])
    for limit in limits:
        for at in longest_first:
            if _totals(short, convolutions)[0] <= budget.instructions:
                return short
            short[at] = _shorter(short[at], convolutions[at][0], limit)
    return short


def _limits_of(share: int) -> tuple[int, ...]:
    """An equal share of the graph and less, in round numbers: plans of those are shipped."""
    limits = (limit for limit in (DEFAULT_BUDGET, *SHORTER_BUDGETS) if limit <= share)
    return tuple(limits)[:_SHARES] or (share,)


def _shorter(price: Price, ask: Ask, limit: int) -> Price:
    """One within the limit, or less above it; the same if there is none."""
    if price.instructions <= limit:
        return price
    return min([price, *_offered(ask, limit)], key=lambda found: found.instructions)


def _offered(ask: Ask, limit: int) -> list[Price]:
    """What there is of at most so many instructions: some have no program that is so short."""
    try:
        return [ask(limit)]
    except PlanError:
        return []


def _dear(mix: list[Price], short: list[Price], convolutions: Asked) -> list[int]:
    """Which lose time if they are shortened; together, all others lose next to none."""
    lost = [
        abs(calls * (shortest.ns - first.ns))
        for first, (shortest, (_, calls)) in zip(mix, _paired(short, convolutions), strict=True)
    ]
    least_first = sorted(range(len(mix)), key=lambda at: lost[at])
    room = _LOST * _ns(mix, convolutions)
    return [
        at
        for at, sum_ns in zip(least_first, accumulate(lost[at] for at in least_first), strict=True)
        if sum_ns > room
    ]


def _between(first: Price, shortest: Price, ask: Ask) -> list[Price]:
    """Of lengths in between; what is short enough for a limit is its answer."""
    prices = [first]
    for limit in _BETWEEN:
        if shortest.instructions < limit < prices[-1].instructions:
            prices += _offered(ask, limit)
    return prices[1:]


def _longer(first: Price, ask: Ask, budget: GraphBudget) -> list[Price]:
    """Of more instructions than usual, where loops count."""
    if not budget.counts_loops_of(first):
        return []
    return [
        ask(limit) for limit in dict.fromkeys(min(limit, budget.instructions) for limit in _LONGER)
    ]


def _paired(mix: Sequence[Price], convolutions: Asked) -> Iterator[tuple[Price, tuple[Ask, int]]]:
    return zip(mix, convolutions, strict=True)


def _totals(mix: Sequence[Price], convolutions: Asked) -> tuple[int, int]:
    """Instructions and hardware loops of all calls."""
    counted = [(price, calls) for price, (_, calls) in _paired(mix, convolutions)]
    return (
        sum(calls * price.instructions for price, calls in counted),
        sum(calls * price.regions for price, calls in counted),
    )


def _cheapest_mix(
    offers: list[list[Price]], convolutions: Asked, budget: GraphBudget
) -> list[Price]:
    """Of all that is offered, what takes least time within the budget.

    If nothing fits, the budget is that of as many graphs as the shortest programs need.
    Instructions and loops are given a worth in time: the higher, the fewer of them are taken.
    """
    worths = _WORTH if budget.regions is not None else _WORTH[:1]
    mixes = [
        _filled(_short_mix(offers, convolutions, budget, region_ns), offers, convolutions, budget)
        for region_ns in worths
    ]
    held = [mix for mix in mixes if budget.holds(mix, convolutions)]
    if not held:
        graphs = -(-_totals(mixes[0], convolutions)[0] // budget.instructions)
        return mixes[0] if graphs < 2 else _cheapest_mix(offers, convolutions, budget.times(graphs))
    return min(held, key=lambda mix: _ns(mix, convolutions))


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


def _filled(
    mix: list[Price], offers: list[list[Price]], convolutions: Asked, budget: GraphBudget
) -> list[Price]:
    """The same with faster programs while they fit, those first that save most an instruction.

    One worth for all convolutions leaves room: the next lower one may shorten many too little.
    """
    mix = list(mix)
    instructions, regions = _totals(mix, convolutions)
    while budget.allows(instructions, regions):
        faster = [
            (_gain(price, before), at, price, grown)
            for at, (before, (_, calls)) in enumerate(_paired(mix, convolutions))
            for price in offers[at]
            if price.ns < before.ns
            and budget.allows(*(grown := _grown((instructions, regions), before, price, calls)))
        ]
        if not faster:
            break
        _, at, price, (instructions, regions) = max(faster, key=lambda step: step[0])
        mix[at] = price
    return mix


def _grown(totals: tuple[int, int], before: Price, price: Price, calls: int) -> tuple[int, int]:
    """Instructions and loops of all calls, if some have another program."""
    instructions, regions = totals
    return (
        instructions + calls * (price.instructions - before.instructions),
        regions + calls * (price.regions - before.regions),
    )


def _gain(price: Price, before: Price) -> float:
    """Time that an instruction more saves; endless where there is none."""
    more = price.instructions - before.instructions
    return (before.ns - price.ns) / more if more > 0 else inf


def _taken(offers: list[list[Price]], instruction_ns: float, region_ns: float) -> list[Price]:
    """The best of each, if an instruction and a loop cost so much."""

    def worth(price: Price) -> float:
        return price.ns + instruction_ns * price.instructions + region_ns * price.regions

    return [min(offer, key=worth) for offer in offers]


def _ns(mix: Sequence[Price], convolutions: Asked) -> float:
    return sum(calls * price.ns for price, (_, calls) in _paired(mix, convolutions))

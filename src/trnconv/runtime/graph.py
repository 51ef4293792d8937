"""Many convolutions as one graph: the fastest programs that together are short enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trnconv.ask.limits import DEFAULT_BUDGET
from trnconv.runtime.pricing import Price

GRAPH_INSTRUCTIONS = 5_000_000  # static; above it the compiler gives up (NCC_EBVF030)
_LIMITS = (DEFAULT_BUDGET, 12_000, 8_000, 6_000)  # of a launch, tried in turn
_CLOSE = 0.1  # of a limit
_MINOR = 200  # a convolution with less than that part of a graph is shortened only if it must be

Ask = Callable[[int], Price]  # the price with at most so many instructions a launch
Asked = Sequence[tuple[Ask, int]]  # and how often it is called


def price_graph(convolutions: Asked) -> list[Price]:
    """A price for each convolution, such that all calls fit one graph if that is possible.

    The more instructions a launch may have, the less it loses to hardware loops. Every convolution
    gets its fastest plan, and while the graph is too long, the one that loses least a shorter one:
    of those with many instructions first, and if that is not enough, of all.
    """
    share = GRAPH_INSTRUCTIONS // max(1, sum(calls for _, calls in convolutions))
    limits = sorted({*_LIMITS, _of_a_launch(share)}, reverse=True)
    taken = [ask(limits[0]) for ask, _ in convolutions]
    for least in (GRAPH_INSTRUCTIONS // _MINOR, 0):
        if _total(taken, convolutions) > GRAPH_INSTRUCTIONS:
            taken = _shortened(taken, convolutions, limits, least)
    return taken


def _of_a_launch(share: int) -> int:
    """An equal share of the graph, or a limit that is close to it: one search is enough."""
    close = [limit for limit in _LIMITS if abs(limit - share) <= _CLOSE * limit]
    return close[0] if close else min(DEFAULT_BUDGET, share)


def _total(prices: list[Price], convolutions: Asked) -> int:
    counted = zip(prices, convolutions, strict=True)
    return sum(calls * one.instructions for one, (_, calls) in counted)


def _shortened(
    taken: list[Price], convolutions: Asked, limits: list[int], least: int
) -> list[Price]:
    """Shorter programs where an instruction saved costs least time, until the graph fits.

    Convolutions with fewer than `least` instructions in all calls stay as they are.
    """
    taken = list(taken)
    savings = [
        (max(0.0, other.ns - one.ns) / (one.instructions - other.instructions), at, other)
        for at, (one, (ask, calls)) in enumerate(zip(taken, convolutions, strict=True))
        if calls * one.instructions >= least
        for limit in limits
        if limit < one.instructions  # else it is the same plan
        for other in [ask(limit)]
        if other.instructions < one.instructions
    ]
    for _, at, other in sorted(savings, key=lambda each: each[0]):
        if _total(taken, convolutions) <= GRAPH_INSTRUCTIONS:
            break
        if other.instructions < taken[at].instructions:
            taken[at] = other
    return taken

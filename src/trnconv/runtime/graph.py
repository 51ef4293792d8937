"""Many convolutions as one graph: the fastest programs that together are short enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

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
    total = _total(taken, convolutions)
    waiting: list[tuple[float, int, Price]] = []
    for at, (_, calls) in enumerate(convolutions):
        if calls * taken[at].instructions >= least:
            _await_shorter(waiting, at, taken[at], convolutions[at][0], limits)
    while waiting and total > GRAPH_INSTRUCTIONS:
        _, at, shorter = heappop(waiting)
        ask, calls = convolutions[at]
        total -= calls * (taken[at].instructions - shorter.instructions)
        taken[at] = shorter
        _await_shorter(waiting, at, shorter, ask, limits)
    return taken


def _await_shorter(
    waiting: list[tuple[float, int, Price]], at: int, taken: Price, ask: Ask, limits: list[int]
) -> None:
    """Add what an instruction costs that the next shorter program saves, if there is one."""
    for limit in limits:
        if limit < taken.instructions:  # else it is the same plan
            shorter = ask(limit)
            saved = taken.instructions - shorter.instructions
            if saved > 0:
                heappush(waiting, (max(0.0, shorter.ns - taken.ns) / saved, at, shorter))
                return

"""Two cores: each computes half of the rows or half of the output channels."""

from __future__ import annotations

from dataclasses import replace

from trnconv.plan.candidates import Request
from trnconv.plan.choose import DEFAULT_BUDGET, Choice, choose
from trnconv.plan.problem import HEIGHT


def share(request: Request, budget: int = DEFAULT_BUDGET) -> tuple[Choice, Choice]:
    """The plans of two cores: rows or channels, whichever lets the slower core end sooner."""
    ways = [pair for pair in (_by_rows(request), _by_channels(request)) if pair is not None]
    if not ways:
        return _by_idling(request, budget)
    planned = [(choose(one, budget), choose(two, budget)) for one, two in ways]
    return min(planned, key=lambda pair: max(one.taken.cost.total_ns for one in pair))


def _by_rows(request: Request) -> tuple[Request, Request] | None:
    first, end = request.rows
    if end - first < 2:
        return None
    whole = request.problem.phases[HEIGHT]  # a core takes whole steps
    middle = first + -(-(end - first) // (2 * whole)) * whole
    if not first < middle < end:
        return None
    return replace(request, rows=(first, middle)), replace(request, rows=(middle, end))


def _by_channels(request: Request) -> tuple[Request, Request] | None:
    first, end = request.channels
    if end - first < 2:
        return None
    middle = first + (end - first + 1) // 2
    return replace(request, channels=(first, middle)), replace(request, channels=(middle, end))


def _by_idling(request: Request, budget: int) -> tuple[Choice, Choice]:
    """One row of one channel cannot be shared: both cores compute it, and write the same."""
    choice = choose(request, budget)
    return choice, choice

"""What a convolution costs before it runs: modelled time, traffic, instructions, per call."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nkisim.machine import Reading
from trnconv.errors import UnsupportedError
from trnconv.geometry import TransposedShape
from trnconv.plan.choose import Priced
from trnconv.plan.fast_candidates import PricedFast
from trnconv.plan.parts import planned_parts
from trnconv.plan.question import Question, Shape, best_plan
from trnconv.runtime.modelled import time_plan


@dataclass(frozen=True)
class Price:
    """All launches of one call together, modelled."""

    ns: float
    instructions: int
    hbm_bytes: int
    executed_macs: int  # what the array does, useful or not
    launches: int
    bound: str  # of the longest launch
    plan: Priced | PricedFast  # of the longest launch

    def __add__(self, other: Price) -> Price:
        """One after the other."""
        longer = self if self.ns >= other.ns else other
        return Price(
            self.ns + other.ns,
            self.instructions + other.instructions,
            self.hbm_bytes + other.hbm_bytes,
            self.executed_macs + other.executed_macs,
            self.launches + other.launches,
            longer.bound,
            longer.plan,
        )


def price(question: Question, *, simulate: bool = False) -> Price:
    """By the planner's closed form; with `simulate`, every launch is traced and scheduled.

    The closed form is within a few percent of the schedule (tests/trnconv/plan), and a hundred
    times faster.
    """
    if isinstance(question.shape, TransposedShape):
        return _launch_price(question, question.shape, simulate=simulate)
    parts = planned_parts(
        question.shape, lambda part: _launch_price(question, part, simulate=simulate)
    )
    total: Price | None = None
    for _, one in parts:
        total = one if total is None else total + one
    assert total is not None
    return total


def _launch_price(question: Question, shape: Shape, *, simulate: bool) -> Price:
    if question.pieces and shape.size != question.shape.size:
        raise UnsupportedError(
            f"an input in pieces of {question.pieces} frames that needs several launches:"
            " concatenate them first."
        )
    taken = best_plan(replace(question, shape=shape))
    cost = taken.cost
    macs = cost.columns * question.machine.partitions**2
    if not simulate:
        return Price(cost.total_ns, cost.instructions, cost.hbm_bytes, macs, 1, cost.bound, taken)
    timeline = time_plan(taken.plan, shape, Reading.default)
    return Price(
        timeline.makespan_ns,
        timeline.static_instructions,
        int(timeline.hbm_bytes),
        macs,
        1,
        timeline.bound,
        taken,
    )

"""What a convolution costs before it runs: modelled time, traffic, instructions, per call."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nkisim.machine import Machine, Reading
from trnconv.errors import UnsupportedError
from trnconv.geometry import ConvShape, TransposedShape
from trnconv.plan.choose import DEFAULT_BUDGET, Priced, choose, request_for
from trnconv.plan.ends import PLAIN_END, End
from trnconv.plan.parts import planned_parts
from trnconv.runtime.modelled import time_plan

Shape = ConvShape | TransposedShape


@dataclass(frozen=True)
class Question:
    """A convolution, how its input lies, how it ends and where it would run."""

    shape: Shape
    machine: Machine
    dtype: str = "bfloat16"
    pieces: tuple[int, ...] = ()
    end: End = PLAIN_END
    reproducible: bool = False
    budget: int = DEFAULT_BUDGET  # static instructions of a launch


@dataclass(frozen=True)
class Price:
    """All launches of one call together, modelled."""

    ns: float
    instructions: int
    hbm_bytes: int
    executed_macs: int  # what the array does, useful or not
    launches: int
    bound: str  # of the longest launch
    plan: Priced  # of the longest launch

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
    machine = question.machine
    if question.pieces and shape.size != question.shape.size:
        raise UnsupportedError(
            f"an input in pieces of {question.pieces} frames that needs several launches:"
            " concatenate them first."
        )
    request = request_for(
        shape,
        machine,
        question.dtype,
        pieces=question.pieces,
        reproducible=question.reproducible,
    )
    request = replace(request, end=question.end)
    taken = choose(request, question.budget).taken
    cost = taken.cost
    macs = cost.columns * machine.partitions**2
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

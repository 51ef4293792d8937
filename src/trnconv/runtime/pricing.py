"""What a convolution costs before it runs: modelled time, traffic, instructions, per call."""

from __future__ import annotations

from dataclasses import dataclass

from trnconv.algorithms.algorithm import Priced
from trnconv.planner.best import best_plan
from trnconv.planner.shares import pair_ns, shared_plans
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.cores import cores_of
from trnconv.problem.launches import planned_parts, require_room
from trnconv.runtime.launch import time_plan, time_plans, with_joined_pieces


@dataclass(frozen=True)
class Price:
    """All launches of one call together, modelled."""

    ns: float
    instructions: int  # static, as a compiler counts them; of the core that has more
    hbm_bytes: int
    executed_macs: int  # what the array does, useful or not
    launches: int
    bound: str  # of the longest launch
    plans: tuple[Priced, ...]  # of the longest launch, one for each core
    regions: int = 0  # hardware loops of a core
    shipped: bool = False  # whether all its plans came with the package

    @property
    def plan(self) -> Priced:
        """Of the longest launch, the core that ends last."""
        return max(self.plans, key=lambda priced: priced.cost.total_ns)

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
            longer.plans,
            self.regions + other.regions,
            self.shipped and other.shipped,
        )


def price(
    problem: ConvProblem,
    *,
    simulate: bool = False,
    cores: int | None = None,
    beyond_hbm: bool = False,
) -> Price:
    """By the planner's cost model; with `simulate`, every launch is traced and scheduled.

    The cost model is within a few percent of the schedule (tests/trnconv/planner), and a hundred
    times faster. `cores` of a launch: None is what the machine's has. Of two, the slower one's time
    and plan count, and the barrier at which they meet. `beyond_hbm`: tensors that HBM does not hold
    are priced all the same, as a model's that would be cut before it runs.
    """
    problem = with_joined_pieces(problem)
    if not beyond_hbm:
        require_room(problem)
    price_of = _price_of_two if cores_of(problem.machine, cores) > 1 else _launch_price
    parts = planned_parts(problem, lambda part: price_of(part, simulate=simulate))
    first, *others = (part_price for _, part_price in parts)
    return sum(others, start=first)


def _price_of_two(problem: ConvProblem, *, simulate: bool) -> Price:
    """One launch on two cores."""
    both = shared_plans(problem)
    slower = max(both, key=lambda priced: priced.cost.total_ns)
    cost = slower.cost
    columns = sum(priced.cost.columns for priced in both)
    plans = tuple(priced.plan for priced in both)
    return Price(
        time_plans(plans).makespan_ns if simulate else pair_ns(both),
        max(priced.cost.instructions for priced in both),
        sum(priced.cost.hbm_bytes for priced in both),
        columns * problem.machine.partitions**2,
        1,
        cost.bound,
        both,
        max(priced.cost.regions for priced in both),
        all(priced.shipped for priced in both),
    )


def _launch_price(problem: ConvProblem, *, simulate: bool) -> Price:
    best = best_plan(problem)
    cost = best.cost
    macs = cost.columns * problem.machine.partitions**2
    if not simulate:
        return Price(
            cost.total_ns,
            cost.instructions,
            cost.hbm_bytes,
            macs,
            1,
            cost.bound,
            (best,),
            cost.regions,
            best.shipped,
        )
    timeline = time_plan(best.plan)
    return Price(
        timeline.makespan_ns,
        timeline.compiler_instructions,
        int(timeline.hbm_bytes),
        macs,
        1,
        timeline.bound,
        (best,),
        cost.regions,
        best.shipped,
    )

"""Plans for what is about to run: asked once, and kept for the shapes of a process."""

from __future__ import annotations

from functools import lru_cache

from trnconv.algorithms.algorithm import Plan
from trnconv.errors import UnsupportedError
from trnconv.planner.best import best_plan
from trnconv.planner.shares import shared_plans
from trnconv.planner.shipped_plans import shipped_digest
from trnconv.planner.tuned_plans import active
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.cores import cores_of
from trnconv.problem.epilogue import ITEM_BYTES

_PLANS = 4096  # problems of a process; a large model has some hundreds


def plans_for(problem: ConvProblem, cores: int | None = None) -> tuple[Plan, ...]:
    """The planner's choice, one plan for each core; None: as many as a launch has."""
    if problem.dtype not in ITEM_BYTES:
        raise UnsupportedError(
            f"a convolution of {problem.dtype}: the kernels take {', '.join(ITEM_BYTES)}. Cast the"
            " input."
        )
    tuned, launched = active(problem.machine.name), cores_of(problem.machine, cores)
    stored = (tuned.digest if tuned else "", shipped_digest(problem.machine.name, launched))
    return _plans(problem, launched, stored)


@lru_cache(maxsize=_PLANS)
def _plans(problem: ConvProblem, cores: int, stored: tuple[str, str]) -> tuple[Plan, ...]:
    del stored  # plans of other files are other plans
    if cores == 1:
        return (best_plan(problem).plan,)
    return tuple(priced.plan for priced in shared_plans(problem))

"""Plans of both cores of a launch, for tests."""

from trnconv.planner.best import plans_like, searched_plan
from trnconv.planner.shares import in_step, shared_plans
from trnconv.planner.table import algorithm_named
from trnconv.runtime.launch import time_plan, time_plans


def every_pair(problem):
    """For every way to halve a problem, the first core's share and the plans of both."""
    answer = searched_plan(problem)
    algorithm = algorithm_named(answer.plan.algorithm)
    for halves in algorithm.core_splits(problem):
        pair = in_step(*(plans_like(answer, half) for half in halves))
        if pair is not None:
            yield halves[0].core_split, tuple(priced.plan for priced in pair)


def gain(problem):
    """One core's time over a pair's, on the timeline."""
    pair = tuple(priced.plan for priced in shared_plans(problem))
    alone = time_plan(searched_plan(problem).plan).makespan_ns
    return alone / time_plans(pair).makespan_ns

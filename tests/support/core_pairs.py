"""Plans of both cores of a launch, for tests."""

from trnconv.planner.best import plans_like, searched_plan
from trnconv.planner.shares import in_step, shared_plans
from trnconv.planner.table import form_named
from trnconv.runtime.launch import time_plan, time_plans


def every_pair(question):
    """For every way to halve a question, the first core's share and the plans of both."""
    answer = searched_plan(question)
    form = form_named(answer.plan.form)
    for halves in form.halves(question):
        pair = in_step(*(plans_like(answer, half) for half in halves))
        if pair is not None:
            yield halves[0].share, tuple(priced.plan for priced in pair)


def gain(question):
    """One core's time over a pair's, on the timeline."""
    pair = tuple(priced.plan for priced in shared_plans(question))
    alone = time_plan(searched_plan(question).plan).makespan_ns
    return alone / time_plans(pair).makespan_ns

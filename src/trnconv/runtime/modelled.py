"""Modelled times: a plan's kernel without data, on the timing model of nkisim."""

from __future__ import annotations

import nkisim
from nkisim import Run, Spec
from nkisim.machine import Reading
from nkisim.timing import Timeline, schedule
from trnconv.kernels.forward import forward_of_pieces
from trnconv.plan.ends import NO_RESIDUAL
from trnconv.plan.fast_plan import FastPlan
from trnconv.plan.question import Plan, Shape
from trnconv.plan.work_out import work_out
from trnconv.runtime.allowance import our_kernel
from trnconv.runtime.fast_kernel import trace_fast


def trace_plan(plan: Plan, shape: Shape) -> Run:
    """The instructions of a plan's kernel on one core, checked by nkisim, without values."""
    if isinstance(plan, FastPlan):
        return trace_fast(plan)
    work = work_out(plan, shape)
    recipe = work.recipe
    places = (max(1, len(work.places)), (recipe.pieces + 1) * plan.body_blocks)
    frames = plan.problem.pieces or (shape.size[0],)
    return nkisim.run(
        our_kernel(forward_of_pieces),
        tuple(Spec((shape.batch, shape.c_in, n, *shape.size[1:]), plan.dtype) for n in frames),
        Spec((recipe.lines, max(1, work.width)), plan.dtype),
        Spec((recipe.lines, recipe.bias_columns), "float32"),
        Spec(places, "int32"),
        None if plan.end.residual == NO_RESIDUAL else Spec(recipe.y_shape, plan.dtype),
        recipe,
        target=plan.machine,
        values=False,
    )


def time_plan(plan: Plan, shape: Shape, reading: Reading = Reading.default) -> Timeline:
    """When each of them would run."""
    run = trace_plan(plan, shape)
    return schedule(run.trace, run.machine, reading, memory=run.memory)

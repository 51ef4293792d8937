"""Modelled times: a plan's kernel without data, on the timing model of nkisim."""

from __future__ import annotations

import nkisim
from nkisim import Kernel, Run, Spec
from nkisim.machine import Reading
from nkisim.timing import Timeline, schedule
from trnconv.geometry import ConvShape, TransposedShape
from trnconv.kernels.forward import forward_of_pieces
from trnconv.plan.conv_plan import ConvPlan
from trnconv.plan.ends import NO_RESIDUAL
from trnconv.plan.work_out import work_out


def trace_plan(plan: ConvPlan, shape: ConvShape | TransposedShape) -> Run:
    """The instructions of a plan's kernel on one core, checked by nkisim, without values."""
    work = work_out(plan, shape)
    recipe = work.recipe
    places = (max(1, len(work.places)), (recipe.pieces + 1) * plan.body_blocks)
    frames = plan.problem.pieces or (shape.size[0],)
    return nkisim.run(
        Kernel(forward_of_pieces),
        tuple(Spec((shape.batch, shape.c_in, n, *shape.size[1:]), plan.dtype) for n in frames),
        Spec((recipe.lines, max(1, work.width)), plan.dtype),
        Spec((recipe.lines, recipe.bias_columns), "float32"),
        Spec(places, "int32"),
        None if plan.end.residual == NO_RESIDUAL else Spec(recipe.y_shape, plan.dtype),
        recipe,
        target=plan.machine,
        values=False,
    )


def time_plan(
    plan: ConvPlan, shape: ConvShape | TransposedShape, reading: Reading = Reading.default
) -> Timeline:
    """When each of them would run."""
    run = trace_plan(plan, shape)
    return schedule(run.trace, run.machine, reading, memory=run.memory)

"""Fast convolutions: from arrays to an array in nkisim, and modelled times without data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import nkisim
from nkisim import Kernel, Run, Spec
from nkisim.machine import Machine, Reading
from nkisim.timing import Timeline, schedule
from trnconv.kernels.fast import fast as kernel
from trnconv.plan.ends import NO_RESIDUAL
from trnconv.plan.fast_plan import DEPTH, FastPlan
from trnconv.plan.fast_work import out_groups, work_out
from trnconv.runtime.fast_packing import pack_constants, pack_fast_places, pack_fast_weights

Array = np.ndarray[Any, Any]


def run_fast(
    plan: FastPlan,
    pieces: Sequence[Array],
    w: Array,
    bias: Array | None = None,
    residual: Array | None = None,
) -> Run:
    """A plan on x [N, C_in, D, H, W], in pieces along D, and w [C_out, C_in, KD, KH, KW]."""
    work = work_out(plan)
    return nkisim.run(
        Kernel(kernel),
        tuple(pieces),
        pack_fast_weights(w, plan),
        pack_constants(w, bias, plan),
        pack_fast_places(work),
        residual,
        work.recipe,
        target=plan.machine,
    )


def trace_fast(plan: FastPlan) -> Run:
    """The instructions of a plan's kernel, checked by nkisim, without values."""
    work, shape = work_out(plan), plan.shape
    recipe = work.recipe
    places = pack_fast_places(work).shape
    return nkisim.run(
        Kernel(kernel),
        tuple(
            Spec((shape.batch, shape.c_in, n, *shape.size[DEPTH + 1 :]), plan.dtype)
            for n in plan.frames
        ),
        Spec((recipe.lines, out_groups(plan)[-1].weight_end), "float16"),
        Spec((recipe.lines, recipe.constants), "float32"),
        Spec(places, "int32"),
        None if plan.end.residual == NO_RESIDUAL else Spec(recipe.y_shape, plan.dtype),
        recipe,
        target=plan.machine,
        values=False,
    )


def time_fast(
    plan: FastPlan, reading: Reading = Reading.default, machine: Machine | None = None
) -> Timeline:
    """When each of them would run; `machine` replaces the plan's, to change an assumption."""
    run = trace_fast(plan)
    return schedule(run.trace, machine or run.machine, reading, memory=run.memory)

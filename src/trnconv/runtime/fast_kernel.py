"""The fast kernel in nkisim: with data, and without for modelled times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import nkisim
from nkisim import Run, Spec
from nkisim.machine import Machine, Reading
from nkisim.timing import Timeline, schedule
from trnconv.errors import PlanError
from trnconv.kernels.fast import fast as kernel
from trnconv.plan.ends import NO_RESIDUAL
from trnconv.plan.fast_error import require_range
from trnconv.plan.fast_legality import broken_rules
from trnconv.plan.fast_plan import DEPTH, FastPlan
from trnconv.plan.fast_work import out_groups, work_out
from trnconv.runtime.allowance import our_kernel
from trnconv.runtime.fast_packing import pack_constants, pack_fast_places, pack_fast_weights

Array = np.ndarray[Any, Any]


def run_fast(
    plan: FastPlan,
    pieces: Sequence[Array],
    w: Array,
    bias: Array | None = None,
    residual: Array | None = None,
    *,
    summation: str = "fast",
) -> Run:
    """A plan on x [N, C_in, D, H, W], in pieces along D, and w [C_out, C_in, KD, KH, KW].

    `w` may be float32 master weights: they are rounded once, after their transform. Data that fp16
    transforms cannot hold is refused. `summation` as in `nkisim.run`.
    """
    broken = broken_rules(plan)
    if broken:
        raise PlanError(f"{plan}: {'; '.join(broken)}.")
    require_range(plan, max(float(np.abs(part.astype(np.float32)).max()) for part in pieces))
    work = work_out(plan)
    return nkisim.run(
        our_kernel(kernel),
        tuple(pieces),
        pack_fast_weights(w, plan),
        pack_constants(w, bias, plan),
        pack_fast_places(work),
        residual,
        work.recipe,
        target=plan.machine,
        summation=summation,
    )


def trace_fast(plan: FastPlan) -> Run:
    """The instructions of a plan's kernel, checked by nkisim, without values."""
    work, shape = work_out(plan), plan.shape
    recipe = work.recipe
    places = pack_fast_places(work).shape
    return nkisim.run(
        our_kernel(kernel),
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

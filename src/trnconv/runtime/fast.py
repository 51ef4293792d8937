"""Fast convolutions: from arrays to an array in nkisim, and modelled times without data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import nkisim
from nkisim import Kernel, Run, Spec
from nkisim.machine import Machine, Reading, find_machine
from nkisim.timing import Timeline, schedule
from trnconv.errors import PlanError
from trnconv.geometry import Padding, conv_shape
from trnconv.kernels.fast import fast as kernel
from trnconv.plan.choose import Priced
from trnconv.plan.conv_plan import ConvPlan
from trnconv.plan.ends import NO_RESIDUAL
from trnconv.plan.fast_candidates import FastRequest
from trnconv.plan.fast_choose import DEFAULT_POLICY, Policy, best_of
from trnconv.plan.fast_error import require_range
from trnconv.plan.fast_legality import broken_rules
from trnconv.plan.fast_plan import DEPTH, FastPlan
from trnconv.plan.fast_work import out_groups, work_out
from trnconv.runtime.convolve import DEFAULT_LAUNCH, LaunchOptions, convolve_pieces, require_bias
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


@dataclass(frozen=True)
class FastConvolved:
    """An output, the plan that made it (a ConvPlan is the direct one's) and what nkisim saw."""

    y: Array
    plan: FastPlan | ConvPlan
    run: Run


def convolve_fast(  # noqa: PLR0913 (torch's own arguments, and where to run)
    pieces: Array | Sequence[Array],
    w: Array,
    bias: Array | None = None,
    *,
    padding: Padding = 0,
    policy: Policy = DEFAULT_POLICY,
    anchors: tuple[int, int] = (0, 0),
    launch: LaunchOptions = DEFAULT_LAUNCH,
    plan: FastPlan | None = None,
) -> FastConvolved:
    """conv3d of x [N, C_in, D, H, W], or of its pieces along D, by whatever the policy allows.

    `w` may be float32 master weights: they are rounded once, after their transform. `anchors` are
    the absolute frame and row of the first output; with them, parts of a sequence are computed with
    the same bits as the whole.
    """
    parts = [pieces] if isinstance(pieces, np.ndarray) else list(pieces)
    frames = tuple(part.shape[2] for part in parts)
    whole = (*parts[0].shape[:2], sum(frames), *parts[0].shape[3:])
    shape = conv_shape(whole, w.shape, padding=padding)
    require_bias(bias, shape.c_out)
    mine = plan
    if mine is None:
        machine = find_machine(launch.target)
        split = frames if len(frames) > 1 else ()
        request = FastRequest(shape, machine, str(parts[0].dtype), launch.end, split, anchors)
        taken = best_of(request, policy).taken
        if isinstance(taken, Priced):
            done = convolve_pieces(
                parts, w, bias, padding=padding, launch=replace(launch, plans=(taken.plan,))
            )
            return FastConvolved(done.y, taken.plan, done.runs[0])
        mine = taken.plan
    broken = broken_rules(mine)
    if broken:
        raise PlanError(f"{mine}: {'; '.join(broken)}.")
    require_range(mine, max(float(np.abs(part.astype(np.float32)).max()) for part in parts))
    run = run_fast(mine, parts, w, bias, launch.residual)
    return FastConvolved(np.asarray(run.outputs), mine, run)

"""Fast convolutions from arrays to an array: `convolve` with tiles that begin where one says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nkisim import Run
from nkisim.machine import find_machine
from trnconv.geometry import Padding, conv_shape
from trnconv.plan.accuracy import DEFAULT_POLICY, Policy
from trnconv.plan.fast_candidates import FastRequest
from trnconv.plan.fast_choose import best_of
from trnconv.plan.fast_plan import FastPlan
from trnconv.plan.question import Plan
from trnconv.runtime.convolve import DEFAULT_LAUNCH, LaunchOptions, convolve_pieces
from trnconv.runtime.fast_kernel import run_fast, time_fast, trace_fast

__all__ = ["FastConvolved", "convolve_fast", "run_fast", "time_fast", "trace_fast"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class FastConvolved:
    """An output, the plan that made it (a ConvPlan is the direct one's) and what nkisim saw."""

    y: Array
    plan: Plan
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
    mine: Plan | None = plan
    if mine is None:
        shape = conv_shape(whole, w.shape, padding=padding)
        split = frames if len(frames) > 1 else ()
        machine = find_machine(launch.target)
        request = FastRequest(shape, machine, str(parts[0].dtype), launch.end, split, anchors)
        mine = best_of(request, policy).taken.plan
    done = convolve_pieces(parts, w, bias, padding=padding, launch=replace(launch, plans=(mine,)))
    return FastConvolved(done.y, mine, done.runs[0])

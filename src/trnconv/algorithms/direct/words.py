"""A direct plan in words."""

from __future__ import annotations

from trnconv.algorithms.direct.plan import DirectPlan
from trnconv.algorithms.direct.reduced_problem import ReducedProblem

_SHOWN = 6  # passes: more than a convolution without groups has


def decisions(plan: DirectPlan) -> list[str]:
    """What was decided, in lines."""
    return [_reduced(plan.reduced, plan.dtype), *_decisions(plan)]


def _reduced(reduced: ReducedProblem, dtype: str) -> str:
    sizes = "x".join(map(str, reduced.size))
    blocks = reduced.channels // reduced.c_in
    apart = f" in {blocks} blocks of groups" if blocks > 1 else ""
    return (
        f"{reduced.channels} -> {reduced.c_out} channels{apart}, {_taps(reduced)}, on"
        f" {reduced.images} x {sizes} {dtype}"
    )


def _taps(reduced: ReducedProblem) -> str:
    counts = [max(len(phase) for phase in axis) for axis in reduced.reads]
    taps = "x".join(map(str, counts))
    merged = " (merged)" if any(reduced.merged) else ""
    if reduced.phases == (1, 1, 1):
        return f"{taps} taps{merged} that meet the input"
    phases = "x".join(map(str, reduced.phases))
    return f"{phases} phases of {taps} taps{merged}"


def _decisions(plan: DirectPlan) -> list[str]:
    lines = [
        f"  blocks    {plan.frames} frames x {plan.rows} rows x {plan.columns} columns{_lead(plan)}"
    ]
    lines += [f"  array     {packing.in_words()}" for packing in plan.passes[:_SHOWN]]
    if len(plan.passes) > _SHOWN:
        lines.append(f"            and so on: {len(plan.passes)} passes in all")
    if plan.is_reproducible:
        lines.append("  order     every output is summed alike, whatever the size of the input")
    windows = sum(plan.slots)
    weights = f"streamed through {plan.streamed} slots" if plan.streamed else "all in SBUF"
    lines.append(
        f"  SBUF      {windows} windows, {plan.out_buffers} output buffers, weights {weights}"
    )
    ahead = ", loads ahead of stores" if plan.ahead else ""
    lines.append(f"  program   {plan.loop_in_words()}{ahead}")
    return lines


def _lead(plan: DirectPlan) -> str:
    return f", {'+'.join(map(str, plan.lead))} at both ends" if plan.lead else ""

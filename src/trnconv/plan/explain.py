"""A plan in words: what was decided, what it costs, and why the alternatives lost."""

from __future__ import annotations

from nkisim.machine import CONSTANTS_VERSION
from trnconv.plan.choose import Choice, Priced
from trnconv.plan.conv_plan import BY_FRAME, BY_ROW, ConvPlan, Pass
from trnconv.plan.estimate import Estimate
from trnconv.plan.problem import Problem

_ALTERNATIVES = 5
_LEVEL_WORDS = {BY_FRAME: "frames", BY_ROW: "frames and rows"}


def explain(choice: Choice) -> str:
    """The plan taken and the best of those that lost, with modelled times."""
    taken = choice.taken
    lines = [
        _problem(taken.plan.problem, taken.plan.dtype),
        *_decisions(taken.plan),
        *_cost(taken.cost, taken.plan, choice.budget),
        *_alternatives(choice),
    ]
    return "\n".join(lines)


def _problem(problem: Problem, dtype: str) -> str:
    sizes = "x".join(map(str, problem.size))
    return (
        f"{problem.c_in} -> {problem.c_out} channels, {_taps(problem)}, on"
        f" {problem.images} x {sizes} {dtype}"
    )


def _taps(problem: Problem) -> str:
    counts = [max(len(phase) for phase in axis) for axis in problem.reads]
    taps = "x".join(map(str, counts))
    merged = " (merged)" if any(problem.merged) else ""
    if problem.phases == (1, 1, 1):
        return f"{taps} taps{merged} that meet the input"
    phases = "x".join(map(str, problem.phases))
    return f"{phases} phases of {taps} taps{merged}"


def _decisions(plan: ConvPlan) -> list[str]:
    lines = [
        f"  blocks    {plan.frames} frames x {plan.rows} rows x {plan.columns} columns{_lead(plan)}"
    ]
    lines += [f"  array     {pass_in_words(one)}" for one in plan.passes]
    if plan.sums_alike:
        lines.append("  order     every output is summed alike, whatever the size of the input")
    windows = sum(plan.slots)
    weights = f"streamed through {plan.streamed} slots" if plan.streamed else "all in SBUF"
    lines.append(
        f"  SBUF      {windows} windows, {plan.out_buffers} output buffers, weights {weights}"
    )
    loop = f"a hardware loop of {plan.body_blocks} blocks a turn" if plan.rolled else "unrolled"
    lines.append(f"  program   {loop}{', loads ahead of stores' if plan.ahead else ''}")
    return lines


def _lead(plan: ConvPlan) -> str:
    return f", {'+'.join(map(str, plan.lead))} at both ends" if plan.lead else ""


def pass_in_words(one: Pass) -> str:
    """How a pass fills the array."""
    last = one.first_channel + one.channels - 1
    stack = [
        f"{count} {name}"
        for count, name in ((one.frames, "frames"), (one.rows, "rows"), (one.columns, "columns"))
        if count > 1
    ]
    outputs = f", {' x '.join(stack)} of outputs on M" if stack else ""
    deeper = [_LEVEL_WORDS.get(level, "all taps") for level in one.levels]
    lines = f"lines stacked by {', the rest by '.join(deeper)}"
    tiles = f", column tiles of {one.tile_columns}" if one.unit != (0, 0) else ""
    return f"channels {one.first_channel}..{last}{outputs}; {lines}{tiles}"


def _cost(cost: Estimate, plan: ConvPlan, budget: int) -> list[str]:
    room = plan.target.sbuf_usable_bytes_per_partition
    spent = {
        "tensor": cost.tensor_ns,
        "DMA": cost.dma_ns,
        "DMA issue": cost.issue_ns,
        "eviction": cost.evict_ns,
    }
    busy = ", ".join(f"{name} {ns / 1e3:.1f}" for name, ns in spent.items())
    label = f"({plan.machine}, constants {CONSTANTS_VERSION}, default reading)"
    return [
        f"  time      {cost.total_ns / 1e3:.1f} us modelled in closed form {label}",
        f"  bound     by {cost.bound}: {busy} us",
        f"  traffic   {cost.hbm_bytes / 1e6:.1f} MB",
        f"  memory    {cost.sbuf_bytes} of {room} bytes a partition",
        f"  program   {cost.instructions} static instructions (budget {budget})",
    ]


def _alternatives(choice: Choice) -> list[str]:
    others = _distinct(choice)
    if not others:
        return ["  no alternative was legal"]
    lines = ["  lost"]
    for one in others[:_ALTERNATIVES]:
        more = 100 * (one.cost.total_ns / choice.taken.cost.total_ns - 1)
        passes = "; ".join(pass_in_words(it) for it in one.plan.passes)
        block = f"{one.plan.frames}x{one.plan.rows}x{one.plan.columns}"
        lines.append(
            f"    {one.cost.total_ns / 1e3:9.1f} us ({more:+.1f} %), {one.cost.hbm_bytes / 1e6:.0f}"
            f" MB, blocks {block}: {passes}"
        )
    if any(one.cost.total_ns < choice.taken.cost.total_ns for one in others[:_ALTERNATIVES]):
        lines.append("    where times are close, the plan that moves less is taken")
    return lines


def _distinct(choice: Choice) -> list[Priced]:
    """The best of each way to fill the array: variants of one block say nothing new."""
    seen = {choice.taken.plan.passes}
    found = []
    for one in choice.others:
        if one.plan.passes not in seen:
            seen.add(one.plan.passes)
            found.append(one)
    return found or list(choice.others)

"""The answer to a problem in words: what each algorithm would give, and why one is taken."""

from __future__ import annotations

from trnconv.algorithms.algorithm import Cost, Plan, Priced
from trnconv.planner.best import Choice, Offer, choose
from trnconv.planner.table import algorithm_of
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.limits import COMPILE_ASSUMPTION, compile_s

_ALTERNATIVES = 5
_RESOURCES = {"dma": "DMA", "dma issue": "DMA issue", "evict": "eviction"}
_ONE_ALGORITHM = (
    "Other algorithms were not looked for: the convolution is too small for them, of a kind that"
    " they do not compute, or was asked for directly."
)


def explain_problem(problem: ConvProblem) -> tuple[str, str]:
    """The first algorithm's plan and what lost to it; then what every algorithm offers."""
    return explain_choice(choose(problem))


def explain_choice(choice: Choice) -> tuple[str, str]:
    """The same for a problem that was answered."""
    first = choice.offers[0]
    details = f"no plan: {first.refused}"
    if first.plans:
        details = explain(first.plans, choice.problem.budget)
    if len(choice.offers) == 1:
        return details, _ONE_ALGORITHM
    return details, explain_algorithms(choice)


def explain(plans: tuple[Priced, ...], budget: int) -> str:
    """The fastest of these plans, and the best of those that lost to it, with modelled times."""
    taken, *others = plans
    return "\n".join([explain_plan(taken, budget), *_alternatives(taken, others)])


def explain_plan(winner: Priced, budget: int) -> str:
    """The decisions of a plan and what it costs, with modelled times."""
    lines = algorithm_of(winner.plan).decisions(winner.plan)
    return "\n".join([*lines, *_cost(winner.cost, winner.plan, budget)])


def _cost(cost: Cost, plan: Plan, budget: int) -> list[str]:
    room = plan.machine.sbuf_usable_bytes_per_partition
    busy = ", ".join(f"{_RESOURCES.get(name, name)} {ns / 1e3:.1f}" for name, ns in cost.busy)
    loops = f"{cost.regions or 'no'} hardware loop{'' if cost.regions == 1 else 's'}"
    seconds = compile_s(cost.instructions, cost.regions)
    label = f"({plan.machine_name}, constants {plan.machine.constants}, default reading)"
    return [
        f"  time      {cost.total_ns / 1e3:.1f} us modelled by the cost model {label}",
        f"  bound     by {cost.bound}: {busy} us",
        f"  traffic   {cost.hbm_bytes / 1e6:.1f} MB",
        f"  memory    {cost.sbuf_bytes} of {room} bytes a partition",
        f"  program   {cost.instructions} static instructions (budget {budget}), {loops}",
        f"  compiling some {seconds:.0f} s ({COMPILE_ASSUMPTION})",
    ]


def _alternatives(winner: Priced, others: list[Priced]) -> list[str]:
    shown = _distinct(winner, others)[:_ALTERNATIVES]
    if not shown:
        return ["  no alternative was legal"]
    lines = ["  lost"]
    for priced in shown:
        more = 100 * (priced.cost.total_ns / winner.cost.total_ns - 1)
        blocks = "x".join(map(str, priced.plan.block()))
        lines.append(
            f"    {priced.cost.total_ns / 1e3:9.1f} us ({more:+.1f} %),"
            f" {priced.cost.hbm_bytes / 1e6:.0f} MB, blocks {blocks}: {priced.plan.variant()}"
        )
    if any(priced.cost.total_ns < winner.cost.total_ns for priced in shown):
        lines.append("    where times are close, the plan that moves less is taken")
    return lines


def _distinct(winner: Priced, others: list[Priced]) -> list[Priced]:
    """The best of each way to compute it: variants of one block say nothing new."""
    seen = {winner.plan.variant()}
    distinct = []
    for priced in others:
        if priced.plan.variant() not in seen:
            seen.add(priced.plan.variant())
            distinct.append(priced)
    return distinct or others


def explain_algorithms(choice: Choice) -> str:
    """What was taken and what each algorithm would give, with modelled times."""
    problem = choice.problem
    shape, machine = problem.shape, problem.machine
    sizes, taps = ("x".join(map(str, value)) for value in (shape.size, shape.kernel))
    lines = [
        (
            f"{shape.c_in} -> {shape.c_out} channels, {taps} taps, on {shape.batch} x {sizes}"
            f" {problem.dtype}, accuracy {problem.policy.accuracy} ({machine.name}, constants"
            f" {machine.constants}, default reading; every time is modelled by the cost model)"
        ),
    ]
    others = [offer.best for offer in choice.offers[1:] if offer.plans]
    others.sort(key=lambda priced: priced.cost.weighed_ns)
    first = [offer.best for offer in choice.offers[:1] if offer.plans]
    lines += [_line(priced, choice.taken) for priced in (*first, *others)]
    lines += [f"  not possible  {reason}" for reason in _refusals(choice.offers)]
    return "\n".join(lines)


def _line(priced: Priced, winner: Priced) -> str:
    mark = "taken" if priced is winner else "     "
    cost, plan = priced.cost, priced.plan
    words = f"{plan.in_words()}, bound by {cost.bound}, {cost.hbm_bytes / 1e6:.0f} MB"
    error = f"expected error {plan.expected_ratio:.3f}x"
    return f"  {mark} {cost.total_ns / 1e3:9.1f} us  {error}  {words}"


def _refusals(offers: tuple[Offer, ...]) -> list[str]:
    return list(dict.fromkeys(offer.refused for offer in offers if offer.refused))

"""The launches of a call in words: one, or what each kind of several takes; one core, or two."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields

from trnconv.algorithms.algorithm import Plan
from trnconv.planner.best import choose
from trnconv.planner.explain import explain_choice, explain_plan
from trnconv.planner.shares import pair_ns, shared_plans
from trnconv.problem.conv_problem import ConvProblem, Shape
from trnconv.problem.cores import cores_of, describe_cores
from trnconv.problem.describe import describe_shape
from trnconv.problem.launches import planned_parts, require_room

_TWO_CORES = (
    "Each of two cores has its part, both by what wins on one core, or directly. On one core:"
)
_PARTS = {
    "rows_of": "rows",
    "columns_of": "columns",
    "lines_of": "lines of images and channels",
    "outputs_of": "outputs of every line",
    "outs_of": "output channels",
    "ins_of": "input channels",
    "strips_of": "halves of strips",
}
_NOT_HALVED = "it cannot be halved: both cores compute all of it and write the same"


@dataclass(frozen=True)
class _Explained:
    """One launch: its modelled time, the plan and what lost to it, and other algorithms."""

    ns: float
    words: tuple[str, str]


def explained(problem: ConvProblem, cores: int | None = None) -> tuple[str, str]:
    """The plan and what lost to it; then every algorithm. Of several launches, of the longest."""
    launched = cores_of(problem.machine, cores)
    require_room(problem)
    parts = list(planned_parts(problem, lambda part: _explained(part, launched)))
    if len(parts) == 1:
        return parts[0][1].words
    times = {launch.shape: explanation.ns for launch, explanation in parts}
    longest = max((explanation for _, explanation in parts), key=lambda launch: launch.ns)
    counts = Counter(launch.shape for launch, _ in parts)
    lines = [_line(shape, counts[shape], ns) for shape, ns in times.items()]
    total = sum(explanation.ns for _, explanation in parts)
    first = f"{len(parts)} launches, {total / 1e3:.1f} us together; the longest is explained"
    details, algorithms = longest.words
    return "\n".join([first, *lines, details]), algorithms


def _line(shape: Shape, count: int, ns: float) -> str:
    return f"  {count} x {describe_shape(shape)}: {ns / 1e3:.1f} us each"


def _explained(problem: ConvProblem, cores: int) -> _Explained:
    choice = choose(problem)
    words = explain_choice(choice)
    if cores == 1:
        return _Explained(choice.taken.cost.total_ns, words)
    both = shared_plans(problem)
    first, second = (priced.plan for priced in both)
    split = _NOT_HALVED if first == second else f"core 0 has {describe_split(first, second)}"
    lines = [f"{describe_cores(cores)}: {split}"]
    lines += [
        f"core {core} of {cores}: {explain_plan(priced, problem.budget)}"
        for core, priced in enumerate(both)
    ]
    return _Explained(pair_ns(both), ("\n".join(lines), "\n".join([_TWO_CORES, *words])))


def describe_split(first: Plan, second: Plan) -> str:
    """What the first core has, where it differs from what the second has."""
    for field in fields(first):
        ours, theirs = (getattr(plan, field.name) for plan in (first, second))
        if field.name.endswith("_of") and ours != theirs:
            return f"{_PARTS[field.name]} from {ours[0]}, before {ours[1]}"
    return "half of the output channels"
